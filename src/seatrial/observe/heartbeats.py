"""The newest heartbeat of every rank, read cheaply and without trust.

In: an attempt's folder, look by look. Out: `Beat`, one for each rank that has told of itself. A file that has not grown is not read
again; of one that has, only the end is. Lines that are torn, of another attempt or of another rank are passed over, and a file that
cannot be read leaves the rank where it was. While the disk of the folder fails, ranks write elsewhere (see `append`), and are found
there.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.disk.append import kept_elsewhere
from seatrial.paths import AttemptPaths
from seatrial.records.events import HEARTBEAT_EVERY_S

# A line has about 300 bytes; the second is for one with a long remark.
TAILS_BYTES = (4096, 65536)
# How many lines of a tail may be nonsense before it is called so.
MOST_LINES = 16
# A file that stands still for longer may have gone on elsewhere.
ELSEWHERE_AFTER_S = 1.5 * HEARTBEAT_EVERY_S
# Beyond these a number is a lie: more steps than a float counts one by one, and a day for one step.
MOST_STEPS = 2**53
MOST_ITER_MS = 86_400_000.0
LONGEST_WORD = 200
_NAME = re.compile(r"heartbeat_rank(\d{1,9})\.jsonl")


@dataclass(frozen=True, kw_only=True)
class Beat:
    """One line, with everything in it checked."""

    rank: int
    step: int | None
    """The last step that ended; None before the first."""
    phase: str = ""
    pid: int | None = None
    host: str = ""
    ts: float | None = None
    step_t: float | None = None
    iter_ms_p50: float | None = None
    paused_s: float = 0.0
    read_bytes: int = 0
    """How long the file was: it grows with every sign of life, whatever the clocks do."""


class Heartbeats:
    """All heartbeat files of one attempt."""

    def __init__(self, attempt: AttemptPaths, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._attempt, self._monotonic = attempt, monotonic
        self._files: dict[int, _BeatFile] = {}

    def look(self) -> list[Beat]:
        """The newest of each rank, by rank."""
        now_m = self._monotonic()
        for rank, path in self._found():
            if rank not in self._files:
                self._files[rank] = _BeatFile(path, rank, self._attempt.number, now_m)
        beats = (self._files[rank].look(now_m) for rank in sorted(self._files))
        return [beat for beat in beats if beat is not None]

    def _found(self) -> list[tuple[int, Path]]:
        try:
            found = [(_NAME.fullmatch(path.name), path) for path in self._attempt.folder.iterdir()]
        except OSError:
            return []
        return [(int(match.group(1)), path) for match, path in found if match]


class _BeatFile:
    """One rank's."""

    def __init__(self, path: Path, rank: int, attempt: int, now_m: float) -> None:
        self._path, self._rank, self._attempt = path, rank, attempt
        self._beat: Beat | None = None
        self._seen: tuple[int, int] | None = None
        self._elsewhere_seen: tuple[int, int] | None = None
        self._changed_m = now_m

    def look(self, now_m: float) -> Beat | None:
        seen = _size_and_time(self._path)
        if seen is not None and seen != self._seen:
            self._seen, self._changed_m = seen, now_m
            self._take(self._path, seen[0])
        elif now_m - self._changed_m > ELSEWHERE_AFTER_S:
            self._look_elsewhere()
        return self._beat

    def _look_elsewhere(self) -> None:
        elsewhere = kept_elsewhere(self._path)
        seen = _size_and_time(elsewhere) if elsewhere else None
        if elsewhere and seen is not None and seen != self._elsewhere_seen:
            self._elsewhere_seen = seen
            self._take(elsewhere, seen[0] + (self._seen[0] if self._seen else 0))

    def _take(self, path: Path, read_bytes: int) -> None:
        for most_bytes in TAILS_BYTES:
            for line in reversed(_last_lines(path, most_bytes)):
                beat = parse_beat(line, self._rank, self._attempt, read_bytes)
                if beat is not None:
                    self._beat = beat
                    return


def parse_beat(line: bytes, rank: int, attempt: int, read_bytes: int = 0) -> Beat | None:
    """The beat in a line; None where it is torn, of another rank or attempt (0: not known), or says what cannot be."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("rank") != rank or not _is_of(attempt, value.get("attempt")):
        return None
    step = value.get("step")
    if step is not None and not (_is_whole(step) and 0 <= step < MOST_STEPS):
        return None
    pid = value.get("pid")
    iter_ms = _number(value.get("iter_ms_p50"))
    return Beat(
        rank=rank,
        step=step,
        phase=_word(value.get("phase")),
        pid=pid if _is_whole(pid) else None,
        host=_word(value.get("host")),
        ts=_number(value.get("ts")),
        step_t=_number(value.get("step_t")),
        iter_ms_p50=iter_ms if iter_ms is not None and 0 < iter_ms <= MOST_ITER_MS else None,
        paused_s=max(_number(value.get("paused_s")) or 0.0, 0.0),
        read_bytes=read_bytes,
    )


def _is_of(attempt: int, told: Any) -> bool:
    return attempt == 0 or told is None or told == attempt


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _word(value: Any) -> str:
    return value[:LONGEST_WORD] if isinstance(value, str) else ""


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _last_lines(path: Path, most_bytes: int) -> list[bytes]:
    try:
        with open(path, "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - most_bytes))
            return source.read(most_bytes).splitlines()[-MOST_LINES:]
    except OSError:
        return []
