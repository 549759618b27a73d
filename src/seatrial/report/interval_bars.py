"""Intervals drawn with characters on one scale: `      ├────●────┤   `.

In: estimates and the number of columns. Out: a scale for all of them and a line for each. An interval that runs off the scale
ends in an arrow; an estimate without an interval is its dot alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.records.measure import Estimate

# Two runs that differ can have an interval many times as wide as all the means together; drawn whole it would hide them.
MOST_MARGIN_RATIO = 1.0
SMALLEST_SPAN_RATIO = 0.02


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The values at the left and the right end of every line."""

    low: float
    high: float

    def column(self, value: float, columns: int) -> int:
        """Where `value` falls in a line of `columns`, kept inside it."""
        share = (value - self.low) / (self.high - self.low)
        return min(max(round(share * (columns - 1)), 0), columns - 1)


def scale_of(estimates: Sequence[Estimate | None]) -> Scale | None:
    """A scale that holds every mean, and every interval as far as that leaves the means apart; None without estimates."""
    known = [estimate for estimate in estimates if estimate]
    if not known:
        return None
    means = [estimate.mean for estimate in known]
    reach = max(max(means) - min(means), max(means) * SMALLEST_SPAN_RATIO) * MOST_MARGIN_RATIO
    low = max(min(estimate.low or estimate.mean for estimate in known), min(means) - reach)
    high = min(max(estimate.high or estimate.mean for estimate in known), max(means) + reach)
    if high <= low:
        low, high = low - reach / 2, high + reach / 2
    return Scale(low=low, high=high)


def bar(estimate: Estimate | None, scale: Scale, columns: int) -> str:
    """One line of exactly `columns` characters."""
    line = [" "] * columns
    if estimate is None:
        return "".join(line)
    if estimate.low is not None and estimate.high is not None:
        first, last = scale.column(estimate.low, columns), scale.column(estimate.high, columns)
        line[first : last + 1] = "─" * (last - first + 1)
        line[first] = "├" if estimate.low >= scale.low else "◂"
        line[last] = "┤" if estimate.high <= scale.high else "▸"
    line[scale.column(estimate.mean, columns)] = "●"
    return "".join(line)
