"""The slope of a noisy course, with its interval (Theil-Sen).

In: times and values, in order of time. Out: `Slope`: the median slope of all pairs, and Sen's 95 % interval: the pairs' slopes that lie
as far from the middle as Kendall's variance of their order allows. Single wild values move neither.

Kendall's variance is that of values independent of one another. Samples of memory are not: each is nearly the one before, and the plain
interval would be several times too narrow. So the variance is multiplied by what the autocorrelation of the ranks of the residuals
comes to (the factor of Hamed and Rao), over the first lags that are positive, and corrected for its bias in short courses.
The number of pairs goes with the square: longer courses are made medians of batches before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from seatrial.analyse.mann_kendall import kendall_variance
from seatrial.analyse.quantile import median, row_medians

Floats = npt.NDArray[np.float64]

MOST_POINTS = 200
"""Twenty thousand pairs: half a millisecond."""
LEAST_FOR_INTERVAL = 6
"""With fewer points the interval would be wider than the slopes of all pairs."""
NORMAL_95 = 1.959964
MOST_SHARE = 0.98
"""An autocorrelation of 1 is a course without noise of its own; no interval would hold."""


@dataclass(frozen=True, kw_only=True)
class Slope:
    """In the unit of the values by that of the times."""

    value: float
    low: float | None = None
    high: float | None = None
    """95 % interval; None below six points."""
    n: int
    """Points it is the slope of."""


def theil_sen(at: Floats, values: Floats) -> Slope | None:
    """The slope of `values` over `at`; None where no two times differ."""
    count = len(values)
    at, values = batched(at, values, MOST_POINTS)
    slopes = pair_slopes(at, values)
    if len(slopes) == 0:
        return None
    value = median(slopes)
    if len(values) < LEAST_FOR_INTERVAL:
        return Slope(value=value, n=count)
    spread = kendall_variance(values) * _autocorrelation_factor(values - value * at)
    low, high = _sen_interval(slopes, math.sqrt(spread))
    return Slope(value=value, low=low, high=high, n=count)


def pair_slopes(at: Floats, values: Floats) -> Floats:
    """Of every pair of points at different times."""
    first, second = _pairs(len(values))
    apart = at[second] - at[first]
    if len(apart) and apart.min() > 0:
        return np.asarray((values[second] - values[first]) / apart)
    differ = apart != 0
    return np.asarray((values[second] - values[first])[differ] / apart[differ])


@lru_cache(maxsize=32)
def _pairs(count: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Places of the first and the second of every pair; runs of one length ask for the same."""
    first, second = np.triu_indices(count, 1)
    return first, second


def batched(at: Floats, values: Floats, most: int) -> tuple[Floats, Floats]:
    """At most `most` points: medians of as many values each, at their mean times. What is over goes to the front and is left out."""
    size = -(-len(values) // most)
    if size <= 1:
        return at, values
    over = len(values) % size
    return at[over:].reshape(-1, size).mean(axis=1), row_medians(values[over:].reshape(-1, size))


def _autocorrelation_factor(residuals: Floats) -> float:
    """By how much the variance is larger than that of independent values; never below 1."""
    if np.ptp(residuals) == 0:
        return 1.0
    shares = _rank_autocorrelation(residuals)
    # Far lags are noise: the near ones count, or what the first alone would make of the rest, whichever is more.
    ends = np.flatnonzero(shares <= 1 / math.sqrt(len(residuals)))
    near = shares[: int(ends[0])] if len(ends) else shares
    if len(near) == 0:
        return 1.0
    faded = np.power(min(float(near[0]), MOST_SHARE), np.arange(1.0, len(residuals) - 2), dtype=np.float64)
    return max(_variance_factor(near, len(residuals)), _variance_factor(faded, len(residuals)))


def _rank_autocorrelation(residuals: Floats) -> Floats:
    """Of the ranks, from lag 1 to half of the course."""
    count = len(residuals)
    ranks = np.argsort(np.argsort(residuals, kind="stable"), kind="stable") - (count - 1) / 2
    # By the Fourier transform: all lags at the price of one.
    course = np.fft.irfft(np.abs(np.fft.rfft(ranks, 2 * count)) ** 2)
    shares = course[1 : count // 2] / course[0]
    # A line was taken out, and with it some of what lasts: the estimate is too low by about this.
    return np.asarray(shares * count / (count - np.arange(1, len(shares) + 1)) + (1 + 4 * max(float(shares[0]), 0.0)) / count)


def _variance_factor(shares: Floats, count: int) -> float:
    left = count - np.arange(1, len(shares) + 1)
    return 1 + 2 * float((left * (left - 1) * (left - 2) * shares).sum()) / (count * (count - 1) * (count - 2))


def _sen_interval(slopes: Floats, width: float) -> tuple[float, float]:
    reach, count = NORMAL_95 * width, len(slopes)
    lowest = max(0, math.floor((count - reach) / 2) - 1)
    highest = min(count - 1, math.ceil((count + reach) / 2))
    ordered = np.partition(slopes, (lowest, highest))
    return float(ordered[lowest]), float(ordered[highest])
