"""Where a run's steady state begins.

In: wall time of every step, in order (pauses already taken out). Out: `Steady`: how many leading steps are warm-up, and whether
what follows is steady.

The first steps of training are slow (allocation, autotuning, cold caches), sometimes by a hundred times, and throughput is a
mean: one of them left in falsifies the figure. The usual rule for simulations, MSER, minimises the standard error of what is
left. On step times it serves badly: where there is no warm-up it cuts anywhere, and one long pause late in the run makes it cut
everything before. So:

1. The level is the median of the second half, in medians of short batches: single slow steps do not move it.
2. Warm-up ends with the first three batches in a row that lie within the noise of that level, or within 2 % of it. Noise is
   what the second half shows.
3. A slow step hidden in the first batch by its median is cut too, one by one, while steps are far above the level.
4. Never more than half of the steps is cut: a run that has not settled by then is not steady, and says so.
5. What is left must have ten steps and must not drift: a robust slope (Theil-Sen over batch medians) that moves the step time by
   more than 10 % over the window, and that chance does not explain (Kendall), is a trend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Times = npt.NDArray[np.float64]

LEAST_STEPS = 10
"""A p90 of fewer steps is one step."""
LEVEL_TOLERANCE = 0.02
"""Within this share of the level a batch is taken as settled: smaller differences do not change a decision."""
NOISE_WIDTHS = 3.0
"""And so within this many robust standard deviations of batch medians."""
SETTLED_BATCHES = 3
FAR_WIDTHS = 5.0
FAR_SHARE = 0.25
"""A leading step this far above the level, by both measures, is still warm-up."""
TREND_LIMIT = 0.10
TREND_CHANCE = 0.01
TREND_BATCHES = 60
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, kw_only=True)
class Steady:
    """Warm-up of one run, in counted steps."""

    warmup: int
    steady: bool
    reason: str = ""


def find_steady(times_ms: Times) -> Steady:
    """Split a run into warm-up and the rest."""
    count = len(times_ms)
    if count < LEAST_STEPS:
        return Steady(warmup=min(1, count // 2), steady=False, reason=_too_few(count - min(1, count // 2)))
    warmup, settled = _settled(times_ms)
    warmup = _past_slow_steps(times_ms, warmup)
    if not settled:
        return Steady(warmup=warmup, steady=False, reason="the step time did not settle in the first half of the run; run more steps")
    if count - warmup < LEAST_STEPS:
        return Steady(warmup=warmup, steady=False, reason=_too_few(count - warmup))
    change = trend(times_ms[warmup:])
    if abs(change) > TREND_LIMIT:
        way = "rises" if change > 0 else "falls"
        return Steady(warmup=warmup, steady=False, reason=f"the step time still {way} by {abs(change):.0%} over the window; run more steps")
    return Steady(warmup=warmup, steady=True)


def trend(times_ms: Times) -> float:
    """Relative change of the step time from one end to the other; 0 where chance explains it."""
    batches = batch_medians(times_ms, max(1, len(times_ms) // TREND_BATCHES))
    level = float(np.median(batches))
    if len(batches) < LEAST_STEPS or level <= 0 or np.ptp(batches) == 0:
        return 0.0
    places = np.arange(len(batches))
    if not stats.kendalltau(places, batches).pvalue < TREND_CHANCE:
        return 0.0
    return float(stats.theilslopes(batches, places).slope) * (len(batches) - 1) / level


def batch_medians(times_ms: Times, size: int) -> Times:
    """Medians of consecutive batches; the last, shorter one is left out unless it is the only one."""
    whole = len(times_ms) // size * size
    if whole == 0:
        return np.array([np.median(times_ms)])
    return np.asarray(np.median(times_ms[:whole].reshape(-1, size), axis=1), dtype=np.float64)


def _settled(times_ms: Times) -> tuple[int, bool]:
    """Steps before the first batches in a row at the level of the second half, and whether there were any by the half."""
    size = _batch_size(len(times_ms))
    batches = batch_medians(times_ms, size)
    level, width = _level_and_width(batches[len(batches) // 2 :])
    inside = np.abs(batches - level) <= max(NOISE_WIDTHS * width, LEVEL_TOLERANCE * level)
    latest = len(batches) // 2
    for first in range(latest + 1):
        if inside[first : first + SETTLED_BATCHES].all():
            return first * size, True
    return latest * size, False


def _batch_size(count: int) -> int:
    """Five once there are enough batches to see the end of a warm-up; single steps in short runs."""
    return 5 if count >= 60 else 3 if count >= 30 else 1


def _past_slow_steps(times_ms: Times, warmup: int) -> int:
    level, width = _level_and_width(times_ms[len(times_ms) // 2 :])
    far = level + max(FAR_WIDTHS * width, FAR_SHARE * level)
    while warmup < len(times_ms) // 2 and times_ms[warmup] > far:
        warmup += 1
    return warmup


def _level_and_width(values: Times) -> tuple[float, float]:
    level = float(np.median(values))
    return level, float(np.median(np.abs(values - level))) * MAD_TO_SIGMA


def _too_few(count: int) -> str:
    return f"only {count} steps are left after warm-up and {LEAST_STEPS} are needed; run more steps"
