"""Which steps of a run count: where its steady state begins, and the wall-clock time and work of the steps after it.

In: the step table, the steps that held a pause, and the plan's window. Out: `CountedSteps`: the window, its time, its work and its step
times. Counted are steps that every timed rank has, after warm-up (or as the plan sets), except those that held a pause on any rank: the
others waited for it. A step takes as long as its slowest rank; so does the window. A row may hold several steps (`span`; its `step` is the
last of them): either all of them count or none. Also here: `Grid`, the steps of all ranks as ranks × steps, and `find_clock_jump`.

The first steps of training are slow (allocation, autotuning, cold caches), sometimes by a hundred times, and throughput is a mean: one of
them left in falsifies the figure. MSER, the usual rule for simulations, minimises the standard error of what is left. It fails on step
times: without warm-up it cuts anywhere, and one long pause late in the run makes it cut everything before. So:

1. The level is the median of the second half, in medians of short batches: single slow steps do not move it.
2. Warm-up ends before the first three consecutive batches that exceed that level by no more than the noise of the second half or 2 %, the
   larger. Faster batches are not warm-up: they are the run before it slowed down.
3. A slow step that a batch's median hides is cut too, with all before it, when it is far above the level and among the first steps.
4. Never more than half of the steps is cut: a run that has not settled by then is not steady.
5. What is left must have ten steps and no trend: a robust slope (Theil-Sen over batch medians) that changes the step time by more than 10 %
   over the window and is significant (Kendall).
6. Nor may its level change, which leaves a slope near 0: the first fifth or tenth must not be faster than the rest, nor the last one differ
   from it, by more than 10 % and significantly (Mann-Whitney); nor the parts before and after the change point (Pettitt).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.statistics import (
    MEDIAN_TO_MEAN_ERROR,
    level_and_width,
    mann_kendall,
    mann_whitney_p,
    median,
    mid_ranks,
    pair_slopes,
    percentiles,
    row_medians,
)
from seatrial.records.measure import Window

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
MIN_ROWS = 2
MIN_JUMP_S = 2.0
"""Smaller jumps are corrections by NTP, within a sampling interval."""
MIN_STEPS = 10
"""A p90 of fewer steps is one step."""
LEVEL_TOLERANCE = 0.02
"""A batch within this share of the level is settled: smaller differences change no decision."""
NOISE_WIDTHS = 3.0
"""A batch within this many robust standard deviations of batch medians is settled too."""
USUAL_BATCH_PERCENTILE = 90
"""And so is one no slower than this percentile of the second half's batches."""
SETTLED_BATCHES = 3
FAR_WIDTHS = 5.0
FAR_SHARE = 0.25
"""A leading step this far above the level, by both measures, is still warm-up."""
LEAD_STEPS = 10
LEAD_SHARE = 0.05
"""The leading steps are this many or this share of the run, whichever is more: a lazy compile or a first full queue comes that early.
Later ones belong to the job."""
USUAL_PERCENTILE = 95
"""Slow steps above this percentile of the second half belong to the job."""
TREND_LIMIT = 0.10
"""Smaller changes of the step time leave the run steady: its mean is then within about 5 % of either end."""
TREND_CHANCE = 0.01
TREND_BATCHES = 60
"""Trends and levels are computed from medians of at least this many batches, so that occasional slow steps are neither."""
LEVEL_CHANCE = 0.002
"""Stricter than for a trend: four ends are tested, and together with the trend fewer than 2 in 100 plain noisy runs may be unsteady."""
PARTS_CHANCE = 0.005
"""The formula's p-value is too high in short runs, so that far fewer of them are unsteady."""
END_SHARES = (0.2, 0.1)
"""Shares of either end that are compared with the rest: changes too short for the fifth's median show in the tenth."""


@dataclass(frozen=True, kw_only=True)
class CountedSteps:
    """The window and its raw figures. `window` is None where fewer than two rows are left."""

    window: Window | None
    rows: int
    """Rows in the window."""
    usable: int
    """Rows that could have been in it."""
    ranks: int
    """Ranks that were timed."""
    window_s: float = 0.0
    wall_ms: Floats
    """Step time of the slowest rank, by row."""
    last_steps: Ints
    """The last step of each row."""
    spans: Ints
    """The number of steps of each row."""
    samples: float | None = None
    """Work of the timed ranks in the window; None unless every row reports it."""
    tokens: float | None = None
    lost: dict[int, int] = field(default_factory=dict)
    """By rank, the number of steps missing between the first and the last step that all ranks have; only ranks with missing steps."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Step numbers and ranks in order, and where the rows belong."""

    numbers: Ints
    first_row: Indices
    """The first row of each number: the lowest rank's."""
    seen: Ints
    """The number of rows of each number."""
    step_index: Indices
    """The index of each row's number."""
    ranks: Ints
    rank: Indices
    """The index of each row's rank."""
    is_full: bool
    """Whether every rank has every number once."""

    def longest(self, times: Floats) -> Floats:
        """The longest time of each number's rows, none of which is below 0."""
        if self.is_full:
            return np.asarray(times.reshape(len(self.ranks), -1).max(axis=0), dtype=np.float64)
        found = np.zeros(len(self.numbers))
        np.maximum.at(found, self.step_index, times)
        return found


@dataclass(frozen=True, kw_only=True)
class ClockJump:
    """The largest jump of the wall clock seen by a rank."""

    step: int
    """The step before whose end it came."""
    jump_s: float
    """Positive where the clock was set forward."""


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """Warm-up of one run, in counted steps."""

    warmup: int
    steady: bool
    reason: str = ""


def count_steps(steps: pl.DataFrame, paused: pl.Series, window: str) -> CountedSteps:
    """The window of one run. `steps` is sorted by rank, then step."""
    known = is_time(steps["iter_ms"].to_numpy())
    timed = steps if known.all() else steps.filter(known)
    step, iter_ms, span, samples, tokens = (timed[name].to_numpy() for name in ("step", "iter_ms", "span", "samples", "tokens"))
    grid = find_grid(timed["rank"].to_numpy(), step)
    numbers, ranks, rank, wall_ms = grid.numbers, grid.ranks, grid.rank, grid.longest(iter_ms)
    common, spans = grid.seen == len(ranks), span[grid.first_row]
    usable = np.flatnonzero(common & ~is_among(numbers, paused.to_numpy()))
    chosen, found = _chosen(usable, numbers, spans, wall_ms, window)
    rows = CountedSteps(
        window=None,
        rows=len(chosen),
        usable=len(usable),
        ranks=len(ranks),
        wall_ms=wall_ms[chosen],
        last_steps=numbers[chosen],
        spans=spans[chosen],
        lost=_lost(numbers[common], ranks, rank, step, span),
    )
    if len(chosen) < MIN_ROWS:
        return rows
    is_chosen = np.zeros(len(numbers), dtype=np.bool_)
    is_chosen[chosen] = True
    kept = is_chosen[grid.step_index]
    return replace(
        rows,
        window=_window(numbers, spans, common, chosen, found, steps),
        window_s=float(np.bincount(rank[kept], weights=(iter_ms * span)[kept]).max()) / 1000,
        samples=_work(samples[kept], span[kept]),
        tokens=_work(tokens[kept], span[kept]),
    )


def _lost(common: Ints, ranks: Ints, rank: Indices, step: Ints, span: Ints) -> dict[int, int]:
    if len(common) == 0:
        return {}
    between = (step > common[0]) & (step <= common[-1])
    covered = np.bincount(rank[between], weights=span[between], minlength=len(ranks)).astype(np.int64)
    lacking = int(common[-1] - common[0]) - covered
    return {int(ranks[at]): int(lacking[at]) for at in np.flatnonzero(lacking > 0)}


def _chosen(usable: Indices, numbers: Ints, spans: Ints, wall_ms: Floats, window: str) -> tuple[Indices, SteadyState]:
    """The rows of the window: those wholly inside the plan's, else those after warm-up."""
    bounds = window_bounds(window)
    if bounds is not None:
        return usable[is_inside(numbers[usable], spans[usable], *bounds)], SteadyState(warmup=0, steady=True, reason="given by the plan")
    found = find_steady_state(wall_ms[usable], numbers[usable])
    return usable[found.warmup :], found


def is_time(iter_ms: Floats) -> Mask:
    """Which times are valid: one that is not finite or below 0 comes from a broken line."""
    return np.asarray((iter_ms >= 0) & (iter_ms < np.inf))


def is_inside(step: Ints, span: Ints, first_step: int, last_step: int) -> Mask:
    """Which rows cover only steps from `first_step` to `last_step`."""
    return np.asarray((step - span + 1 >= first_step) & (step <= last_step))


def window_bounds(window: str) -> tuple[int, int] | None:
    """First and last step of `FIRST:LAST`, either side open; None for `auto`."""
    first, colon, last = (part.strip() for part in window.partition(":"))
    if not colon:
        return None
    return int(first or 0), int(last) if last else 2**62


def _window(numbers: Ints, spans: Ints, common: Mask, chosen: Indices, found: SteadyState, steps: pl.DataFrame) -> Window:
    first, last = chosen[0], chosen[-1]
    first_step = int(numbers[first] - spans[first]) + 1
    inside = int(spans[first : last + 1][common[first : last + 1]].sum())
    counted = int(spans[chosen].sum())
    return Window(
        first_step=first_step,
        last_step=int(numbers[last]),
        n=counted,
        warmup_steps=_known_before(first_step, steps),
        excluded_steps=inside - counted,
        steady=found.steady,
        reason=found.reason,
    )


def _known_before(first_step: int, steps: pl.DataFrame) -> int:
    """Distinct steps before the window in the first rank's rows, timed or not: rows may overlap."""
    rank, step, span = (steps[name].to_numpy() for name in ("rank", "step", "span"))
    start, end = np.maximum(step - span + 1, 0), np.minimum(step, first_step - 1)
    own = np.flatnonzero((rank == rank[0]) & (start < first_step))
    own = own[np.argsort(start[own], kind="stable")]
    reached = np.concatenate([[-1], np.maximum.accumulate(end[own])])[:-1]
    return int(np.maximum(end[own] - np.maximum(reached, start[own] - 1), 0).sum())


def _work(values: Floats, span: Floats) -> float | None:
    done = float((values * span).sum())
    return done if np.isfinite(done) and done > 0 else None


def is_among(numbers: Ints, some: Ints) -> npt.NDArray[np.bool_]:
    """np.isin for sorted distinct numbers and a few others in any order, in a fifth of the time."""
    index = np.searchsorted(numbers, some)
    inside = index < len(numbers)
    index, some = index[inside], some[inside]
    found = np.zeros(len(numbers), dtype=np.bool_)
    found[index[numbers[index] == some]] = True
    return found


def find_grid(rank: Ints, step: Ints) -> Grid:
    """The grid of the rows."""
    return full_grid(rank, step) or any_grid(rank, step)


def full_grid(rank: Ints, step: Ints) -> Grid | None:
    """The grid if every rank has the same steps, each once; else None. It needs no sorting, hence a tenth of the time, which counts for a
    thousand ranks and for a thousand runs."""
    if len(rank) == 0:
        return None
    count = int(np.searchsorted(rank, rank[0], side="right"))
    if len(rank) % count:
        return None
    by_rank, by_step = rank.reshape(-1, count), step.reshape(-1, count)
    ranks, numbers = by_rank[:, 0], by_step[0]
    if (np.diff(ranks) <= 0).any() or (np.diff(numbers) <= 0).any() or (by_rank != ranks[:, None]).any() or (by_step != numbers).any():
        return None
    first_row = np.arange(count)
    return Grid(
        numbers=numbers,
        first_row=first_row,
        seen=np.full(count, len(ranks)),
        step_index=np.tile(first_row, len(ranks)),
        ranks=ranks,
        rank=np.repeat(np.arange(len(ranks)), count),
        is_full=True,
    )


def any_grid(rank: Ints, step: Ints) -> Grid:
    """The grid of any rows."""
    numbers, first_row, index, seen = np.unique(step, return_index=True, return_inverse=True, return_counts=True)
    ranks, row_rank = np.unique(rank, return_inverse=True)
    return Grid(numbers=numbers, first_row=first_row, seen=seen, step_index=index, ranks=ranks, rank=row_rank, is_full=False)


def find_clock_jump(steps: pl.DataFrame) -> ClockJump | None:
    """The jump of the wall clock against the monotonic one between two steps, if it is too large. Steps are timed on the monotonic clock,
    which cannot be set; but telemetry is matched with the steps by the wall clock."""
    rank, step, t, m = (steps[name].to_numpy() for name in ("rank", "step", "t", "m"))
    known = np.isfinite(t) & np.isfinite(m)
    if not known.all():
        rank, step, t, m = rank[known], step[known], t[known], m[known]
    # The monotonic clocks of two ranks have different origins.
    moved = np.where(np.diff(rank) == 0, np.diff(t - m), 0.0)
    if len(moved) == 0:
        return None
    at = int(np.argmax(np.abs(moved)))
    if not abs(moved[at]) > MIN_JUMP_S:
        return None
    return ClockJump(step=int(step[at + 1]), jump_s=float(moved[at]))


def find_steady_state(times_ms: Floats, numbers: Ints | None = None) -> SteadyState:
    """Split a run into warm-up and the rest. `numbers` are the step numbers for the reason, by default from 0."""
    count = len(times_ms)
    if count < MIN_STEPS:
        return SteadyState(warmup=min(1, count // 2), steady=False, reason=_too_few(count - min(1, count // 2)))
    warmup, settled = _settled(times_ms)
    warmup = _past_slow_steps(times_ms, warmup)
    if not settled:
        return SteadyState(warmup=warmup, steady=False, reason="the step time did not settle in the first half of the run: run more steps")
    if count - warmup < MIN_STEPS:
        return SteadyState(warmup=warmup, steady=False, reason=_too_few(count - warmup))
    reason = _change(times_ms[warmup:], (np.arange(count) if numbers is None else numbers)[warmup:])
    return SteadyState(warmup=warmup, steady=not reason, reason=reason)


def _change(times_ms: Floats, numbers: Ints) -> str:
    """How the step time changes over the window, and what to do; empty where it is steady."""
    slope = trend(times_ms)
    drifts = abs(slope) > TREND_LIMIT
    if not drifts and not level_changes(times_ms):
        return ""
    index = change_point(times_ms)
    if drifts and not _is_sudden(times_ms, index, slope):
        return f"the step time still {'rises' if slope > 0 else 'falls'} by {abs(slope):.0%} over the window: run more steps"
    before, after = median(times_ms[:index]), median(times_ms[index:])
    way, advice = "fell", "run more steps"
    if after > before:
        way, advice = "rose", "check for throttling, another job or a data change at that step"
    return (
        f"the step time {way} from {ms_text(before)} to {ms_text(after)} at about step {int(numbers[index])}: {advice}, or set "
        "timing.window"
    )


def ms_text(value: float) -> str:
    """'0.4125 ms', '99.61 ms', '12345 ms': four digits without powers of ten."""
    return f"{value:.0f} ms" if value >= 1000 else f"{value:.4g} ms"


def _is_sudden(times_ms: Floats, index: int, slope: float) -> bool:
    """Whether two levels fit the steps better than a line, by the sum of absolute residuals."""
    left, right = times_ms[:index], times_ms[index:]
    by_levels = np.abs(left - np.median(left)).sum() + np.abs(right - np.median(right)).sum()
    rest = times_ms - np.linspace(0, slope * median(times_ms), len(times_ms))
    return bool(by_levels < np.abs(rest - np.median(rest)).sum())


def trend(times_ms: Floats) -> float:
    """Relative change of the step time from one end to the other; 0 if it is not significant."""
    batches = batch_medians(times_ms, max(1, len(times_ms) // TREND_BATCHES))
    level = median(batches)
    # On a line that changes by the limit, batches are at least a quarter of it apart.
    if len(batches) < MIN_STEPS or level <= 0 or np.ptp(batches) <= TREND_LIMIT / 4 * level:
        return 0.0
    if not mann_kendall(batches).p_value < TREND_CHANCE:
        return 0.0
    slopes = pair_slopes(np.arange(len(batches), dtype=np.float64), batches)
    return median(slopes) * (len(batches) - 1) / level


def level_changes(times_ms: Floats) -> bool:
    """Whether the start is significantly faster than the rest, the end differs from it, or two parts differ.

    A slightly slower start is a remainder of the warm-up within the noise and does not count.
    """
    batches = batch_medians(times_ms, max(1, len(times_ms) // TREND_BATCHES))
    if len(batches) < MIN_STEPS or np.ptp(batches) <= TREND_LIMIT * np.min(batches):
        return False
    ends = [int(len(batches) * share) for share in END_SHARES]
    return _differs_at_change_point(batches) or any(
        relative_shift(batches[:end], batches[end:]) < -TREND_LIMIT or abs(relative_shift(batches[-end:], batches[:-end])) > TREND_LIMIT
        for end in ends
    )


def _differs_at_change_point(batches: Floats) -> bool:
    """Whether two parts differ by Pettitt's test, for changes near the middle, which neither end shows in a short run."""
    sums, count = _rank_sums(batches), len(batches)
    index = int(np.argmax(sums)) + 1
    before, after = median(batches[:index]), median(batches[index:])
    p_value = 2 * math.exp(-6 * (2 * float(sums.max())) ** 2 / (count**3 + count**2))
    return p_value < PARTS_CHANCE and abs(after - before) > TREND_LIMIT * before


def relative_shift(some: Floats, others: Floats) -> float:
    """Median of some over median of the others, less 1; 0 if the difference is not significant."""
    level = median(others)
    if level <= 0 or np.ptp(np.concatenate([some, others])) == 0:
        return 0.0
    shift = median(some) / level - 1
    if abs(shift) <= TREND_LIMIT:
        return shift
    return shift if mann_whitney_p(some, others) < LEVEL_CHANCE else 0.0


def change_point(times_ms: Floats) -> int:
    """The index at which the steps before and after differ most in rank (Pettitt's test); at least one step lies on either side."""
    return int(np.argmax(_rank_sums(times_ms))) + 1


def _rank_sums(values: Floats) -> Floats:
    """Absolute cumulative sums of the ranks minus their mean."""
    ranks, _ = mid_ranks(values)
    return np.asarray(np.abs(np.cumsum(ranks - ranks.mean())[:-1]), dtype=np.float64)


def batch_medians(times_ms: Floats, size: int) -> Floats:
    """Medians of consecutive batches; a shorter last one is left out unless it is the only one."""
    whole = len(times_ms) // size * size
    if whole == 0:
        return np.array([np.median(times_ms)])
    return row_medians(times_ms[:whole].reshape(-1, size))


def _settled(times_ms: Floats) -> tuple[int, bool]:
    """Steps before the first consecutive batches that are not slower than the second half, and whether the first half has any."""
    # Five where there are enough batches to see the end of a warm-up; single steps in short runs.
    size = 5 if len(times_ms) >= 60 else 3 if len(times_ms) >= 30 else 1
    batches = batch_medians(times_ms, size)
    latest = len(batches) // 2
    level, width = level_and_width(batches[latest:])
    # In a short run the second half has few batches, which may look equal by chance: the spread expected from its steps is a lower bound.
    width = max(width, level_and_width(times_ms[len(times_ms) // 2 :])[1] * MEDIAN_TO_MEAN_ERROR / math.sqrt(size))
    # Where steps take one of two times, the width is close to 0 and slower batches are as usual as the others.
    usual = percentiles(batches[latest:], [USUAL_BATCH_PERCENTILE])[0]
    at_level = batches <= max(usual, level + max(NOISE_WIDTHS * width, LEVEL_TOLERANCE * level))
    for first in range(latest + 1):
        if at_level[first : first + SETTLED_BATCHES].all():
            return first * size, True
    return latest * size, False


def _past_slow_steps(times_ms: Floats, warmup: int) -> int:
    """The warm-up with the much slower steps that follow at once or are among the leading ones."""
    half = len(times_ms) // 2
    level, width = level_and_width(times_ms[half:])
    far = level + max(FAR_WIDTHS * width, FAR_SHARE * level)
    # A job that regularly has slow steps has them among the first too: those are not warm-up.
    usual = percentiles(times_ms[half:], [USUAL_PERCENTILE])[0] * (1 + FAR_SHARE)
    lead = min(half, max(LEAD_STEPS, int(len(times_ms) * LEAD_SHARE)))
    leading = np.flatnonzero(times_ms[:lead] > max(far, usual))
    warmup = max(warmup, int(leading[-1]) + 1) if len(leading) else warmup
    while warmup < half and times_ms[warmup] > far:
        warmup += 1
    return warmup


def _too_few(count: int) -> str:
    return f"only {count} steps are left after warm-up, {MIN_STEPS} are needed: run more steps"
