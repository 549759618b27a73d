"""When the bytes of a run's output came.

In: launcher_arrivals.csv, the end offset of every chunk as it arrived, with both clocks. Out: `Arrivals`, in the order of their
offsets. Offsets and the monotonic clock only grow, so rows that do not fit the others are left out and counted.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.file_parts import Piece, pieces
from seatrial.collect.growing import longest_growing
from seatrial.records.columns import ARRIVALS
from seatrial.units import MIB

MOST_BYTES = 64 * MIB
LONGEST_ROW = 200
HEADER = ARRIVALS[0].encode()


@dataclass(frozen=True, slots=True)
class Arrival:
    """One chunk of output: where it ends and when it came."""

    end_bytes: int
    t: float
    m: float


UNKNOWN = Arrival(end_bytes=0, t=math.nan, m=math.nan)


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Every row that can be believed."""

    rows: Sequence[Arrival] = ()
    passed_over: int = 0
    """Rows that are none, or that contradict the others."""
    problem: str = ""
    """Why the file could not be read, where there is one."""


def read_arrivals(path: Path, most_bytes: int = MOST_BYTES) -> Arrivals:
    """All rows; none when there is no such file."""
    try:
        found = list(pieces(path, most_bytes, LONGEST_ROW))
    except FileNotFoundError:
        return Arrivals()
    except OSError as error:
        return Arrivals(problem=error.strerror or "cannot be read")
    # A row torn by a kill is no whole line, and the header is none of ours to count.
    whole = [piece for piece in found if piece.text.endswith(b"\n") and not piece.text.startswith(HEADER)]
    kept = [_believed([_arrival(piece) for piece in whole if piece.part == part]) for part in (0, 1)]
    # The chunks between the two parts are not known: their bytes must not be given the time of the next that is.
    rows = [*kept[0], *map(_untimed, kept[1][:1]), *kept[1][1:]]
    return Arrivals(rows=rows, passed_over=len(whole) - len(rows))


def _believed(read: Sequence[Arrival | None]) -> list[Arrival]:
    """Rows in their order. A chunk after one that is lost holds the lost one's bytes too, so when they came is not known."""
    rows = [row for row in read if row is not None]
    kept = _in_order(rows)
    if len(kept) == len(read):
        return kept
    doubtful = {later for row, later in itertools.pairwise(read) if row is None and later is not None}
    for lost in set(rows).difference(kept):
        place = bisect.bisect_left(kept, lost.end_bytes, key=lambda row: row.end_bytes)
        doubtful.update(kept[place : place + 1])
    return [_untimed(row) if row in doubtful else row for row in kept]


def _untimed(row: Arrival) -> Arrival:
    return Arrival(row.end_bytes, math.nan, math.nan)


def _arrival(piece: Piece) -> Arrival | None:
    """None for what is no row."""
    try:
        end_bytes, t, m = piece.text.split(b",")
        row = Arrival(int(end_bytes), float(t), float(m))
    except ValueError:
        return None
    return row if piece.begins and row.end_bytes >= 0 and math.isfinite(row.t) and math.isfinite(row.m) else None


def _in_order(rows: list[Arrival]) -> list[Arrival]:
    """Rows whose offsets grow and whose monotonic clock does not go back."""
    if all(one.end_bytes < later.end_bytes and one.m <= later.m for one, later in itertools.pairwise(rows)):
        return rows
    by_offset = sorted(set(rows), key=lambda row: (row.end_bytes, -row.m))
    kept = [by_offset[place] for place in longest_growing([row.m for row in by_offset])]
    return [row for at, row in enumerate(kept) if at == 0 or row.end_bytes > kept[at - 1].end_bytes]
