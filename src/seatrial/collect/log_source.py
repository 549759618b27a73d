"""A run's output as stamped lines.

In: launcher.log and launcher_arrivals.csv (the end offset of every chunk as it arrived, with both clocks). Out: one `StampedLine`
for each line, a carriage return ending a line too, with the rank it is marked with and the time at which its last byte arrived.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.log_lines import split_rank

LONGEST_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StampedLine:
    """One line; both clocks are NaN where no arrival was kept for it."""

    rank: int | None
    text: str
    t: float
    m: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """One chunk of output: where it ends and when it came."""

    end_bytes: int
    t: float
    m: float


UNKNOWN = Arrival(end_bytes=0, t=math.nan, m=math.nan)


def read_arrivals(path: Path) -> list[Arrival]:
    """Every whole row, in the order of their offsets; [] when there is no such file."""
    found: list[Arrival] = []
    try:
        with open(path, newline="", encoding="utf-8", errors="replace") as source:
            for row in csv.reader(source):
                arrival = _arrival(row)
                if arrival is not None and (not found or arrival.end_bytes >= found[-1].end_bytes):
                    found.append(arrival)
    except FileNotFoundError:
        return []
    return found


def _arrival(row: list[str]) -> Arrival | None:
    """None for the header and for a row torn by a kill."""
    try:
        return Arrival(int(row[0]), float(row[1]), float(row[2]))
    except (IndexError, ValueError):
        return None


def stamped_lines(log: Path, arrivals: list[Arrival], telling: Sequence[bytes] = ()) -> Iterator[StampedLine]:
    """Every line of the log, or those that have one of `telling` in them.

    The part of a line after a carriage return keeps the rank the line began with.
    """
    stamp = _Clock(arrivals)
    rank: int | None = None
    for start, piece, begins in _pieces(log):
        if telling and not any(word in piece for word in telling) and not piece.startswith(b"[rank"):
            rank = None if begins else rank
            continue
        marked, text = split_rank(piece.decode("utf-8", errors="replace"))
        rank = marked if begins or marked is not None else rank
        if text:
            # A bar's carriage return comes with the next bar, so the end of the text is what counts.
            at = stamp.of(start + len(piece))
            yield StampedLine(rank, text, at.t, at.m)


def _pieces(log: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Offset and text of every piece between line ends of either kind, and whether a new line begins with it."""
    if not log.is_file():
        return
    offset, begins = 0, True
    with open(log, "rb") as source:
        while line := source.readline(LONGEST_READ_BYTES):
            for piece in line.rstrip(b"\n").split(b"\r"):
                yield offset, piece, begins
                offset, begins = offset + len(piece) + 1, False
            offset, begins = source.tell(), line.endswith(b"\n")


class _Clock:
    """Looks up arrivals for offsets that only grow."""

    def __init__(self, arrivals: list[Arrival]) -> None:
        self._left = iter(arrivals)
        self._now = next(self._left, UNKNOWN)

    def of(self, end_bytes: int) -> Arrival:
        """The chunk in which the byte before `end_bytes` came."""
        while self._now is not UNKNOWN and self._now.end_bytes < end_bytes:
            self._now = next(self._left, UNKNOWN)
        return self._now
