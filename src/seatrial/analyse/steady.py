"""Where a run's steady state begins.

In: wall time of every step, in order (pauses already taken out), and the steps' numbers. Out: `Steady`: how many leading steps are
warm-up, and whether what follows is steady.

The first steps of training are slow (allocation, autotuning, cold caches), sometimes by a hundred times, and throughput is a
mean: one of them left in falsifies the figure. The usual rule for simulations, MSER, minimises the standard error of what is
left. On step times it serves badly: where there is no warm-up it cuts anywhere, and one long pause late in the run makes it cut
everything before. So:

1. The level is the median of the second half, in medians of short batches: single slow steps do not move it.
2. Warm-up ends with the first three batches in a row that are not slower than that level by more than the noise, or by 2 %. Noise is
   what the second half shows. Batches that are faster are not warm-up: they are the run before it slowed down.
3. A slow step that a batch's median hides is cut too, with all before it, when it is far above the level and among the first steps.
4. Never more than half of the steps is cut: a run that has not settled by then is not steady, and says so.
5. What is left must have ten steps and must not drift: a robust slope (Theil-Sen over batch medians) that moves the step time by
   more than 10 % over the window, and that chance does not explain (Kendall), is a trend.
6. Nor may it change its level, which leaves a slope near 0: the first fifth or tenth must not be faster than the rest, nor the last
   one unlike it, by more than 10 % and more than chance explains (Mann-Whitney); nor the parts before and after the place where
   they differ most (Pettitt).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seatrial.analyse.mann_kendall import mann_kendall
from seatrial.analyse.mann_whitney import chance_of_one_level
from seatrial.analyse.quantile import MAD_TO_SIGMA, MEDIAN_TO_MEAN_ERROR, median, percentiles, row_medians
from seatrial.analyse.theil_sen import pair_slopes

Times = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

LEAST_STEPS = 10
"""A p90 of fewer steps is one step."""
LEVEL_TOLERANCE = 0.02
"""Within this share of the level a batch is taken as settled: smaller differences do not change a decision."""
NOISE_WIDTHS = 3.0
"""And so within this many robust standard deviations of batch medians."""
USUAL_BATCH_PERCENTILE = 90
"""Or no slower than all but the slowest batches of the second half."""
SETTLED_BATCHES = 3
FAR_WIDTHS = 5.0
FAR_SHARE = 0.25
"""A leading step this far above the level, by both measures, is still warm-up."""
LEAD_STEPS = 10
LEAD_SHARE = 0.05
"""Leading are this many steps or this share of the run, whichever is more: a lazy compile or a first full queue comes that early.
Later ones are part of how the job runs."""
USUAL_PERCENTILE = 95
"""Slow steps that make up this much of the second half are how the job runs."""
TREND_LIMIT = 0.10
"""Smaller changes of the step time leave the run steady: its mean is then within about 5 % of either end."""
TREND_CHANCE = 0.01
TREND_BATCHES = 60
"""Trends and levels are looked at in medians of at least this many batches: slow steps now and then do not count as either."""
LEVEL_CHANCE = 0.002
"""Stricter than a trend's: four ends are looked at, and with the trend they must call fewer than 2 in 100 plain noisy runs unsteady."""
PARTS_CHANCE = 0.005
"""By a formula that gives too high a chance in short runs, so that far fewer are called unsteady."""
END_SHARES = (0.2, 0.1)
"""How much of either end is compared with the rest. The tenth sees what is too short to move the fifth's median."""


@dataclass(frozen=True, kw_only=True)
class Steady:
    """Warm-up of one run, in counted steps."""

    warmup: int
    steady: bool
    reason: str = ""


def find_steady(times_ms: Times, numbers: Numbers | None = None) -> Steady:
    """Split a run into warm-up and the rest. `numbers` are the steps' own, for the reason; they count from 0 unless given."""
    count = len(times_ms)
    if count < LEAST_STEPS:
        return Steady(warmup=min(1, count // 2), steady=False, reason=_too_few(count - min(1, count // 2)))
    warmup, settled = _settled(times_ms)
    warmup = _past_slow_steps(times_ms, warmup)
    if not settled:
        return Steady(warmup=warmup, steady=False, reason="the step time did not settle in the first half of the run; run more steps")
    if count - warmup < LEAST_STEPS:
        return Steady(warmup=warmup, steady=False, reason=_too_few(count - warmup))
    reason = _change(times_ms[warmup:], (np.arange(count) if numbers is None else numbers)[warmup:])
    return Steady(warmup=warmup, steady=not reason, reason=reason)


def _change(times_ms: Times, numbers: Numbers) -> str:
    """How the step time changes over the window, and what to do; empty where it does not."""
    slope = trend(times_ms)
    drifts = abs(slope) > TREND_LIMIT
    if not drifts and not level_changes(times_ms):
        return ""
    place = change_point(times_ms)
    if drifts and not _is_sudden(times_ms, place, slope):
        return f"the step time still {'rises' if slope > 0 else 'falls'} by {abs(slope):.0%} over the window; run more steps"
    before, after = median(times_ms[:place]), median(times_ms[place:])
    way, advice = ("rose", "look for heat, another job or other data there") if after > before else ("fell", "run more steps")
    return (
        f"the step time {way} from {ms_text(before)} to {ms_text(after)} at about step {int(numbers[place])}: {advice}, "
        "or say in timing.window which steps count"
    )


def ms_text(value: float) -> str:
    """'0.4125 ms', '99.61 ms', '12345 ms': four figures tell levels apart, and a time is not to be read as a power of ten."""
    return f"{value:.0f} ms" if value >= 1000 else f"{value:.4g} ms"


def _is_sudden(times_ms: Times, place: int, slope: float) -> bool:
    """Whether two levels fit the steps better than a line does, by the sum of what either leaves over."""
    left, right = times_ms[:place], times_ms[place:]
    by_levels = np.abs(left - np.median(left)).sum() + np.abs(right - np.median(right)).sum()
    rest = times_ms - np.linspace(0, slope * median(times_ms), len(times_ms))
    return bool(by_levels < np.abs(rest - np.median(rest)).sum())


def trend(times_ms: Times) -> float:
    """Relative change of the step time from one end to the other; 0 where chance explains it."""
    batches = batch_medians(times_ms, max(1, len(times_ms) // TREND_BATCHES))
    level = median(batches)
    # A line that changes by the limit leaves batches at least a quarter of it apart: two steps of half of the pairs lie on it.
    if len(batches) < LEAST_STEPS or level <= 0 or np.ptp(batches) <= TREND_LIMIT / 4 * level:
        return 0.0
    if not mann_kendall(batches).chance < TREND_CHANCE:
        return 0.0
    slopes = pair_slopes(np.arange(len(batches), dtype=np.float64), batches)
    return median(slopes) * (len(batches) - 1) / level


def level_changes(times_ms: Times) -> bool:
    """Whether the start is faster than the rest, the end unlike it, or one part unlike the other, by more than chance explains.

    A start that is a little slower is what the cut of the warm-up has left, within the noise: no change.
    """
    batches = batch_medians(times_ms, max(1, len(times_ms) // TREND_BATCHES))
    if len(batches) < LEAST_STEPS or np.ptp(batches) <= TREND_LIMIT * np.min(batches):
        return False
    ends = [int(len(batches) * share) for share in END_SHARES]
    return _parts_differ(batches) or any(
        relative_shift(batches[:end], batches[end:]) < -TREND_LIMIT or abs(relative_shift(batches[-end:], batches[:-end])) > TREND_LIMIT
        for end in ends
    )


def _parts_differ(batches: Times) -> bool:
    """Pettitt's test: for changes near the middle, which neither end shows in a short run."""
    course, count = _rank_course(batches), len(batches)
    place = int(np.argmax(course)) + 1
    before, after = median(batches[:place]), median(batches[place:])
    chance = 2 * math.exp(-6 * (2 * float(course.max())) ** 2 / (count**3 + count**2))
    return chance < PARTS_CHANCE and abs(after - before) > TREND_LIMIT * before


def relative_shift(some: Times, others: Times) -> float:
    """Median of some over median of the others, less 1; 0 where chance explains it."""
    level = median(others)
    if level <= 0 or np.ptp(np.concatenate([some, others])) == 0:
        return 0.0
    shift = median(some) / level - 1
    if abs(shift) <= TREND_LIMIT:
        return shift
    return shift if chance_of_one_level(some, others) < LEVEL_CHANCE else 0.0


def change_point(times_ms: Times) -> int:
    """Where the steps before and after differ most in rank (the place of Pettitt's test); at least one step lies on either side."""
    return int(np.argmax(_rank_course(times_ms))) + 1


def _rank_course(values: Times) -> Times:
    """How far the ranks of the first one, two, three … values are from those of as many average ones, in sum."""
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    return np.asarray(np.abs(np.cumsum(ranks - ranks.mean())[:-1]), dtype=np.float64)


def batch_medians(times_ms: Times, size: int) -> Times:
    """Medians of consecutive batches; the last, shorter one is left out unless it is the only one."""
    whole = len(times_ms) // size * size
    if whole == 0:
        return np.array([np.median(times_ms)])
    return row_medians(times_ms[:whole].reshape(-1, size))


def _settled(times_ms: Times) -> tuple[int, bool]:
    """Steps before the first batches in a row that are not slower than the second half, and whether there were any by the half."""
    size = _batch_size(len(times_ms))
    batches = batch_medians(times_ms, size)
    latest = len(batches) // 2
    level, width = _level_and_width(batches[latest:])
    # In a short run the second half has few batches; what its steps let one expect of them keeps chance from making them look alike.
    width = max(width, _level_and_width(times_ms[len(times_ms) // 2 :])[1] * MEDIAN_TO_MEAN_ERROR / math.sqrt(size))
    # Where steps take one of two times, the width is next to nothing and batches of the slower kind are as usual as the others.
    usual = percentiles(batches[latest:], [USUAL_BATCH_PERCENTILE])[0]
    at_level = batches <= max(usual, level + max(NOISE_WIDTHS * width, LEVEL_TOLERANCE * level))
    for first in range(latest + 1):
        if at_level[first : first + SETTLED_BATCHES].all():
            return first * size, True
    return latest * size, False


def _batch_size(count: int) -> int:
    """Five once there are enough batches to see the end of a warm-up; single steps in short runs."""
    return 5 if count >= 60 else 3 if count >= 30 else 1


def _past_slow_steps(times_ms: Times, warmup: int) -> int:
    """The warm-up with the far too slow steps that follow it at once or come among the leading ones."""
    half = len(times_ms) // 2
    level, width = _level_and_width(times_ms[half:])
    far = level + max(FAR_WIDTHS * width, FAR_SHARE * level)
    # A job with slow steps as a matter of course has them among the first, too: those are not warm-up.
    usual = percentiles(times_ms[half:], [USUAL_PERCENTILE])[0] * (1 + FAR_SHARE)
    lead = min(half, max(LEAD_STEPS, int(len(times_ms) * LEAD_SHARE)))
    leading = np.flatnonzero(times_ms[:lead] > max(far, usual))
    warmup = max(warmup, int(leading[-1]) + 1) if len(leading) else warmup
    while warmup < half and times_ms[warmup] > far:
        warmup += 1
    return warmup


def _level_and_width(values: Times) -> tuple[float, float]:
    level = median(values)
    return level, median(np.abs(values - level)) * MAD_TO_SIGMA


def _too_few(count: int) -> str:
    return f"only {count} steps are left after warm-up and {LEAST_STEPS} are needed; run more steps"
