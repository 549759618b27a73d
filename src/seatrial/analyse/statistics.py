"""Statistics of runs and of step times: medians, means with intervals on logs, and tests for trends and levels.

In: plain values, at least one and none of them NaN. Out: medians and percentiles (bit for bit numpy's, in a fifth of its time: thirty calls
a run, a thousand runs a campaign); `Estimate`, a geometric mean with its t interval; ratios and `Difference`s by Welch or by pairs, with
p-values, Holm's correction, a bootstrap and the smallest detectable difference; Mann-Kendall, Mann-Whitney and Theil-Sen for series.

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
# More than this many different sizes in one command is rare, and each holds BOOTSTRAP_RESAMPLES rows.
SIZES_KEPT = 16
POWER = 0.8
# Beyond this nobody repeats; another way of measuring is needed.
MAX_REPEATS = 1000
ALPHA = 1 - CONFIDENCE
LARGEST_EXACT = 8
MAX_SLOPE_POINTS = 200
"""Twenty thousand pairs: half a millisecond."""
MIN_FOR_INTERVAL = 6
"""With fewer points the interval would be wider than the slopes of all pairs."""
NORMAL_95 = 1.959964
MAX_SHARE = 0.98
"""An autocorrelation of 1 is a series without noise of its own; no interval would hold."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of two means on logs: B's minus A's."""

    mean: float
    error: float
    """Its standard error."""
    freedom: float
    n: int
    """Pairs, or runs of the smaller group."""
    paired: bool
    spread: float
    """Standard deviation that one repeat of both adds: the error of n repeats is this over the root of n."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """`sign` is -1 for falling, 1 for rising, 0 for neither; `p_value` is two-sided."""

    sign: int
    p_value: float


@dataclass(frozen=True, kw_only=True)
class Slope:
    """Values per unit of time."""

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
    """The median, and the robust standard deviation."""
    level = median(values)
    return level, median(np.abs(values - level)) * MAD_TO_SIGMA


def mid_ranks(values: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Ranks from 1, the mean one for equal values; and how many values are equal, by distinct value."""
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(ties) - (ties - 1) / 2)[place], ties


def percentiles(values: Floats, percents: Sequence[float]) -> list[float]:
    places = [(len(values) - 1) * (percent / 100) for percent in percents]
    lows = [math.floor(place) for place in places]
    highs = [min(low + 1, len(values) - 1) for low in lows]
    ordered = np.partition(values, sorted({*lows, *highs}))
    return [_between(float(ordered[low]), float(ordered[high]), at - low) for low, high, at in zip(lows, highs, places, strict=True)]


def _between(low: float, high: float, share: float) -> float:
    # From the nearer side, as numpy does: the last bit depends on it.
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Geometric mean and its interval; None where no value is positive and finite."""
    logs = [math.log(value) for value in values if value is not None and math.isfinite(value) and value > 0]
    if not logs:
        return None
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Estimate(mean=math.exp(mean), n=1)
    half = t_quantile(len(logs) - 1) * _standard_error(logs, mean)
    return Estimate(mean=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), n=len(logs))


def ratio_of(over: Estimate, under: Estimate) -> Estimate:
    """One group over another, with Welch's interval where both have one."""
    difference = math.log(over.mean) - math.log(under.mean)
    n, counts = min(over.n, under.n), [over.n, under.n]
    variances = [error**2 for error in map(standard_error, (over, under)) if error is not None]
    if len(variances) < 2:
        return Estimate(mean=math.exp(difference), n=n)
    half = t_quantile(_welch_dof(variances, counts)) * math.sqrt(sum(variances))
    return Estimate(mean=math.exp(difference), low=math.exp(difference - half), high=math.exp(difference + half), n=n)


def contains_one(interval: Estimate) -> bool | None:
    """Whether the interval of a ratio includes 1; None where it has none."""
    if interval.low is None or interval.high is None:
        return None
    return interval.low <= 1.0 <= interval.high


def standard_error(value: Estimate) -> float | None:
    """Standard error of the mean on logs, from the interval; None where there is none."""
    if value.low is None or value.high is None or value.n < 2:
        return None
    return (math.log(value.high) - math.log(value.low)) / 2 / t_quantile(value.n - 1)


def paired_difference(logs_a: Sequence[float], logs_b: Sequence[float]) -> Difference | None:
    """None below two pairs."""
    pairs = [b - a for a, b in zip(logs_a, logs_b, strict=True)]
    if len(pairs) < 2:
        return None
    mean = math.fsum(pairs) / len(pairs)
    error = _standard_error(pairs, mean)
    return Difference(mean=mean, error=error, freedom=len(pairs) - 1, n=len(pairs), paired=True, spread=error * math.sqrt(len(pairs)))


def welch_difference(logs_a: Sequence[float], logs_b: Sequence[float]) -> Difference | None:
    """Of independent runs; None below two of either."""
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
    """Two-sided."""
    if difference.error == 0:
        return 1.0 if difference.mean == 0 else 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(difference.freedom, -abs(difference.mean) / difference.error))


def _standard_error(logs: Sequence[float], mean: float) -> float:
    variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    return math.sqrt(variance / len(logs))


def _welch_dof(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Welch's degrees of freedom, at most `_most_dof`; `variances` are those of the two means."""
    total = sum(variances)
    if total == 0:
        return _most_dof(counts)
    # Shares, not squares of tiny variances: those can be too small for a float.
    welch = 1 / sum((variance / total) ** 2 / (count - 1) for variance, count in zip(variances, counts, strict=True))
    return min(welch, _most_dof(counts))


def _most_dof(counts: Sequence[int]) -> float:
    """Two runs against ten: when the two agree by luck, the error and Welch's degrees come from the ten, and one pair of equals in ten
    would be called different. This bound leaves equal counts alone and restores one in twenty for others (tested up to 2 against 30)."""
    smaller, larger = min(counts), max(counts)
    return (smaller - 1) * (1 + math.sqrt(smaller / larger))


@cache
def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Student's t that leaves (1 - confidence) / 2 above it."""
    # A sixth of a second to import, in every worker; most runs need none of it.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def bootstrap_ratio(logs_a: Sequence[float], logs_b: Sequence[float], *, paired: bool) -> tuple[float, float] | None:
    """Low and high end; None below two runs of either."""
    if min(len(logs_a), len(logs_b)) < 2:
        return None
    a, b = np.asarray(logs_a), np.asarray(logs_b)
    means_a = a[_resampled_indices(len(a), 0)].mean(axis=1)
    means_b = b[_resampled_indices(len(b), 0 if paired else 1)].mean(axis=1)
    low, high = np.exp(np.percentile(means_b - means_a, BOOTSTRAP_PERCENTILES))
    return float(low), float(high)


@lru_cache(maxsize=SIZES_KEPT)
def _resampled_indices(size: int, stream: int) -> npt.NDArray[np.int64]:
    """Which runs each resample takes; the same for both runs of a pair, so that pairs stay together."""
    return np.random.default_rng((BOOTSTRAP_SEED, stream, size)).integers(0, size, size=(BOOTSTRAP_RESAMPLES, size))


def detectable_pct(difference: Difference, confidence: float = CONFIDENCE) -> float:
    """The smallest difference, in per cent, that these runs would have shown four times in five."""
    return math.expm1(min(_detectable_shift(difference.freedom, confidence) * difference.error, 700.0)) * 100


def repeats_needed(difference: Difference, wanted_log: float, confidence: float = CONFIDENCE) -> int | None:
    """Repeats of each at which a difference of `wanted_log` on logs would show four times in five; None where MAX_REPEATS fall short."""
    low, high = 2, MAX_REPEATS
    if wanted_log <= 0 or not _would_show(difference, high, wanted_log, confidence):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _would_show(difference, middle, wanted_log, confidence) else (middle + 1, high)
    return low


def _would_show(difference: Difference, repeats: int, wanted_log: float, confidence: float) -> bool:
    """The degrees of freedom are taken to grow as the repeats do."""
    freedom = difference.freedom / max(difference.n - 1, 1) * (repeats - 1)
    return _detectable_shift(freedom, confidence) * difference.spread / math.sqrt(repeats) <= wanted_log


def _detectable_shift(freedom: float, confidence: float) -> float:
    """How many standard errors apart two means must be to show with POWER: the non-central t that leaves 1 - POWER below."""
    from scipy.special import nctdtrinc, stdtrit

    bound = t_quantile(freedom, confidence)
    exact = float(nctdtrinc(freedom, 1 - POWER, bound))
    # The routine gives up far out; there the sum of the two quantiles is close enough.
    return exact if math.isfinite(exact) and exact > 0 else bound + float(stdtrit(freedom, POWER))


def holm_correction(p_values: Sequence[float | None], family: int) -> tuple[list[int], list[float | None]]:
    """By how much alpha is divided for each, and the corrected p-values. Steps down from the smallest p until one is not significant; the
    rest are compared with that step's alpha."""
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
    """Every pair is compared, so thin out thousands of values before."""
    # Of every two values, in both orders: a pair that falls rises the other way round.
    rises = values > values[:, None]
    rising = int(np.count_nonzero(rises & _later(len(values))))
    score = rising - (int(np.count_nonzero(rises)) - rising)
    if score == 0:
        return Trend(sign=0, p_value=1.0)
    widths = (abs(score) - 1) / math.sqrt(_kendall_variance(values))
    return Trend(sign=1 if score > 0 else -1, p_value=math.erfc(widths / math.sqrt(2)))


@lru_cache(maxsize=4)
def _later(count: int) -> npt.NDArray[np.bool_]:
    """Row and column of every pair whose second value comes later; cached, as runs of one length need the same."""
    return np.triu(np.ones((count, count), dtype=np.bool_), 1)


def _kendall_variance(values: Floats) -> float:
    """Of the number of rising minus falling pairs in random order, corrected for ties."""
    _, ties = np.unique(values, return_counts=True)
    return (_pairs_spread(np.array([len(values)])) - _pairs_spread(ties)) / 18


def _pairs_spread(counts: npt.NDArray[np.int64]) -> float:
    return float((counts * (counts - 1) * (2 * counts + 5)).sum())


def mann_whitney_p(some: Floats, others: Floats) -> float:
    """Two-sided; 1 where all values are the same."""
    ranks, ties = mid_ranks(np.concatenate([some, others]))
    wins = float(ranks[: len(some)].sum()) - len(some) * (len(some) + 1) / 2
    larger = max(wins, len(some) * len(others) - wins)
    if min(len(some), len(others)) <= LARGEST_EXACT and ties.max() == 1:
        return min(1.0, 2 * _exact_p(round(larger), len(some), len(others)))
    return _normal_p(larger, len(some), len(others), ties)


def _exact_p(wins: int, num_some: int, num_others: int) -> float:
    """Share of all orders that have so many wins or more, counted by the factors of the Gaussian binomial."""
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
    """The slope of `values` over `at`; None where no two times differ."""
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
    """Of every pair of points at different times."""
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
    """At most `most` points: medians of equally many values, at their mean times. The remainder, at the front, is left out."""
    size = -(-len(values) // most)
    if size <= 1:
        return at, values
    over = len(values) % size
    return at[over:].reshape(-1, size).mean(axis=1), row_medians(values[over:].reshape(-1, size))


def _autocorrelation_factor(residuals: Floats) -> float:
    """Variance over that of independent values; never below 1."""
    if np.ptp(residuals) == 0:
        return 1.0
    shares = rank_autocorrelation(residuals)
    # Far lags are noise: the near ones count, or an exponential decay from the first, whichever is more.
    ends = np.flatnonzero(shares <= 1 / math.sqrt(len(residuals)))
    near = shares[: int(ends[0])] if len(ends) else shares
    if len(near) == 0:
        return 1.0
    faded = np.power(min(float(near[0]), MAX_SHARE), np.arange(1.0, len(residuals) - 2), dtype=np.float64)
    return max(_variance_factor(near, len(residuals)), _variance_factor(faded, len(residuals)))


def rank_autocorrelation(residuals: Floats) -> Floats:
    """From lag 1 to half of the series."""
    count = len(residuals)
    ranks = np.argsort(np.argsort(residuals, kind="stable"), kind="stable") - (count - 1) / 2
    # By the Fourier transform: all lags at the price of one.
    lags = np.fft.irfft(np.abs(np.fft.rfft(ranks, 2 * count)) ** 2)
    shares = lags[1 : count // 2] / lags[0]
    # Detrending removes some of the autocorrelation: the estimate is too low by about this.
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
