"""The step a script's own lines have reached, read on from where the last look ended.

In: launcher.log and launcher_arrivals.csv as they grow. Out: `Told`: the newest step, when its line arrived, and the median time of
a step between the lines before it. Ranks that all print are no reason to count a step twice: the first that tells one is followed.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from seatrial.log_lines import LinePattern, compile_patterns, own_patterns, split_rank, values_in
from seatrial.paths import AttemptPaths
from seatrial.records.log_formats import READY
from seatrial.records.run_spec import RunSpec

# One look at a log must stay cheap even when a script floods it.
MOST_BYTES_A_LOOK = 1 << 20
# How many printed steps the median of the newest step times is taken over.
NEWEST_LINES = 20
LONGEST_REST_BYTES = 64 << 10
_LINE_END = re.compile(rb"[\r\n]")


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a log has told so far."""

    heard: bool
    """Anything at all was printed."""
    step: int | None = None
    step_t: float = 0.0
    iter_ms_p50: float | None = None


class GrowingLog:
    """One attempt's log, looked at again and again."""

    def __init__(self, spec: RunSpec, attempt: AttemptPaths, wall: Callable[[], float] = time.time) -> None:
        self._formats = _formats(spec)
        self._log = _GrowingFile(attempt.launcher_log)
        self._arrivals = _Arrivals(attempt.arrivals)
        self._wall = wall
        self._teller: tuple[int | None] | None = None
        self._step: int | None = None
        self._step_t = 0.0
        self._base: tuple[int, float] | None = None
        self._iter_ms: deque[float] = deque(maxlen=NEWEST_LINES)

    def look(self) -> Told:
        """The newest there is."""
        lines, now_t = list(self._log.lines()), self._wall()
        # Read after the log: a stamp is written behind its text.
        self._arrivals.read()
        for end_bytes, line in lines:
            rank, text = split_rank(line.decode("utf-8", errors="replace"))
            for patterns in self._formats:
                step = values_in(text, patterns).get("step")
                if step is not None:
                    self._take(rank, int(step), self._arrivals.at(end_bytes, now_t))
        pace_ms = median(self._iter_ms) if self._iter_ms else None
        return Told(heard=self._log.offset > 0, step=self._step, step_t=self._step_t, iter_ms_p50=pace_ms)

    def _take(self, rank: int | None, step: int, t: float) -> None:
        if self._teller is None:
            self._teller = (rank,)
        if self._teller != (rank,) or step == self._step:
            return
        self._time(step, t)
        self._step, self._step_t = step, t

    def _time(self, step: int, t: float) -> None:
        """Lines that arrived together are one mark, that of the first: the script's output was buffered."""
        before, self._base = self._base, (step, t)
        # A step not above the last is the start of another epoch or another bar: nothing is known of the time between.
        if before is None or step <= before[0]:
            return
        if t > before[1]:
            self._iter_ms.append((t - before[1]) * 1000.0 / (step - before[0]))
        else:
            self._base = before


class _GrowingFile:
    """New whole lines of a file, each with the offset at which it ends; a carriage return ends a line too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        self.offset = 0

    def lines(self) -> Iterator[tuple[int, bytes]]:
        chunk = self._read_on()
        end = self.offset - len(self._rest)
        self.offset += len(chunk)
        *lines, rest = _LINE_END.split(self._rest + chunk)
        # A script that never ends its line would be split anew from its start at every look.
        self._rest = rest[-LONGEST_REST_BYTES:]
        for line in lines:
            end += len(line)
            yield end, line
            end += 1

    def _read_on(self) -> bytes:
        """The next piece; nothing where there is none, or none can be had."""
        try:
            with open(self._path, "rb") as source:
                if source.seek(0, os.SEEK_END) < self.offset:
                    # Somebody emptied it: what follows is new.
                    self.offset, self._rest = 0, b""
                source.seek(self.offset)
                return source.read(MOST_BYTES_A_LOOK)
        except OSError:
            return b""


class _Arrivals:
    """When the bytes of the log came, for offsets that only grow."""

    def __init__(self, path: Path) -> None:
        self._file = _GrowingFile(path)
        self._rows: deque[tuple[int, float]] = deque()

    def read(self) -> None:
        for _, line in self._file.lines():
            offset, _, rest = line.decode("ascii", errors="replace").partition(",")
            try:
                row = int(offset), float(rest.partition(",")[0])
            except ValueError:
                # The header, or a row torn by a kill.
                continue
            if math.isfinite(row[1]):
                self._rows.append(row)

    def at(self, end_bytes: int, now_t: float) -> float:
        """Wall clock at which the chunk with the byte before `end_bytes` came; now where its row is not there yet."""
        while self._rows and self._rows[0][0] < end_bytes:
            self._rows.popleft()
        return self._rows[0][1] if self._rows else now_t


def _formats(spec: RunSpec) -> Sequence[Sequence[LinePattern]]:
    if spec.workload.patterns:
        return [own_patterns(spec.workload.patterns)]
    if spec.workload.reads == "none":
        return []
    names = [spec.workload.reads] if spec.workload.reads in READY else list(READY)
    return [compile_patterns(READY[name].lines) for name in names]
