"""A series of values as one line of blocks: `▂▁▁▂▁█▁▁▂▁`.

In: values in order and the number of columns. Out: a line of exactly that many characters. Where there are more values than columns, two
columns show the lowest and the highest value of their share, in the order they came: no spike and no dip is lost, and a series that goes up
and down all the time looks like one. What is not a number is a gap. A series that hardly changes is flat in the middle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "
# A level of eight is then about half a per cent: what is less is not seen in a step either.
LEAST_SPAN_RATIO = 0.05


def sparkline(values: Sequence[float | None], columns: int, *, low: float | None = None, high: float | None = None) -> str:
    """The line; `low` and `high` are the ends of its scale, those of the values where they are not given."""
    shown = thinned(values, columns)
    known = [value for value in shown if value is not None]
    if not known:
        return GAP * columns
    bottom, top = _scale(min(known) if low is None else low, max(known) if high is None else high)
    return "".join(GAP if value is None else _block(value, bottom, top) for value in shown).ljust(columns, GAP)


def thinned(values: Sequence[float | None], columns: int) -> list[float | None]:
    """At most `columns` values: of each share the lowest and the highest, None where it holds no number."""
    known = [value if value is not None and math.isfinite(value) else None for value in values]
    if len(known) <= columns or columns < 2:
        return known[: max(columns, 0)]
    shares = columns // 2
    edges = [share * len(known) // shares for share in range(shares + 1)]
    return [value for first, end in pairwise(edges) for value in extremes(known[first:end])]


def extremes(values: Sequence[float | None]) -> tuple[float, float] | tuple[None, None]:
    """The lowest and the highest, in the order they first came."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    low, high = min(known), max(known)
    return (low, high) if known.index(low) <= known.index(high) else (high, low)


def _scale(low: float, high: float) -> tuple[float, float]:
    """Wide enough that what hardly differs is drawn at one height, in the middle."""
    centre = (low + high) / 2
    reach = max(high - low, abs(centre) * LEAST_SPAN_RATIO) / 2
    return (centre - reach, centre + reach) if reach else (low - 1.0, high + 1.0)


def _block(value: float, bottom: float, top: float) -> str:
    level = round((value - bottom) / (top - bottom) * (len(BLOCKS) - 1))
    return BLOCKS[min(max(level, 0), len(BLOCKS) - 1)]
