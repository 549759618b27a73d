"""Whether a run leaks memory: one `MemoryCourse` for each GPU and one for the run's whole process tree on the host.

In: the samples of one attempt and its step table. Out: the courses, each with its verdict and one sentence that gives its reason.

Counted are the samples from the end of rank 0's first step to that of its last, so that neither the loading of a model nor the end of
the processes is taken for growth; all samples where the steps have no times. analyse.memory_growth tells leaks from caches, steps,
ramps and saw-teeth, and finds the warm-up.

How long a run must be goes by samples and by what they show, not by minutes alone: 60 samples make a verdict. A leak in less than five
minutes is said only where the growth is 20 times the scatter and rank 0 took 50 steps meanwhile: in so short a time most growth is that
of a job which has just begun, and only a leak that goes with the steps stands out so far. Nor is a course called flat while the upper
end of its slope would fill the memory within a day.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse import memory_words as words
from seatrial.analyse.column import column
from seatrial.analyse.hosts import gpu_name, of_hosts
from seatrial.analyse.memory_growth import Growth, Shape, find_growth
from seatrial.analyse.quantile import median
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.health import MemoryCourse, MemoryVerdict
from seatrial.records.telemetry import TelemetryTables
from seatrial.units import KIB_PER_MIB

Floats = npt.NDArray[np.float64]

LEAST_SAMPLES = 60
SHORT_MIN = 5.0
SHORT_WIDTHS = 20.0
SHORT_STEPS = 50
WIDER = 2.0
"""Blocks and warm-up are chosen by the same samples that the slope is taken from, so its plain interval holds the true rate of 88 in 100
leaks only; this many times as wide, of 93 to 94 (benchmarks/leak_rates.py)."""
HORIZON_H = 24.0
"""Memory that may still grow fast enough to be full within a day is no plateau yet. Of plain runs of half an hour none may, of half a
minute most."""
GONE_SHARE = 0.5
"""Samples at either end below this share of the median are of processes that come or go; where the steps have times, none is left."""
GPU_FILE, HOST_FILE = ATTEMPT_FILES.gpu_telemetry.name, ATTEMPT_FILES.host_telemetry.name


@dataclass(frozen=True, kw_only=True)
class _Series:
    """One course of memory as sampled; times are wall clock."""

    kind: str
    subject: str
    file: str
    t: Floats
    mib: Floats
    limit_mib: float | None
    foreign: bool = False
    """Processes that are not the run's own were on the GPU meanwhile."""

    @property
    def interval_s(self) -> float | None:
        return median(np.diff(self.t)) if len(self.t) > 2 else None


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """Rank 0's steps that have a time."""

    t: Floats
    number: Floats

    def between(self, first_t: float, last_t: float) -> tuple[float, float]:
        """Steps in a span of time, and minutes they took; (0, 0) where fewer than two ended in it."""
        inside = slice(int(np.searchsorted(self.t, first_t)), int(np.searchsorted(self.t, last_t, side="right")))
        t, number = self.t[inside], self.number[inside]
        return (float(number[-1] - number[0]), float(t[-1] - t[0]) / 60) if len(t) > 1 else (0.0, 0.0)


def memory_courses(samples: TelemetryTables, steps: pl.DataFrame) -> tuple[MemoryCourse, ...]:
    """One for each GPU that was sampled and one for the host; none for what was not."""
    taken = _steps(steps)
    return tuple(_course(series, taken) for series in _all_series(samples))


def _steps(steps: pl.DataFrame) -> _Steps:
    rank, t, number = (steps[name].to_numpy() for name in ("rank", "t", "step"))
    own = np.flatnonzero((rank == rank[0]) & np.isfinite(t)) if len(rank) else np.empty(0, dtype=np.intp)
    own = own[np.argsort(t[own], kind="stable")]
    return _Steps(t=t[own].astype(np.float64), number=number[own].astype(np.float64))


def _all_series(samples: TelemetryTables) -> Iterator[_Series]:
    if samples.gpu is not None and not samples.gpu.is_empty():
        yield from _gpu_series(samples.gpu, samples.hosts)
    for host, rows in of_hosts(samples.host, samples.hosts):
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


def _course(series: _Series, steps: _Steps) -> MemoryCourse:
    series = _counted(series, steps)
    course = MemoryCourse(
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
    found = find_growth(at_min, series.mib) if len(series.t) >= LEAST_SAMPLES else None
    if found is None:
        return replace(course, reason=words.too_few(course, LEAST_SAMPLES, series.interval_s, by_steps=len(steps.t) > 1))
    kept = series.t >= series.t[0] + found.first_min * 60
    measured = replace(
        course,
        n=int(np.count_nonzero(kept)),
        first_t=float(series.t[kept][0]),
        slope_mib_per_min=found.slope.value,
        slope_low=_widened(found.slope.value, found.slope.low),
        slope_high=_widened(found.slope.value, found.slope.high),
    )
    return _judged(measured, found, steps, foreign=series.foreign)


def _counted(series: _Series, steps: _Steps) -> _Series:
    """The samples between the ends of the first and the last step; else all but those of processes that come or go."""
    inside = (series.t >= steps.t[0]) & (series.t <= steps.t[-1]) if len(steps.t) > 1 else series.mib >= GONE_SHARE * median(series.mib)
    there = np.flatnonzero(inside)
    kept = slice(int(there[0]), int(there[-1]) + 1) if len(there) else slice(0, 0)
    return replace(series, t=series.t[kept], mib=series.mib[kept])


def _judged(course: MemoryCourse, found: Growth, steps: _Steps, *, foreign: bool) -> MemoryCourse:
    if found.shape is Shape.STEADY:
        return _growing(course, found, steps, foreign=foreign)
    if found.shape is Shape.FLAT and (full_h := _hours(course, found.slope.high)) is not None and full_h < HORIZON_H:
        return replace(course, reason=words.may_grow(course, full_h))
    verdict = MemoryVerdict.PLATEAU if found.shape in (Shape.FLAT, Shape.STOPPED) else MemoryVerdict.INCONCLUSIVE
    return replace(course, verdict=verdict, reason=words.no_leak(course, found.shape))


def _growing(course: MemoryCourse, found: Growth, steps: _Steps, *, foreign: bool) -> MemoryCourse:
    """A leak, or why it is not yet called one."""
    first_t, last_t = course.first_t or 0.0, course.last_t or 0.0
    taken, took_min = steps.between(first_t, last_t)
    grown = replace(course, mib_per_1000_steps=found.slope.value * took_min / taken * 1000 if taken > 0 else None)
    if foreign:
        return replace(grown, reason=words.others_too(grown))
    if (last_t - first_t) / 60 < SHORT_MIN and (found.over_noise < SHORT_WIDTHS or taken < SHORT_STEPS):
        return replace(grown, reason=words.just_begun(grown, SHORT_MIN))
    leak = replace(
        grown,
        verdict=MemoryVerdict.LEAK,
        hours_left=_hours(course, course.slope_mib_per_min),
        hours_low=_hours(course, course.slope_high),
    )
    return replace(leak, reason=words.leak(leak))


def _widened(slope: float, end: float | None) -> float | None:
    return None if end is None else slope + WIDER * (end - slope)


def _hours(course: MemoryCourse, slope: float | None) -> float | None:
    if course.limit_mib is None or course.last_mib is None or slope is None or slope <= 0:
        return None
    return max(0.0, course.limit_mib - course.last_mib) / slope / 60
