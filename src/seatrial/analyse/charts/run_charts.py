"""The charts of one attempt: charts/*.csv.

In: the attempt, its step tables and telemetry, which are in memory while it is measured, its measure, and the detail. Out: `RunCharts`,
whose tables hold plain lists, since they travel between processes. Empty tables are left out. If the wall clock was set meanwhile, samples
and spans cannot be matched with the steps and are left out, as they are from the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seatrial.analyse.charts.thinning import MIN_POINTS, Floats, Indices, Mask, cells, cells_with_marks, kept_indices
from seatrial.analyse.charts.timeline import FirstRank, Telemetry, counted_rows, first_rank, paused_rows, span_table, telemetry_series
from seatrial.analyse.statistics import median, percentiles, row_medians
from seatrial.analyse.steady_state import count_steps, find_clock_jump, find_grid
from seatrial.analyse.stragglers import MIN_STEPS as MIN_STEPS_straggler
from seatrial.analyse.stragglers import RankWork, rank_work, synchronising_phase
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import Scalar
from seatrial.records.columns import ETA, PHASES, RANKS, SPANS, STEP_TIMES, STEPS, TELEMETRY, Columns, Detail, RunCharts
from seatrial.records.eta import EtaPoint, points_of_mode
from seatrial.records.measure import RunMeasure, Window
from seatrial.records.telemetry import TelemetryTables

MAX_RANKS = 1024
"""As many as are legible on a wide screen; of more, the extremes are kept."""
STEP_POINTS, MAX_STEPS, MIN_STEPS = 100_000, 1_500, 16
SERIES_POINTS, MAX_OF_A_SERIES, MIN_OF_A_SERIES = 8_000, 400, 8
ETA_POINTS, MAX_ETA, MIN_ETA = 10_000, 150, 5
"""Points of all runs together, and the most and the least of one. A thousand runs get 100 steps, 8 points of a series and 10 estimates
each."""
QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99, 1.0)
OTHER = "other"
SYNCHRONISING = ("fwd", "bwd", "step")
"""Without any of these it is unknown where ranks synchronise."""


@dataclass(frozen=True, kw_only=True)
class _Times:
    """Step times by rank."""

    ranks: npt.NDArray[np.int64]
    p50_ms: Floats
    n: npt.NDArray[np.int64]


def run_charts(
    attempt: Attempt,
    tables: StepTables,
    samples: TelemetryTables | None,
    measure: RunMeasure | None,
    detail: Detail,
    *,
    launched_t: float | None = None,
) -> RunCharts:
    """The tables of one attempt. `launched_t` is needed only for an attempt without an outcome."""
    found: dict[str, Columns] = {}
    if launched_t is None and attempt.outcome is not None and attempt.outcome.started_t > 0:
        launched_t = attempt.outcome.started_t
    jumped = find_clock_jump(tables.steps) is not None if len(tables.steps) else False
    first = first_rank(tables, launched_t, jumped=jumped)
    if first is not None:
        found |= _step_tables(attempt, tables, first, measure, detail)
    series = Telemetry()
    if not jumped:
        origin_t = first.origin_t if first is not None else launched_t
        matched = samples or TelemetryTables()
        series = telemetry_series(matched, origin_t, detail.telemetry)
        found[TELEMETRY] = series.table
        found[SPANS] = span_table(tables, first, matched.gpu, origin_t, detail, matched.hosts)
    drawn = {name: columns for name, columns in found.items() if columns}
    return RunCharts(tables=drawn, gpus=series.gpus, gpus_drawn=series.gpus_drawn, hosts=series.hosts, hosts_drawn=series.hosts_drawn)


def _step_tables(attempt: Attempt, tables: StepTables, first: FirstRank, measure: RunMeasure | None, detail: Detail) -> dict[str, Columns]:
    window = measure.window if measure is not None else None
    found = {STEPS: step_table(first, window, detail.steps)}
    if measure is not None:
        found[ETA] = eta_table(measure.eta_points, attempt.spec.timing.eta_mode, first, detail.eta)
    if window is not None:
        work = rank_work(tables, window)
        found[STEP_TIMES] = step_time_table(tables, first, window)
        found[PHASES] = phase_table(work, window)
        found[RANKS] = rank_table(tables, work, window, min(detail.steps, MAX_RANKS))
    return found


def detail_for(runs: int) -> Detail:
    """The detail for a page with this many runs."""
    return Detail(
        steps=_share(STEP_POINTS, runs, MAX_STEPS, MIN_STEPS),
        telemetry=_share(SERIES_POINTS, runs, MAX_OF_A_SERIES, MIN_OF_A_SERIES),
        eta=_share(ETA_POINTS, runs, MAX_ETA, MIN_ETA),
    )


def _share(points: int, runs: int, most: int, least: int) -> int:
    return min(most, max(least, points // max(runs, 1)))


def step_table(first: FirstRank, window: Window | None, most: int) -> Columns:
    """At most `most` rows, if that is 16 or more; a row of several steps is drawn at the last of them."""
    counted = first.is_counted(window)
    kept = _kept_steps(first, counted, most)
    has_loss = first.has_loss[kept]
    return {
        "rank": [first.rank] * len(kept),
        "step": list(first.step[kept].tolist()),
        "begin_s": cells(first.begins_s[kept]),
        "t_s": cells(first.t_s[kept]),
        "iter_ms": cells(first.iter_ms[kept]),
        "loss": cells_with_marks(first.loss[kept], has_loss),
        "counted": list(counted[kept].tolist()),
    }


def _kept_steps(first: FirstRank, counted: Mask, most: int) -> Indices:
    if len(first.step) <= most:
        return np.arange(len(first.step))
    if not first.has_loss.any():
        return _by_time(first.iter_ms, counted, most)
    for_loss = most // 3
    return np.union1d(_by_time(first.iter_ms, counted, most - for_loss), kept_indices(first.loss, for_loss, first.has_loss))


def _by_time(iter_ms: Floats, counted: Mask, most: int) -> Indices:
    """Counted and other steps get points in proportion to their number, the rarer kind at least enough to show its extremes."""
    rarer, other = sorted((np.flatnonzero(counted), np.flatnonzero(~counted)), key=len)
    if len(rarer) == 0:
        return kept_indices(iter_ms, most, np.isfinite(iter_ms))
    for_rarer = min(len(rarer), max(MIN_POINTS, most * len(rarer) // len(iter_ms)))
    parts = [(rarer, for_rarer), (other, most - for_rarer)]
    return np.union1d(*(rows[kept_indices(iter_ms[rows], share, np.isfinite(iter_ms[rows]))] for rows, share in parts))


def step_time_table(tables: StepTables, first: FirstRank, window: Window) -> Columns:
    """A row for each quantile; {} where no step is left."""
    counted_ms = _counted_ms(tables, first, window)
    if len(counted_ms) == 0:
        return {}
    times = percentiles(counted_ms, [100 * quantile for quantile in QUANTILES])
    return {
        "quantile": list(QUANTILES),
        "iter_ms": list(times),
        "first_step": [window.first_step] * len(QUANTILES),
        "last_step": [window.last_step] * len(QUANTILES),
        "n": [window.n] * len(QUANTILES),
    }


def _counted_ms(tables: StepTables, first: FirstRank, window: Window) -> Floats:
    if len(first.step) == len(tables.steps):
        return np.asarray(first.iter_ms[first.is_counted(window)])
    # Of the window, the steps that all ranks have, and the slowest rank's time.
    return count_steps(tables.steps, tables.pauses["step"], f"{window.first_step}:{window.last_step}").wall_ms


def eta_table(points: Sequence[EtaPoint], mode: str, first: FirstRank, most: int) -> Columns:
    """At most `most` rows by step; {} where nothing was estimated."""
    chosen = points_of_mode(points, mode)
    if not chosen:
        return {}
    steps = np.array([point.step for point in chosen])
    eta_s, actual_s, low_s, high_s = (
        np.array([getattr(point, name) for point in chosen], dtype=np.float64) for name in ("eta_s", "actual_s", "low_s", "high_s")
    )
    error_s = eta_s - actual_s
    kept = kept_indices(error_s if np.isfinite(error_s).any() else eta_s, most)
    rows = np.searchsorted(first.step, steps).clip(max=len(first.step) - 1)
    return {
        "step": list(steps[kept].tolist()),
        # Time since the launch at the end of the step; NaN where it is unknown.
        "elapsed_s": cells(np.where(first.step[rows] == steps, first.t_s[rows], np.nan)[kept]),
        "eta_s": cells(eta_s[kept]),
        "low_s": cells(low_s[kept]),
        "high_s": cells(high_s[kept]),
        "actual_s": cells(actual_s[kept]),
    }


def phase_table(work: RankWork, window: Window) -> Columns:
    """A row for each phase, in the order of a step; {} where none was timed."""
    if len(work.steps) == 0 or not work.phases:
        return {}
    mean_ms = {name: float(values.mean()) for name, values in work.phases.items()}
    named_ms = sum(mean_ms.values())
    total_ms = max(float(work.total_ms.mean()), named_ms)
    if total_ms <= 0:
        return {}
    mean_ms[OTHER] = total_ms - named_ms
    names: list[Scalar] = list(mean_ms)
    return {
        "phase": names,
        "mean_ms": list(mean_ms.values()),
        "share_pct": [100 * each_ms / total_ms for each_ms in mean_ms.values()],
        "first_step": [window.first_step] * len(names),
        "last_step": [window.last_step] * len(names),
        "n": [len(work.steps)] * len(names),
    }


def rank_table(tables: StepTables, work: RankWork, window: Window, most: int) -> Columns:
    """A row for each rank, of more than `most` the extremes; {} where fewer than two ranks have counted steps."""
    times = _times(tables, window)
    if times is None or len(times.ranks) < 2:
        return {}
    own_ms, wait_ms = _own_and_waiting(work, times, tables.world_size)
    kept = _kept_ranks(times.p50_ms, own_ms, most)
    locations = {location.rank: location for location in tables.locations}
    ranks = list(times.ranks[kept].tolist())
    at = [locations.get(rank) for rank in ranks]
    return {
        "rank": ranks,
        "host": [location.host if location else "" for location in at],
        "gpu": [location.gpu if location else "" for location in at],
        "iter_p50_ms": cells(times.p50_ms[kept]),
        "work_p50_ms": cells(own_ms[kept]),
        "wait_p50_ms": cells(wait_ms[kept]),
        "first_step": [window.first_step] * len(ranks),
        "last_step": [window.last_step] * len(ranks),
        "n": list(times.n[kept].tolist()),
    }


def _times(tables: StepTables, window: Window) -> _Times | None:
    """Times of the counted steps; None for a single rank, without any work: most runs of a large campaign have one."""
    rank = tables.steps["rank"].to_numpy()
    if rank[0] == rank[-1]:
        return None
    step, span, iter_ms = (tables.steps[name].to_numpy() for name in ("step", "span", "iter_ms"))
    kept = counted_rows(step, span, iter_ms, paused_rows(step, tables), window)
    rank, iter_ms = rank[kept], iter_ms[kept]
    if len(rank) == 0:
        return None
    grid = find_grid(rank, step[kept])
    if grid.is_full:
        table = iter_ms.reshape(len(grid.ranks), -1)
        return _Times(ranks=grid.ranks, p50_ms=row_medians(table), n=np.full(len(grid.ranks), table.shape[1]))
    parts = np.split(iter_ms, np.flatnonzero(np.diff(rank)) + 1)
    return _Times(ranks=grid.ranks, p50_ms=np.array([median(part) for part in parts]), n=np.array([len(part) for part in parts]))


def _own_and_waiting(work: RankWork, times: _Times, world_size: int) -> tuple[Floats, Floats]:
    """Medians by rank; NaN where work and waiting cannot be separated."""
    unknown = np.full(len(times.ranks), np.nan)
    is_whole = len(work.ranks) == world_size and np.array_equal(work.ranks, times.ranks)
    if not is_whole or len(work.steps) < MIN_STEPS_straggler or not any(name in work.phases for name in SYNCHRONISING):
        return unknown, unknown
    phase = synchronising_phase(work)
    if phase is None:
        return unknown, unknown
    waits = work.phases[phase] - work.phases[phase].min(axis=0)
    return row_medians(work.total_ms - waits), row_medians(waits)


def _kept_ranks(p50_ms: Floats, own_ms: Floats, most: int) -> Indices:
    if len(p50_ms) <= most:
        return np.arange(len(p50_ms))
    half = most // 2
    return np.union1d(kept_indices(p50_ms, most - half), kept_indices(own_ms, half, np.isfinite(own_ms)))
