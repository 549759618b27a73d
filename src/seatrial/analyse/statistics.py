"""Statistics of runs and of step times: medians, means with intervals on logs, and tests for trends and levels.

In: plain values, at least one, none of them NaN. Out: medians and percentiles (bit for bit numpy's, in a fifth of the time: a run needs
thirty, a campaign has a thousand runs); `Estimate`, a geometric mean with its t interval; ratios and `Difference`s by Welch or by pairs,
with p-values, Holm's correction, a bootstrap and the smallest detectable difference; Mann-Kendall, Mann-Whitney and Theil-Sen for series.

Times and rates are positive and their noise is proportional, so means and t intervals are computed on logs, where a ratio is a difference.
Below two values there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from seatrial.records.measure import CONFIDENCE, Estimate

Floats = npt.NDArray[np.float64]
MAD_TO_SIGMA = 1.4826
"""Standard deviation of normal values over their median absolute deviation."""
MEDIAN_TO_MEAN_ERROR = 1.2533
"""A median's standard error over the mean's, for normal noise."""
BOOTSTRAP_RESAMPLES = 2000
# Fixed, so that the same runs give the same text every time.
BOOTSTRAP_SEED = 7
BOOTSTRAP_PERCENTILES = (2.5, 97.5)
# One command rarely has more different sizes, and each holds BOOTSTRAP_RESAMPLES rows.
SIZES_KEPT = 16
POWER = 0.8
# More repeats are not practical: another way of measuring is needed.
MAX_REPEATS = 1000
ALPHA = 1 - CONFIDENCE
LARGEST_EXACT = 8
MAX_SLOPE_POINTS = 200
"""Twenty thousand pairs take half a millisecond."""
MIN_FOR_INTERVAL = 6
"""With fewer points the interval would be wider than the slopes of all pairs."""
NORMAL_95 = 1.959964
MAX_SHARE = 0.98
"""A series with an autocorrelation of 1 has no noise of its own; no interval would be valid."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of two means on logs, B's minus A's."""

    mean: float
    error: float
    """The standard error of `mean`."""
    freedom: float
    n: int
    """The number of pairs, or of runs of the smaller group."""
    paired: bool
    spread: float
    """Standard deviation that one repeat of both adds: the error of n repeats is this over the root of n."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """The direction of a series: `sign` is -1 for falling, 1 for rising, 0 for neither; `p_value` is two-sided."""

    sign: int
    p_value: float


@dataclass(frozen=True, kw_only=True)
class Slope:
    """A slope in values per unit of time."""

    value: float
    low: float | None = None
    high: float | None = None
    """95 % interval; None below six points."""
    n: int


def median(values: Floats) -> float:
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    ordered = np.partition(values, (half - 1, half))
    return float((ordered[half - 1] + ordered[half]) / 2)


def row_medians(table: Floats) -> Floats:
    ordered, half = np.sort(table, axis=1), table.shape[1] // 2
    return ordered[:, half].copy() if table.shape[1] % 2 else np.asarray((ordered[:, half - 1] + ordered[:, half]) / 2)


def level_and_width(values: Floats) -> tuple[float, float]:
    """The median and the robust standard deviation."""
    level = median(values)
    return level, median(np.abs(values - level)) * MAD_TO_SIGMA


def mid_ranks(values: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Ranks from 1, equal values with their mean rank; and the number of equal values, by distinct value."""
    _, index, ties = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(ties) - (ties - 1) / 2)[index], ties


def percentiles(values: Floats, percents: Sequence[float]) -> list[float]:
    positions = [(len(values) - 1) * (percent / 100) for percent in percents]
    lows = [math.floor(position) for position in positions]
    highs = [min(low + 1, len(values) - 1) for low in lows]
    ordered = np.partition(values, sorted({*lows, *highs}))
    return [_between(float(ordered[low]), float(ordered[high]), at - low) for low, high, at in zip(lows, highs, positions, strict=True)]


def _between(low: float, high: float, share: float) -> float:
    # From the nearer end, as numpy does: the last bit depends on it.
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """The geometric mean with its interval; None where no value is positive and finite."""
    logs = [math.log(value) for value in values if value is not None and math.isfinite(value) and value > 0]
    if not logs:
        return None
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Estimate(mean=math.exp(mean), n=1)
    half = t_quantile(len(logs) - 1) * _standard_error(logs, mean)
    return Estimate(mean=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), n=len(logs))


def ratio_of(over: Estimate, under: Estimate) -> Estimate:
    """The ratio of two groups, with Welch's interval where both have one."""
    difference = math.log(over.mean) - math.log(under.mean)
    n, counts = min(over.n, under.n), [over.n, under.n]
    variances = [error**2 for error in map(standard_error, (over, under)) if error is not None]
    if len(variances) < 2:
        return Estimate(mean=math.exp(difference), n=n)
    half = t_quantile(_welch_dof(variances, counts)) * math.sqrt(sum(variances))
    return Estimate(mean=math.exp(difference), low=math.exp(difference - half), high=math.exp(difference + half), n=n)


def contains_one(interval: Estimate) -> bool | None:
    """Whether the interval of a ratio includes 1; None without an interval."""
    if interval.low is None or interval.high is None:
        return None
    return interval.low <= 1.0 <= interval.high


def standard_error(value: Estimate) -> float | None:
    """Standard error of the mean on logs, from the interval; None without an interval."""
    if value.low is None or value.high is None or value.n < 2:
        return None
    return (math.log(value.high) - math.log(value.low)) / 2 / t_quantile(value.n - 1)


def paired_difference(logs_a: Sequence[float], logs_b: Sequence[float]) -> Difference | None:
    """The difference by pairs; None below two pairs."""
    pairs = [b - a for a, b in zip(logs_a, logs_b, strict=True)]
    if len(pairs) < 2:
        return None
    mean = math.fsum(pairs) / len(pairs)
    error = _standard_error(pairs, mean)
    return Difference(mean=mean, error=error, freedom=len(pairs) - 1, n=len(pairs), paired=True, spread=error * math.sqrt(len(pairs)))


def welch_difference(logs_a: Sequence[float], logs_b: Sequence[float]) -> Difference | None:
    """The difference of independent runs; None below two of either."""
    if min(len(logs_a), len(logs_b)) < 2:
        return None
    means = [math.fsum(logs) / len(logs) for logs in (logs_a, logs_b)]
    counts = [len(logs_a), len(logs_b)]
    variances = [_standard_error(logs, mean) ** 2 for logs, mean in zip((logs_a, logs_b), means, strict=True)]
    spread = math.sqrt(sum(variance * count for variance, count in zip(variances, counts, strict=True)))
    return Difference(
        mean=means[1] - means[0],
        error=math.sqrt(sum(variances)),
        freedom=_welch_dof(variances, counts),
        n=min(counts),
        paired=False,
        spread=spread,
    )


def ratio_interval(difference: Difference, confidence: float = CONFIDENCE) -> Estimate:
    """The ratio B over A with its interval."""
    half = t_quantile(difference.freedom, confidence) * difference.error
    low, high = difference.mean - half, difference.mean + half
    return Estimate(mean=math.exp(difference.mean), low=math.exp(low), high=math.exp(high), n=difference.n)


def p_value(difference: Difference) -> float:
    """The two-sided p-value."""
    if difference.error == 0:
        return 1.0 if difference.mean == 0 else 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(difference.freedom, -abs(difference.mean) / difference.error))


def _standard_error(logs: Sequence[float], mean: float) -> float:
    variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    return math.sqrt(variance / len(logs))


def _welch_dof(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Welch's degrees of freedom, at most `_max_dof`; `variances` are those of the two means."""
    total = sum(variances)
    if total == 0:
        return _max_dof(counts)
    # Shares, not squares of tiny variances: those can be too small for a float.
    welch = 1 / sum((variance / total) ** 2 / (count - 1) for variance, count in zip(variances, counts, strict=True))
    return min(welch, _max_dof(counts))


def _max_dof(counts: Sequence[int]) -> float:
    """The upper bound of Welch's degrees of freedom. Where two runs agree by chance, error and degrees come from the other ten, and one
    equal pair in ten would be significant. This bound does not affect equal counts and restores one in twenty (tested up to 2 and 30)."""
    smaller, larger = min(counts), max(counts)
    return (smaller - 1) * (1 + math.sqrt(smaller / larger))


@cache
def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Student's t with (1 - confidence) / 2 above it."""
    # Imported here: it takes a sixth of a second in every worker, and most runs do not need it.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def bootstrap_ratio(logs_a: Sequence[float], logs_b: Sequence[float], *, paired: bool) -> tuple[float, float] | None:
    """Both ends of the bootstrap interval of the ratio; None below two runs of either."""
    if min(len(logs_a), len(logs_b)) < 2:
        return None
    a, b = np.asarray(logs_a), np.asarray(logs_b)
    means_a = a[_resampled_indices(len(a), 0)].mean(axis=1)
    means_b = b[_resampled_indices(len(b), 0 if paired else 1)].mean(axis=1)
    low, high = np.exp(np.percentile(means_b - means_a, BOOTSTRAP_PERCENTILES))
    return float(low), float(high)


@lru_cache(maxsize=SIZES_KEPT)
def _resampled_indices(size: int, stream: int) -> npt.NDArray[np.int64]:
    """The runs that each resample takes; the same for both runs of a pair, so that pairs stay together."""
    return np.random.default_rng((BOOTSTRAP_SEED, stream, size)).integers(0, size, size=(BOOTSTRAP_RESAMPLES, size))


def detectable_pct(difference: Difference, confidence: float = CONFIDENCE) -> float:
    """The smallest difference, in percent, that these runs would detect four times in five."""
    return math.expm1(min(_detectable_shift(difference.freedom, confidence) * difference.error, 700.0)) * 100


def repeats_needed(difference: Difference, wanted_log: float, confidence: float = CONFIDENCE) -> int | None:
    """Repeats of each that would detect a difference of `wanted_log` on logs four times in five; None above MAX_REPEATS."""
    low, high = 2, MAX_REPEATS
    if wanted_log <= 0 or not _would_show(difference, high, wanted_log, confidence):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _would_show(difference, middle, wanted_log, confidence) else (middle + 1, high)
    return low


def _would_show(difference: Difference, repeats: int, wanted_log: float, confidence: float) -> bool:
    """Whether so many repeats would detect the difference; the degrees of freedom are assumed to grow with the repeats."""
    freedom = difference.freedom / max(difference.n - 1, 1) * (repeats - 1)
    return _detectable_shift(freedom, confidence) * difference.spread / math.sqrt(repeats) <= wanted_log


def _detectable_shift(freedom: float, confidence: float) -> float:
    """The distance of two means, in standard errors, that is detected with POWER: the non-central t with 1 - POWER below it."""
    from scipy.special import nctdtrinc, stdtrit

    bound = t_quantile(freedom, confidence)
    exact = float(nctdtrinc(freedom, 1 - POWER, bound))
    # The routine fails in the far tail, where the sum of the two quantiles is close enough.
    return exact if math.isfinite(exact) and exact > 0 else bound + float(stdtrit(freedom, POWER))


def holm_correction(p_values: Sequence[float | None], family: int) -> tuple[list[int], list[float | None]]:
    """The divisor of alpha for each, and the corrected p-values. It steps down from the smallest p until one is not significant; the rest
    are compared with that step's alpha."""
    order = sorted((p, at) for at, p in enumerate(p_values) if p is not None)
    levels = [family] * len(p_values)
    corrected: list[float | None] = [None] * len(p_values)
    divisor, largest, stopped = family, 0.0, False
    for step, (p, at) in enumerate(order):
        if not stopped:
            divisor = max(family - step, 1)
            stopped = p > ALPHA / divisor
        largest = max(largest, min(1.0, p * max(family - step, 1)))
        levels[at], corrected[at] = divisor, largest
    return levels, corrected


def mann_kendall(values: Floats) -> Trend:
    """The Mann-Kendall trend. It compares every pair, so thin out thousands of values first."""
    # Every two values in both orders: a falling pair rises in the other order.
    rises = values > values[:, None]
    rising = int(np.count_nonzero(rises & _later(len(values))))
    score = rising - (int(np.count_nonzero(rises)) - rising)
    if score == 0:
        return Trend(sign=0, p_value=1.0)
    widths = (abs(score) - 1) / math.sqrt(_kendall_variance(values))
    return Trend(sign=1 if score > 0 else -1, p_value=math.erfc(widths / math.sqrt(2)))


@lru_cache(maxsize=4)
def _later(count: int) -> npt.NDArray[np.bool_]:
    """Pairs whose second value comes later, as a table; cached, since runs of one length need the same."""
    return np.triu(np.ones((count, count), dtype=np.bool_), 1)


def _kendall_variance(values: Floats) -> float:
    """Variance of the number of rising minus falling pairs in random order, corrected for ties."""
    _, ties = np.unique(values, return_counts=True)
    return (_pairs_spread(np.array([len(values)])) - _pairs_spread(ties)) / 18


def _pairs_spread(counts: npt.NDArray[np.int64]) -> float:
    return float((counts * (counts - 1) * (2 * counts + 5)).sum())


def mann_whitney_p(some: Floats, others: Floats) -> float:
    """The two-sided p-value of the Mann-Whitney test; 1 where all values are the same."""
    ranks, ties = mid_ranks(np.concatenate([some, others]))
    wins = float(ranks[: len(some)].sum()) - len(some) * (len(some) + 1) / 2
    larger = max(wins, len(some) * len(others) - wins)
    if min(len(some), len(others)) <= LARGEST_EXACT and ties.max() == 1:
        return min(1.0, 2 * _exact_p(round(larger), len(some), len(others)))
    return _normal_p(larger, len(some), len(others), ties)


def _exact_p(wins: int, num_some: int, num_others: int) -> float:
    """Share of all orders with so many wins or more, counted by the factors of the Gaussian binomial."""
    counts = np.zeros(num_some * num_others + 1)
    counts[0] = 1.0
    for factor in range(1, min(num_some, num_others) + 1):
        above = max(num_some, num_others) + factor
        counts[above:] -= counts[: len(counts) - above].copy()
        for first in range(factor):
            counts[first::factor] = np.cumsum(counts[first::factor])
    return float(counts[wins:].sum() / counts.sum())


def _normal_p(wins: float, num_some: int, num_others: int, ties: npt.NDArray[np.int64]) -> float:
    count = num_some + num_others
    spread = num_some * num_others / 12 * (count + 1 - float((ties**3 - ties).sum()) / (count * (count - 1)))
    if spread <= 0:
        return 1.0
    widths = (wins - num_some * num_others / 2 - 0.5) / math.sqrt(spread)
    return min(1.0, math.erfc(widths / math.sqrt(2)))


def theil_sen(at: Floats, values: Floats) -> Slope | None:
    """The Theil-Sen slope of `values` over `at`; None where no two times differ."""
    count = len(values)
    at, values = batch_series(at, values, MAX_SLOPE_POINTS)
    slopes = pair_slopes(at, values)
    if len(slopes) == 0:
        return None
    value = median(slopes)
    if len(values) < MIN_FOR_INTERVAL:
        return Slope(value=value, n=count)
    spread = _kendall_variance(values) * _autocorrelation_factor(values - value * at)
    low, high = _sen_interval(slopes, math.sqrt(spread))
    return Slope(value=value, low=low, high=high, n=count)


def pair_slopes(at: Floats, values: Floats) -> Floats:
    """Slopes of all pairs of points at different times."""
    first, second = _pair_indices(len(values))
    gaps = at[second] - at[first]
    if len(gaps) and gaps.min() > 0:
        return np.asarray((values[second] - values[first]) / gaps)
    differ = gaps != 0
    return np.asarray((values[second] - values[first])[differ] / gaps[differ])


@lru_cache(maxsize=32)
def _pair_indices(count: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices of the first and the second of every pair; cached, as runs of one length need the same."""
    first, second = np.triu_indices(count, 1)
    return first, second


def batch_series(at: Floats, values: Floats, most: int) -> tuple[Floats, Floats]:
    """At most `most` points: medians of equally many values, at their mean times. The remainder at the front is left out."""
    size = -(-len(values) // most)
    if size <= 1:
        return at, values
    over = len(values) % size
    return at[over:].reshape(-1, size).mean(axis=1), row_medians(values[over:].reshape(-1, size))


def _autocorrelation_factor(residuals: Floats) -> float:
    """Variance relative to that of independent values; never below 1."""
    if np.ptp(residuals) == 0:
        return 1.0
    shares = rank_autocorrelation(residuals)
    # Far lags are noise: near lags count, or an exponential decay from the first, whichever is larger.
    ends = np.flatnonzero(shares <= 1 / math.sqrt(len(residuals)))
    near = shares[: int(ends[0])] if len(ends) else shares
    if len(near) == 0:
        return 1.0
    faded = np.power(min(float(near[0]), MAX_SHARE), np.arange(1.0, len(residuals) - 2), dtype=np.float64)
    return max(_variance_factor(near, len(residuals)), _variance_factor(faded, len(residuals)))


def rank_autocorrelation(residuals: Floats) -> Floats:
    """Autocorrelation of the ranks, from lag 1 to half of the series."""
    count = len(residuals)
    ranks = np.argsort(np.argsort(residuals, kind="stable"), kind="stable") - (count - 1) / 2
    # The Fourier transform gives all lags for the price of one.
    lags = np.fft.irfft(np.abs(np.fft.rfft(ranks, 2 * count)) ** 2)
    shares = lags[1 : count // 2] / lags[0]
    # Detrending removes some autocorrelation: the estimate is too low by about this.
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
