"""What a comparison could have seen: the smallest difference it would show, and the repeats that a given one needs.

In: a `Difference` and a confidence. Out: per cent, and numbers of repeats a side. Both are for a power of 0.8: four times in five a
difference of that size would be told. They rest on the spread of the runs at hand, which few runs know only roughly.
"""

from __future__ import annotations

import math

from scipy.special import nctdtrinc, stdtrit

from seatrial.analyse.interval import Difference
from seatrial.records.measure import CONFIDENCE

POWER = 0.8
# Beyond this nobody repeats; another way of measuring is needed.
MOST_REPEATS = 1000


def detectable_pct(difference: Difference, confidence: float = CONFIDENCE) -> float:
    """The smallest difference, in per cent, that these runs would have shown four times in five."""
    return math.expm1(min(_shift(difference.freedom, confidence) * difference.error, 700.0)) * 100


def repeats_needed(difference: Difference, wanted_log: float, confidence: float = CONFIDENCE) -> int | None:
    """Repeats a side at which a difference of `wanted_log` on logs would be told four times in five; None where MOST_REPEATS fall short."""
    low, high = 2, MOST_REPEATS
    if wanted_log <= 0 or not _shows(difference, high, wanted_log, confidence):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _shows(difference, middle, wanted_log, confidence) else (middle + 1, high)
    return low


def _shows(difference: Difference, repeats: int, wanted_log: float, confidence: float) -> bool:
    """The degrees of freedom are taken to grow as the repeats do."""
    freedom = difference.freedom / max(difference.n - 1, 1) * (repeats - 1)
    return _shift(freedom, confidence) * difference.spread / math.sqrt(repeats) <= wanted_log


def _shift(freedom: float, confidence: float) -> float:
    """By how many standard errors two means must lie apart to be told with POWER: the non-central t that leaves 1 - POWER below."""
    bound = float(stdtrit(freedom, 0.5 + confidence / 2))
    exact = float(nctdtrinc(freedom, 1 - POWER, bound))
    # The routine gives up far out; there the sum of the two quantiles is close enough.
    return exact if math.isfinite(exact) and exact > 0 else bound + float(stdtrit(freedom, POWER))
