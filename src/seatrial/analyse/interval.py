"""Means with intervals, on logs.

In: positive values of single runs, or two estimates. Out: `Estimate` (geometric mean, 95 % interval by Student's t on logs), and
the ratio of two groups with its Welch interval on logs.

Times and rates are positive and their noise is a share of them, so logs are where a mean and a t interval belong; and on logs a
ratio is a difference, the same read from either side. Below two values there is no interval: none is made up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache

from scipy.special import stdtrit

from seatrial.records.measure import Estimate

CONFIDENCE = 0.95


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Geometric mean and its interval; None where no value is positive and finite."""
    logs = [math.log(value) for value in values if value is not None and math.isfinite(value) and value > 0]
    if not logs:
        return None
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Estimate(mean=math.exp(mean), n=1)
    half = _quantile(len(logs) - 1) * _standard_error(logs, mean)
    return Estimate(mean=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), n=len(logs))


def ratio(over: Estimate, under: Estimate) -> Estimate:
    """One group over another, with Welch's interval where both have one."""
    difference = math.log(over.mean) - math.log(under.mean)
    n = min(over.n, under.n)
    errors = [standard_error(over), standard_error(under)]
    if None in errors:
        return Estimate(mean=math.exp(difference), n=n)
    variances = [error**2 for error in errors if error is not None]
    half = _welch_half(variances, [over.n, under.n])
    return Estimate(mean=math.exp(difference), low=math.exp(difference - half), high=math.exp(difference + half), n=n)


def contains_one(interval: Estimate) -> bool | None:
    """Whether a ratio cannot be told from 1; None where it has no interval."""
    if interval.low is None or interval.high is None:
        return None
    return interval.low <= 1.0 <= interval.high


def standard_error(value: Estimate) -> float | None:
    """Standard error of the mean on logs, from the interval; None where there is none."""
    if value.low is None or value.high is None or value.n < 2:
        return None
    return (math.log(value.high) - math.log(value.low)) / 2 / _quantile(value.n - 1)


def _standard_error(logs: Sequence[float], mean: float) -> float:
    variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    return math.sqrt(variance / len(logs))


def _welch_half(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Half the width of the interval of the difference; `variances` are those of the two means."""
    total = sum(variances)
    if total == 0:
        return 0.0
    # Shares, not squares of tiny variances: those can be too small for a float.
    freedom = 1 / sum((variance / total) ** 2 / (count - 1) for variance, count in zip(variances, counts, strict=True))
    return _quantile(freedom) * math.sqrt(total)


@cache
def _quantile(freedom: float) -> float:
    """Of Student's t."""
    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
