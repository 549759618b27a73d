"""The step that a script without the probe has reached, from the lines it prints.

In: launcher.log and launcher_arrivals.csv as they grow, read incrementally. Out: `LogProgress`: the latest step,
when its line arrived, and the median step time between the lines before it. If all ranks print, only the first that printed a step is
followed, so that no step counts twice.
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

from seatrial.core.log_header import find_header
from seatrial.core.log_lines import (
    BARS,
    LOG_FORMATS,
    STEP_AND_LOSS,
    LinePattern,
    compile_patterns,
    line_values,
    split_rank,
    timed_patterns,
)
from seatrial.core.paths import AttemptPaths
from seatrial.records.plan import RunSpec

# A read must stay cheap even if a script floods its log.
MAX_READ_BYTES = 1 << 20
# The median of the latest step times is taken over this many printed steps.
MEDIAN_LINES = 20
MAX_PARTIAL_LINE_BYTES = 64 << 10
_LINE_END = re.compile(rb"[\r\n]")
ANY_LINE = compile_patterns(STEP_AND_LOSS.lines)


@dataclass(frozen=True, kw_only=True)
class LogProgress:
    """Progress by a log so far."""

    has_output: bool
    step: int | None = None
    step_t: float = 0.0
    iter_ms_p50: float | None = None


class LogProgressReader:
    """Polls one attempt's log."""

    def __init__(self, spec: RunSpec, attempt: AttemptPaths, wall: Callable[[], float] = time.time) -> None:
        self._formats = _formats(spec)
        self._is_any_line_read = spec.workload.reads == "auto" and not spec.workload.patterns
        """Whether a step and a loss make a line one of a step: until a line of a known format is printed that is not a bar."""
        self._log = _FileTail(attempt.launcher_log, has_header=True)
        self._arrivals = _ArrivalTimes(attempt.arrivals)
        self._wall = wall
        self._followed: tuple[int | None] | None = None
        self._step: int | None = None
        self._step_t = 0.0
        self._previous: tuple[int, float] | None = None
        self._iter_ms: deque[float] = deque(maxlen=MEDIAN_LINES)

    def read(self) -> LogProgress:
        lines, now_t = list(self._log.lines()), self._wall()
        # Read after the log: an arrival time is written after its text.
        self._arrivals.read()
        for end_bytes, line in lines:
            rank, text = split_rank(line.decode("utf-8", errors="replace"))
            for step in self._steps_in(text):
                self._add_step(rank, step, self._arrivals.at(end_bytes, now_t))
        iter_ms_p50 = median(self._iter_ms) if self._iter_ms else None
        return LogProgress(has_output=self._log.offset > self._log.start, step=self._step, step_t=self._step_t, iter_ms_p50=iter_ms_p50)

    def _steps_in(self, text: str) -> Iterator[int]:
        """Steps by each format that finds one; else the step of any line with a step and a loss."""
        is_known = False
        for name, patterns in self._formats:
            step = line_values(text, patterns).get("step")
            if step is not None:
                is_known = True
                self._is_any_line_read = self._is_any_line_read and name in BARS
                yield int(step)
        if self._is_any_line_read and not is_known and (step := line_values(text, ANY_LINE).get("step")) is not None:
            yield int(step)

    def _add_step(self, rank: int | None, step: int, t: float) -> None:
        if self._followed is None:
            self._followed = (rank,)
        if self._followed != (rank,) or step == self._step:
            return
        self._add_step_time(step, t)
        self._step, self._step_t = step, t

    def _add_step_time(self, step: int, t: float) -> None:
        """Lines that arrived together were buffered by the script: only the first of them counts."""
        previous, self._previous = self._previous, (step, t)
        # A step not above the last starts another epoch or progress bar: the time between the two has no meaning.
        if previous is None or step <= previous[0]:
            return
        if t > previous[1]:
            self._iter_ms.append((t - previous[1]) * 1000.0 / (step - previous[0]))
        else:
            self._previous = previous


class _FileTail:
    """New whole lines of a file, each with the offset at which it ends; a carriage return ends a line too. META and CMD blocks that a file
    with `has_header` begins with are left out: they are written before the run starts."""

    def __init__(self, path: Path, *, has_header: bool = False) -> None:
        self._path = path
        self._partial = b""
        self.start = self.offset = find_header(path).num_bytes if has_header else 0

    def lines(self) -> Iterator[tuple[int, bytes]]:
        chunk = self._read_chunk()
        end = self.offset - len(self._partial)
        self.offset += len(chunk)
        *lines, partial = _LINE_END.split(self._partial + chunk)
        # A script that never ends its line would be split from its start at every read.
        self._partial = partial[-MAX_PARTIAL_LINE_BYTES:]
        for line in lines:
            end += len(line)
            yield end, line
            end += 1

    def _read_chunk(self) -> bytes:
        try:
            with open(self._path, "rb") as source:
                if source.seek(0, os.SEEK_END) < self.offset:
                    # The file was truncated: what follows is new.
                    self.start = self.offset = 0
                    self._partial = b""
                source.seek(self.offset)
                return source.read(MAX_READ_BYTES)
        except OSError:
            return b""


class _ArrivalTimes:
    """When the bytes of the log arrived, for offsets that only grow."""

    def __init__(self, path: Path) -> None:
        self._file = _FileTail(path)
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
        """Wall clock at which the chunk with the byte before `end_bytes` arrived; now where its row is not there yet."""
        while self._rows and self._rows[0][0] < end_bytes:
            self._rows.popleft()
        return self._rows[0][1] if self._rows else now_t


def _formats(spec: RunSpec) -> Sequence[tuple[str, Sequence[LinePattern]]]:
    if spec.workload.patterns:
        return [("", timed_patterns(spec.workload.patterns))]
    if spec.workload.reads == "none":
        return []
    names = [spec.workload.reads] if spec.workload.reads in LOG_FORMATS else list(LOG_FORMATS)
    return [(name, compile_patterns(LOG_FORMATS[name].lines)) for name in names]
