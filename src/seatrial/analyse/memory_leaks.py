"""Whether a run leaks memory: a `MemoryTrend` for each GPU and for the run's process tree on each host.

In: the telemetry of one attempt and its step table. Out: each series with its verdict and one sentence that gives the reason. Counted are
the samples from the end of rank 0's first step to the end of its last, so that neither loading a model nor the end of the processes looks
like growth; all samples where the steps have no times.

Memory grows for many reasons other than a leak: a cache fills (ever more slowly), a second stage allocates (at once), a ramp ends, garbage
is collected late (a sawtooth). A leak grows at one pace. So a series is steady growth only where:

1. Blocks. It is cut into two dozen blocks of equal time, fewer for a sawtooth, where a block is longer than a tooth. A block's level is
   its minimum or its median, whichever shows the pace better: the minimum of a sawtooth is steady, the median of short dips is.
2. Slope. The Theil-Sen slope over the blocks' levels is known within a factor of 1.6, its interval above 0 (MAX_FACTOR).
3. Growth. It is at least 8 MiB, and 8 times the scatter of the levels.
4. Pace. The second half grows at least 0.6 times as fast as the first, by the lower bound of a fitted parabola. A cache that fills with a
   time constant of a third of the run falls below 0.45.
5. Parts. From each of six parts to the next the level rises by 0.35 to 2.5 times what the slope gives; a few steps, or a ramp that
   ended, do not.

Up to four tenths at the beginning may be cut as warm-up. A series that can have grown only a little is flat; one that grew and whose last
part is flat has stopped. A verdict needs 60 samples. Within five minutes growth is a leak only above 20 times the scatter and after 50
steps of rank 0: most early growth is start-up. A series is not flat while the upper end of its slope would fill the memory within a day.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import tee

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.statistics import Slope, batch_series, median, percentiles, row_medians, t_quantile, theil_sen
from seatrial.analyse.telemetry_summary import column, gpu_name, tables_by_host
from seatrial.core.paths import ATTEMPT_FILES
from seatrial.core.text import KIB_PER_MIB, count, format_duration
from seatrial.records.measure import MemoryTrend, MemoryVerdict
from seatrial.records.telemetry import TelemetryTables

Floats = npt.NDArray[np.float64]
MIN_SAMPLES = 60
SHORT_MIN = 5.0
SHORT_WIDTHS = 20.0
SHORT_STEPS = 50
WIDER = 2.0
"""Blocks and warm-up are chosen from the same samples as the slope, so its plain interval contains the true rate of only 88 in 100 leaks;
this many times as wide, of 93 to 94 (benchmarks/leak_rates.py)."""
HORIZON_H = 24.0
"""Memory that may still be full within a day is not a plateau yet: that excludes no plain run of half an hour, but most of half a
minute."""
GONE_SHARE = 0.5
"""Without step times, samples at either end below this share of the median are of processes that start or exit."""
GPU_FILE, HOST_FILE = ATTEMPT_FILES.gpu_telemetry.name, ATTEMPT_FILES.host_telemetry.name
MIB_PER_GIB = 1024
RUN_MIN = 30.0
"""Recommended where a run was too short: a leak of a few MiB per minute shows in half an hour."""
USUAL_INTERVAL_S = 2.0
MAX_POINTS = 1500
"""A longer series is reduced to medians of batches, so that days of samples cost no more than an hour."""
WARMUP_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4)
"""No more is cut: a run that settles later must be longer."""
SAWTOOTH_SHARE = 0.5
BEGINNING_SHARE = 0.05
"""A fall this early frees what the job was loaded with."""
SMOOTHED_SAMPLES = 5
"""A median over this many removes single samples of a process that starts or exits."""
MIN_GROWTH_MIB = 8.0
"""Less is allocator overhead and code loaded late."""
MIN_GROWTH_WIDTHS = 8.0
"""Growth below this many times the scatter of levels may be scatter."""
MAX_FACTOR = 1.6
PARTS = 6
MIN_PART_SHARE = 0.35
MAX_PART_SHARE = 2.5
FLAT_GROWTH_MIB = 16.0
FLAT_GROWTH_SHARE = 0.02
"""A series is flat when the upper end of its slope comes to less than either of these, in MiB or as a share of its level."""
STOPPED_PACE = 0.5
"""Growth has stopped when even the upper end of the last third's slope is below this share of the slope of all."""
MAX_BLOCKS = 24
MIN_BLOCKS = 8
"""Fewer show neither a pace nor six parts."""
MIN_IN_BLOCK = 3
SAWTEETH_PER_BLOCK = 1.2
MIN_SAWTEETH = 3
"""Fewer swings are a curve that bends, not a sawtooth."""
MIN_PACE = 0.6
"""The smallest growth of the second half, as a share of the first's."""
MAX_AUTOCORRELATION = 0.9


@dataclass(frozen=True, kw_only=True)
class _Series:
    """One memory series as sampled; times are wall clock."""

    kind: str
    subject: str
    file: str
    t: Floats
    mib: Floats
    limit_mib: float | None
    foreign: bool = False
    """Whether processes other than the run's own used the GPU."""

    @property
    def interval_s(self) -> float | None:
        return median(np.diff(self.t)) if len(self.t) > 2 else None


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """Rank 0's steps that have a time."""

    t: Floats
    number: Floats

    def between(self, first_t: float, last_t: float) -> tuple[float, float]:
        """Steps between two times, and the minutes they took; (0, 0) where fewer than two ended in between."""
        inside = slice(int(np.searchsorted(self.t, first_t)), int(np.searchsorted(self.t, last_t, side="right")))
        t, number = self.t[inside], self.number[inside]
        return (float(number[-1] - number[0]), float(t[-1] - t[0]) / 60) if len(t) > 1 else (0.0, 0.0)


class Shape(str, enum.Enum):
    """The shape of a series after warm-up."""

    STEADY = "steady"
    FLAT = "flat"
    STOPPED = "stopped"
    SLOWING = "slowing"
    UNEVEN = "uneven"


@dataclass(frozen=True, kw_only=True)
class Growth:
    """One memory series, classified."""

    shape: Shape
    slope: Slope
    """MiB per minute over the levels of blocks."""
    first_min: float
    """The time from which samples count."""
    over_noise: float
    """Growth over the scatter of levels; inf without scatter."""


@dataclass(frozen=True, kw_only=True)
class _Tail:
    """The series without its first part; the slope is computed when first used."""

    first_min: float
    blocks: Blocks
    before: Floats
    inside: Floats
    """The series before and after the cut."""

    @cached_property
    def slope(self) -> Slope:
        return theil_sen(self.blocks.at, self.blocks.levels) or Slope(value=0.0, n=len(self.blocks.at))

    @property
    def span_min(self) -> float:
        return float(self.blocks.at[-1] - self.blocks.at[0])

    @property
    def growth_mib(self) -> float:
        return self.slope.value * self.span_min

    @property
    def over_noise(self) -> float:
        return self.growth_mib / self.blocks.scatter if self.blocks.scatter > 0 else math.inf


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Middle and level of each block, in order, and the parabola through them."""

    at: Floats
    levels: Floats
    scatter: float
    """Standard deviation of the residuals of the parabola."""
    pace: float
    """Growth of the second half minus MIN_PACE times that of the first; below 0 where it slows down more."""
    pace_error: float
    """Half the width of its interval."""


def memory_trends(samples: TelemetryTables, steps: pl.DataFrame) -> tuple[MemoryTrend, ...]:
    """A trend for each GPU and each host that was sampled."""
    taken = _steps(steps)
    return tuple(_trend(series, taken) for series in _all_series(samples))


def _steps(steps: pl.DataFrame) -> _Steps:
    rank, t, number = (steps[name].to_numpy() for name in ("rank", "t", "step"))
    own = np.flatnonzero((rank == rank[0]) & np.isfinite(t)) if len(rank) else np.empty(0, dtype=np.intp)
    own = own[np.argsort(t[own], kind="stable")]
    return _Steps(t=t[own].astype(np.float64), number=number[own].astype(np.float64))


def _all_series(samples: TelemetryTables) -> Iterator[_Series]:
    if samples.gpu is not None and not samples.gpu.is_empty():
        yield from _gpu_series(samples.gpu, samples.hosts)
    for host, rows in tables_by_host(samples.host, samples.hosts):
        series = _host_series(rows)
        if series is not None:
            yield replace(series, subject=f"{series.subject} on {host}") if host else series


def _gpu_series(table: pl.DataFrame, hosts: Sequence[str]) -> Iterator[_Series]:
    t, gpu, used, total, foreign = (
        column(table, name) for name in ("epoch_sec", "gpu_index", "mem_used_mib", "mem_total_mib", "foreign_process_count")
    )
    for index in np.unique(gpu[np.isfinite(gpu)]):
        own = (gpu == index) & np.isfinite(used)
        if own.any():
            yield _Series(
                kind="gpu",
                subject=f"GPU {gpu_name(index, hosts)}",
                file=GPU_FILE,
                t=t[own],
                mib=used[own],
                limit_mib=_last(total[own]),
                foreign=bool((foreign[own] > 0).any()),
            )


def _host_series(table: pl.DataFrame) -> _Series | None:
    t, rss, by_hand = (column(table, name) for name in ("epoch_sec", "rss_kib", "train_rss_kib"))
    rss = rss if np.isfinite(rss).any() else by_hand
    known = np.isfinite(rss)
    if not known.any():
        return None
    available, total = (_last(column(table, name)[known]) for name in ("mem_available_kib", "mem_total_kib"))
    limit = total if available is None else available + float(rss[known][-1])
    return _Series(
        kind="host",
        subject="process tree",
        file=HOST_FILE,
        t=t[known],
        mib=rss[known] / KIB_PER_MIB,
        limit_mib=None if limit is None else limit / KIB_PER_MIB,
    )


def _last(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else None


def _trend(series: _Series, steps: _Steps) -> MemoryTrend:
    series = _counted(series, steps)
    trend = MemoryTrend(
        kind=series.kind,
        subject=series.subject,
        verdict=MemoryVerdict.INCONCLUSIVE,
        reason="",
        last_mib=float(series.mib[-1]) if len(series.mib) else None,
        limit_mib=series.limit_mib,
        n=len(series.t),
        first_t=float(series.t[0]) if len(series.t) else None,
        last_t=float(series.t[-1]) if len(series.t) else None,
        file=series.file,
    )
    at_min = (series.t - series.t[0]) / 60 if len(series.t) else series.t
    found = find_growth(at_min, series.mib) if len(series.t) >= MIN_SAMPLES else None
    if found is None:
        return replace(trend, reason=_too_few(trend, series.interval_s, by_steps=len(steps.t) > 1))
    kept = series.t >= series.t[0] + found.first_min * 60
    measured = replace(
        trend,
        n=int(np.count_nonzero(kept)),
        first_t=float(series.t[kept][0]),
        slope_mib_per_min=found.slope.value,
        slope_low=_widened(found.slope.value, found.slope.low),
        slope_high=_widened(found.slope.value, found.slope.high),
    )
    return _with_verdict(measured, found, steps, foreign=series.foreign)


def _counted(series: _Series, steps: _Steps) -> _Series:
    """The samples between the ends of the first and the last step; else all except those of processes that start or exit."""
    inside = (series.t >= steps.t[0]) & (series.t <= steps.t[-1]) if len(steps.t) > 1 else series.mib >= GONE_SHARE * median(series.mib)
    rows = np.flatnonzero(inside)
    kept = slice(int(rows[0]), int(rows[-1]) + 1) if len(rows) else slice(0, 0)
    return replace(series, t=series.t[kept], mib=series.mib[kept])


def _with_verdict(trend: MemoryTrend, found: Growth, steps: _Steps, *, foreign: bool) -> MemoryTrend:
    if found.shape is Shape.STEADY:
        return _growing(trend, found, steps, foreign=foreign)
    if found.shape is Shape.FLAT and (full_h := _hours(trend, found.slope.high)) is not None and full_h < HORIZON_H:
        # No growth shows, but so short a series could not show one that matters.
        fills = f"the upper end would fill the {_free(trend)} left in {_hours_text(full_h)}"
        return replace(trend, reason=f"shows no growth: {_flat(trend)}; but {fills}: run for {_longer(trend)} to rule it out")
    verdict = MemoryVerdict.PLATEAU if found.shape in (Shape.FLAT, Shape.STOPPED) else MemoryVerdict.INCONCLUSIVE
    return replace(trend, verdict=verdict, reason=_no_leak(trend, found.shape))


def _growing(trend: MemoryTrend, found: Growth, steps: _Steps, *, foreign: bool) -> MemoryTrend:
    """A leak, or why it is not one yet."""
    first_t, last_t = trend.first_t or 0.0, trend.last_t or 0.0
    taken, took_min = steps.between(first_t, last_t)
    grown = replace(trend, mib_per_1000_steps=found.slope.value * took_min / taken * 1000 if taken > 0 else None)
    if foreign:
        return replace(grown, reason=f"{_grows(grown)}, but other processes used this GPU too: run again on a GPU of its own")
    if (last_t - first_t) / 60 < SHORT_MIN and (found.over_noise < SHORT_WIDTHS or taken < SHORT_STEPS):
        longer = f"run for at least {_minutes_text(SHORT_MIN)}, better {_minutes_text(RUN_MIN)}"
        return replace(grown, reason=f"{_grows(grown)}; this early it may be start-up: {longer}")
    leak = replace(
        grown,
        verdict=MemoryVerdict.LEAK,
        hours_left=_hours(trend, trend.slope_mib_per_min),
        hours_low=_hours(trend, trend.slope_high),
    )
    by_step = "" if leak.mib_per_1000_steps is None else f", {_figure(leak.mib_per_1000_steps)} MiB per 1,000 steps"
    full = "the limit is unknown" if leak.hours_left is None else f"{_free(leak)} left: full in about {_hours_text(leak.hours_left)}"
    return replace(leak, reason=f"{_grows(leak)}{by_step}; {full}")


def _widened(slope: float, end: float | None) -> float | None:
    return None if end is None else slope + WIDER * (end - slope)


def _hours(trend: MemoryTrend, slope: float | None) -> float | None:
    if trend.limit_mib is None or trend.last_mib is None or slope is None or slope <= 0:
        return None
    return max(0.0, trend.limit_mib - trend.last_mib) / slope / 60


def _too_few(trend: MemoryTrend, interval_s: float | None, *, by_steps: bool) -> str:
    interval_s = interval_s or USUAL_INTERVAL_S
    between = " between the first step and the last" if by_steps else ""
    least_min = MIN_SAMPLES * interval_s / 60
    better = f", better {_minutes_text(RUN_MIN)}" if least_min < RUN_MIN else ""
    return (
        f"{count(trend.n, 'sample')}{between} {'is' if trend.n == 1 else 'are'} too few, {MIN_SAMPLES} are needed: run for at least "
        f"{_minutes_text(least_min)}{better}, or sample more often than every {interval_s:.3g} s (telemetry.{trend.kind}_s)"
    )


def _no_leak(trend: MemoryTrend, shape: Shape) -> str:
    """The reason for every shape except steady growth."""
    if shape is Shape.FLAT:
        return f"does not grow: {_flat(trend)}"
    if shape is Shape.STOPPED:
        return f"grew and stopped: no growth in the last third ({_window(trend)})"
    if shape is Shape.SLOWING:
        return f"{_grows(trend)}, but ever more slowly, as a cache does: run for {_longer(trend)} to see whether it stops"
    low, high = trend.slope_low or 0.0, trend.slope_high or 0.0
    return (
        f"varies too much to show a leak: between {low:.3g} and {high:.3g} MiB/min ({_window(trend)}); run for {_longer(trend)}, with one "
        "workload and one stage only"
    )


def _grows(trend: MemoryTrend) -> str:
    slope, low, high = trend.slope_mib_per_min or 0.0, trend.slope_low or 0.0, trend.slope_high or 0.0
    return f"grows by {_figure(slope)} MiB/min ({_figure(low)} to {_figure(high)}; {_window(trend)})"


def _flat(trend: MemoryTrend) -> str:
    slope, low, high = trend.slope_mib_per_min or 0.0, trend.slope_low or 0.0, trend.slope_high or 0.0
    return f"{slope:.2g} MiB/min ({low:.2g} to {high:.2g}; {_window(trend)})"


def _window(trend: MemoryTrend) -> str:
    return f"{trend.n:,} samples over {format_duration((trend.last_t or 0.0) - (trend.first_t or 0.0))}"


def _longer(trend: MemoryTrend) -> str:
    return f"at least {_minutes_text(max(RUN_MIN, 3 * ((trend.last_t or 0.0) - (trend.first_t or 0.0)) / 60))}"


def _minutes_text(minutes: float) -> str:
    if minutes < 2:
        return f"{minutes * 60:.0f} s"
    return f"{minutes:.0f} min" if minutes < 180 else f"{minutes / 60:.1f} h"


def _hours_text(hours: float) -> str:
    return _minutes_text(hours * 60) if hours < 3 else f"{hours:.0f} h" if hours < 72 else f"{hours / 24:,.0f} days"


def _free(trend: MemoryTrend) -> str:
    mib = max(0.0, (trend.limit_mib or 0.0) - (trend.last_mib or 0.0))
    return f"{mib:.0f} MiB" if mib < MIB_PER_GIB else f"{mib / MIB_PER_GIB:.3g} GiB"


def _figure(value: float) -> str:
    digits = max(0, 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 4)}f}"


def find_growth(at_min: Floats, mib: Floats) -> Growth | None:
    """The shape of a series; None where there are too few samples."""
    at, values = batch_series(at_min, mib, MAX_POINTS)
    # The usual case for a GPU after its first steps: there is nothing to fit.
    if len(at) >= MIN_BLOCKS * MIN_IN_BLOCK and at[-1] > at[0] and (values == values[0]).all():
        return Growth(shape=Shape.FLAT, slope=Slope(value=0.0, low=0.0, high=0.0, n=len(at)), first_min=float(at[0]), over_noise=math.inf)
    values = _smoothed(values)
    classified = _classify(_tails(at, values), may_grow=bool(np.ptp(values) >= MIN_GROWTH_MIB))
    if classified is None:
        return None
    shape, tail = classified
    return Growth(shape=shape, slope=tail.slope, first_min=tail.first_min, over_noise=tail.over_noise)


def _classify(tails: Iterator[_Tail], *, may_grow: bool) -> tuple[Shape, _Tail] | None:
    """The shape and the longest tail that shows it; tails are computed only as needed."""
    for_steady, for_flat, all_tails = tee(tails, 3)
    if may_grow and (steady := next(filter(_is_steady, for_steady), None)):
        return Shape.STEADY, steady
    if flat := next(filter(_is_flat, for_flat), None):
        return Shape.FLAT, flat
    last = max(all_tails, key=lambda tail: tail.first_min, default=None)
    if last is None:
        return None
    if _has_stopped(last):
        return Shape.STOPPED, last
    slows = (last.slope.low or 0.0) > 0 and last.blocks.pace < 0
    return (Shape.SLOWING if slows else Shape.UNEVEN), last


def _tails(at: Floats, values: Floats) -> Iterator[_Tail]:
    settled = int(len(at) * BEGINNING_SHARE)
    for share in WARMUP_SHARES:
        first_min = float(at[0] + share * (at[-1] - at[0]))
        first = int(np.searchsorted(at, first_min))
        blocks = best_blocks(at[first:], values[first:])
        if blocks is not None:
            yield _Tail(first_min=first_min, blocks=blocks, before=values[settled : first + 1], inside=values[first:])


def _largest_fall(values: Floats) -> float:
    return float((np.maximum.accumulate(values) - values).max(initial=0.0))


def _is_steady(tail: _Tail) -> bool:
    if tail.blocks.pace <= tail.blocks.pace_error or tail.growth_mib < MIN_GROWTH_MIB or tail.over_noise < MIN_GROWTH_WIDTHS:
        return False
    if not _is_sharp(tail.slope) or _is_one_sawtooth(tail):
        return False
    rises = _part_rises(tail)
    return bool((rises >= MIN_PART_SHARE).all() and (rises <= MAX_PART_SHARE).all())


def _is_one_sawtooth(tail: _Tail) -> bool:
    """Whether memory fell by as much as it now grows and has not since: it may be about to fall again."""
    fell_mib = _largest_fall(tail.before)
    return fell_mib >= SAWTOOTH_SHARE * tail.growth_mib and _largest_fall(tail.inside) < SAWTOOTH_SHARE * fell_mib


def _is_sharp(slope: Slope) -> bool:
    """Whether the slope is above 0 and known within a factor of 1.6, which that of a few jumps is not."""
    low, high = slope.low or 0.0, slope.high or math.inf
    return low * MAX_FACTOR >= slope.value and high <= slope.value * MAX_FACTOR


def _part_rises(tail: _Tail) -> Floats:
    """The rise of the level from each part to the next, relative to a fair share of the growth."""
    parts = np.array_split(np.arange(len(tail.blocks.levels)), PARTS)
    # The lower median, not the mean of two, so that a single step shows in one difference only.
    at, levels = (
        np.array([np.sort(values[part])[(len(part) - 1) // 2] for part in parts]) for values in (tail.blocks.at, tail.blocks.levels)
    )
    return np.asarray(np.diff(levels) / (tail.slope.value * np.diff(at)))


def _is_flat(tail: _Tail) -> bool:
    if tail.slope.low is None or tail.slope.high is None:
        return False
    allowed = max(FLAT_GROWTH_MIB, FLAT_GROWTH_SHARE * median(tail.blocks.levels))
    # Growth that is certain and not small is not flat.
    return tail.slope.high * tail.span_min <= allowed and (tail.slope.low <= 0 or tail.growth_mib < MIN_GROWTH_MIB)


def _has_stopped(tail: _Tail) -> bool:
    """Whether the last third rises neither significantly nor by much."""
    levels = tail.blocks.levels[-max(MIN_BLOCKS - 2, len(tail.blocks.levels) // 3) :]
    slope = theil_sen(tail.blocks.at[-len(levels) :], levels)
    if slope is None or slope.low is None or slope.high is None:
        return False
    span_min = float(tail.blocks.at[-1] - tail.blocks.at[-len(levels)])
    allowed = max(FLAT_GROWTH_MIB, FLAT_GROWTH_SHARE * median(levels))
    return slope.low <= 0 and slope.high * span_min <= allowed and slope.high < STOPPED_PACE * tail.slope.value


def _smoothed(values: Floats) -> Floats:
    if len(values) < SMOOTHED_SAMPLES:
        return values
    beyond = SMOOTHED_SAMPLES // 2
    padded = np.concatenate([values[:1].repeat(beyond), values, values[-1:].repeat(beyond)])
    return row_medians(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHED_SAMPLES))


def best_blocks(at: Floats, values: Floats) -> Blocks | None:
    """The blocks with the smallest error of the pace, of several ways to cut them; None for too few samples."""
    most = min(MAX_BLOCKS, len(values) // MIN_IN_BLOCK)
    if most < MIN_BLOCKS or at[-1] <= at[0]:
        return None
    choices = _cut(at, values, most)
    teeth = _count_sawteeth(at, values)
    if MIN_SAWTEETH <= teeth < most * SAWTEETH_PER_BLOCK:
        choices += _cut(at, values, max(MIN_BLOCKS, int(teeth / SAWTEETH_PER_BLOCK)))
    return min(choices, key=lambda choice: choice.pace_error) if choices else None


def _cut(at: Floats, values: Floats, count: int) -> list[Blocks]:
    """Blocks with their minima as levels, and with their medians; empty where gaps in the telemetry leave too few blocks."""
    edges = np.searchsorted(at, np.linspace(at[0], at[-1], count + 1)[:-1])
    ends = np.append(edges[1:], len(at))
    edges, ends = edges[ends > edges], ends[ends > edges]
    if len(edges) < MIN_BLOCKS:
        return []
    middles, sizes = (at[edges] + at[ends - 1]) / 2, ends - edges
    # All blocks sorted at once, for the lower median of each.
    ordered = values[np.lexsort((values, np.repeat(np.arange(len(edges)), sizes)))]
    return _fitted(middles, np.minimum.reduceat(values, edges), ordered[edges + (sizes - 1) // 2])


def _count_sawteeth(at: Floats, values: Floats) -> int:
    """How often the detrended series falls from its upper quarter to its lower."""
    if len(values) < MIN_BLOCKS:
        return 0
    steepness = (values[-len(values) // 4 :].mean() - values[: len(values) // 4].mean()) / (0.75 * (at[-1] - at[0]) or 1.0)
    rest = values - steepness * at
    low, high = percentiles(rest, (25, 75))
    quarter = (rest > high).astype(np.int8) - (rest < low)
    quarter = quarter[quarter != 0]
    return int(np.count_nonzero(quarter[1:] < quarter[:-1]))


def _fitted(at: Floats, *choices: Floats) -> list[Blocks]:
    """The blocks for each choice of levels, with a parabola through them."""
    x = 2 * (at - at[0]) / (at[-1] - at[0]) - 1
    columns = np.stack([np.ones_like(x), x, x * x], axis=1)
    inverse, freedom = np.linalg.inv(columns.T @ columns), len(at) - 3
    # The slope is linear minus square over the first half, linear plus square over the second.
    weights = np.array([0.0, 1 - MIN_PACE, 1 + MIN_PACE])
    weight = float(weights @ inverse @ weights)
    blocks = []
    for levels in choices:
        found = inverse @ (columns.T @ levels)
        rest = levels - columns @ found
        variance = float(rest @ rest) / freedom
        error = t_quantile(freedom) * math.sqrt(variance * _inflation(rest) * weight)
        blocks.append(Blocks(at=at, levels=levels, scatter=math.sqrt(variance), pace=float(weights @ found), pace_error=error))
    return blocks


def _inflation(rest: Floats) -> float:
    """The factor by which autocorrelation inflates the variance."""
    total = float(rest @ rest)
    if total <= 0:
        return 1.0
    share = min(max(float(rest[1:] @ rest[:-1]) / total + 1 / len(rest), 0.0), MAX_AUTOCORRELATION)
    return (1 + share) / (1 - share)
