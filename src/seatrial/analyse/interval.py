"""Means with intervals, on logs.

In: positive values of single runs, or two estimates. Out: `Estimate` (geometric mean, 95 % interval by Student's t on logs),
the ratio of two groups with its Welch interval on logs, and a `Difference` of two sets of runs, paired or not, from which intervals of
any confidence and the chance of no difference follow.

Times and rates are positive and their noise is a share of them, so logs are where a mean and a t interval belong; and on logs a
ratio is a difference, the same read from either side. Below two values there is no interval: none is made up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from scipy.special import stdtr, stdtrit

from seatrial.records.measure import CONFIDENCE, Estimate


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of two means on logs: B's less A's."""

    mean: float
    error: float
    """Its standard error."""
    freedom: float
    n: int
    """Pairs, or runs of the smaller side."""
    paired: bool
    spread: float
    """Standard deviation that one repeat of both adds: the error of n repeats is this over the root of n."""


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


def paired_difference(logs_a: Sequence[float], logs_b: Sequence[float]) -> Difference | None:
    """Of runs that belong together one by one; None below two pairs."""
    apart = [b - a for a, b in zip(logs_a, logs_b, strict=True)]
    if len(apart) < 2:
        return None
    mean = math.fsum(apart) / len(apart)
    error = _standard_error(apart, mean)
    return Difference(mean=mean, error=error, freedom=len(apart) - 1, n=len(apart), paired=True, spread=error * math.sqrt(len(apart)))


def welch_difference(logs_a: Sequence[float], logs_b: Sequence[float]) -> Difference | None:
    """Of runs that have nothing to do with one another; None below two on either side."""
    if min(len(logs_a), len(logs_b)) < 2:
        return None
    means = [math.fsum(logs) / len(logs) for logs in (logs_a, logs_b)]
    counts = [len(logs_a), len(logs_b)]
    variances = [_standard_error(logs, mean) ** 2 for logs, mean in zip((logs_a, logs_b), means, strict=True)]
    spread = math.sqrt(sum(variance * count for variance, count in zip(variances, counts, strict=True)))
    return Difference(
        mean=means[1] - means[0],
        error=math.sqrt(sum(variances)),
        freedom=_freedom(variances, counts),
        n=min(counts),
        paired=False,
        spread=spread,
    )


def interval_of(difference: Difference, confidence: float = CONFIDENCE) -> Estimate:
    """The ratio B over A with its interval."""
    half = _quantile(difference.freedom, confidence) * difference.error
    low, high = difference.mean - half, difference.mean + half
    return Estimate(mean=math.exp(difference.mean), low=math.exp(low), high=math.exp(high), n=difference.n)


def chance_of(difference: Difference) -> float:
    """Two-sided p: how often no difference at all would look like this one or a larger."""
    if difference.error == 0:
        return 1.0 if difference.mean == 0 else 0.0
    return float(2 * stdtr(difference.freedom, -abs(difference.mean) / difference.error))


def _standard_error(logs: Sequence[float], mean: float) -> float:
    variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    return math.sqrt(variance / len(logs))


def _welch_half(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Half the width of the interval of the difference; `variances` are those of the two means."""
    return _quantile(_freedom(variances, counts)) * math.sqrt(sum(variances))


def _freedom(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Welch's degrees of freedom, held below what few runs beside many allow; `variances` are those of the two means."""
    total = sum(variances)
    if total == 0:
        return _most_freedom(counts)
    # Shares, not squares of tiny variances: those can be too small for a float.
    welch = 1 / sum((variance / total) ** 2 / (count - 1) for variance, count in zip(variances, counts, strict=True))
    return min(welch, _most_freedom(counts))


def _most_freedom(counts: Sequence[int]) -> float:
    """What Welch's degrees are held below. Two runs beside ten: when the two agree by luck, the error and Welch's degrees come from the
    ten, and one pair of equals in ten would be called different. This is no bound for equal counts, and holds one in twenty for others
    (tried up to 2 beside 30)."""
    smaller, larger = min(counts), max(counts)
    return (smaller - 1) * (1 + math.sqrt(smaller / larger))


@cache
def _quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Of Student's t."""
    return float(stdtrit(freedom, 0.5 + confidence / 2))
