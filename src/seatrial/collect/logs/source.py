"""A run's output as stamped lines.

In: launcher.log and its arrivals. Out: one `StampedLine` for each line, a carriage return ending a line too, with the rank it is
marked with and the time at which its last byte arrived. Of a log beyond LARGEST_LOG_BYTES only the head and the end are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.file_parts import Piece, left_out_bytes, pieces, size_of
from seatrial.collect.logs.arrivals import UNKNOWN, Arrival, Arrivals, read_arrivals
from seatrial.log_lines import LONGEST_LINE, split_rank
from seatrial.units import MIB

LARGEST_LOG_BYTES = 64 * MIB
"""Seconds of reading; a log of ten gigabytes would take many minutes, and tell no more of the time of a step."""
# What is searched of a line, even where each of its characters takes four bytes.
LONGEST_TEXT_BYTES = 4 * LONGEST_LINE


@dataclass(frozen=True, slots=True)
class StampedLine:
    """One line; both clocks are NaN where no arrival was kept for it."""

    rank: int | None
    text: str
    t: float
    m: float
    part: int = 0
    """0 for the head of the log, 1 for its end, where what lies between was not read."""


@dataclass(frozen=True, kw_only=True)
class LogText:
    """What could be read of an attempt's output."""

    lines: list[StampedLine]
    arrivals: Arrivals
    left_out_bytes: int = 0
    problem: str = ""
    """Why the log could not be read, where there is one."""


def read_log(log: Path, arrivals: Path, telling: Sequence[bytes] = ()) -> LogText:
    """Every line, or those that have one of `telling` in them."""
    came = read_arrivals(arrivals)
    try:
        left_out = left_out_bytes(size_of(log), LARGEST_LOG_BYTES)
        return LogText(lines=list(stamped_lines(log, came.rows, telling)), arrivals=came, left_out_bytes=left_out)
    except FileNotFoundError:
        return LogText(lines=[], arrivals=came)
    except OSError as error:
        return LogText(lines=[], arrivals=came, problem=error.strerror or "cannot be read")


def stamped_lines(log: Path, arrivals: Sequence[Arrival], telling: Sequence[bytes] = ()) -> Iterator[StampedLine]:
    """The same, line by line; the part of a line after a carriage return keeps the rank the line began with."""
    stamp = _Clock(arrivals)
    rank: int | None = None
    for piece in pieces(log, LARGEST_LOG_BYTES):
        for start, text, begins in _between_returns(piece):
            if telling and not any(word in text for word in telling) and not text.startswith(b"[rank"):
                rank = None if begins else rank
                continue
            marked, words = split_rank(text[:LONGEST_TEXT_BYTES].decode("utf-8", errors="replace"))
            rank = marked if begins or marked is not None else rank
            if words:
                # A bar's carriage return comes with the next bar, so the end of the text is what counts.
                at = stamp.of(start + len(text))
                yield StampedLine(rank, words, at.t, at.m, piece.part)


def _between_returns(piece: Piece) -> Iterator[tuple[int, bytes, bool]]:
    """Offset and text of every part between carriage returns, and whether a new line begins with it."""
    start, begins = piece.start, piece.begins
    for text in piece.text.rstrip(b"\n").split(b"\r"):
        yield start, text, begins
        start, begins = start + len(text) + 1, False


class _Clock:
    """Looks up arrivals for offsets that only grow."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._left = iter(arrivals)
        self._now = next(self._left, UNKNOWN)

    def of(self, end_bytes: int) -> Arrival:
        """The chunk in which the byte before `end_bytes` came."""
        while self._now is not UNKNOWN and self._now.end_bytes < end_bytes:
            self._now = next(self._left, UNKNOWN)
        return self._now
