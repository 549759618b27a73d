"""Numbers as people read them: four digits that matter, a margin in per cent, '–' where there is no number."""

from __future__ import annotations

import math
import time

from seatrial.records.measure import Estimate

NONE = "–"


def figure(value: float | None) -> str:
    """'1,270', '84.21', '0.04211': four digits that matter, thousands marked."""
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 9)}f}"


def short(value: float | None) -> str:
    """'1,270', '84.2', '0.42', '<0.01': what a glance takes in."""
    if value is None or not math.isfinite(value):
        return NONE
    if 0 < abs(value) < 0.01:
        return "<0.01" if value > 0 else ">-0.01"
    decimals = 0 if abs(value) >= 100 or value == 0 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{decimals}f}"


def ratio(value: float | None) -> str:
    return NONE if value is None or not math.isfinite(value) else f"{value:.3f}"


def margin_ratio(estimate: Estimate | None) -> float | None:
    """Half the width of the interval on the log scale, as a share of the mean; None without an interval."""
    if estimate is None or not estimate.low or not estimate.high:
        return None
    return math.sqrt(estimate.high / estimate.low) - 1


def margin(estimate: Estimate | None) -> str:
    """'±2.1 %', '± over 100 %'; '' where there is no interval."""
    share = margin_ratio(estimate)
    if share is None:
        return ""
    per_cent = share * 100
    if per_cent >= 100:
        # Two repeats that disagree: the exact width of an interval without worth would only be noise to read.
        return "± over 100 %"
    return f"±{per_cent:.1f} %" if per_cent < 10 else f"±{per_cent:,.0f} %"


def interval(estimate: Estimate | None) -> str:
    """'1,257 to 1,283'; '–' where there is no interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return NONE
    return f"{figure(estimate.low)} to {figure(estimate.high)}"


def instant(seconds: float) -> str:
    """UTC, to the second, as ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def number_in(value: object) -> float | None:
    """The value where it is a number to count with; text, nothing, yes or no, NaN and infinities are none."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def level(value: object) -> str:
    """A value of an axis: yes and no as plans and charts write them."""
    return NONE if value is None else str(value).lower() if isinstance(value, bool) else str(value)
