"""What one run measured.

In: an attempt and its step tables. Out: `RunMeasure`. Throughput is the work of all ranks over the wall-clock time of the window:
see analyse.window. The seeds' figures, by their own rules, stand beside ours under the seeds' names.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.debug_cautions import debug_cautions
from seatrial.analyse.eta_points import eta_points, eta_quality, run_length_s
from seatrial.analyse.loop_times import loop_times
from seatrial.analyse.loss import loss_fall_pct, loss_falls
from seatrial.analyse.loss_course import loss_course
from seatrial.analyse.quantile import median, percentiles
from seatrial.analyse.run_cautions import run_cautions
from seatrial.analyse.seed_metrics import seed_cells
from seatrial.analyse.slow_steps import last_steps, slow_steps
from seatrial.analyse.startup import CLOCK_SLACK_S, startup_split
from seatrial.analyse.straggler import find_straggler
from seatrial.analyse.timing_points import SEED_ITER, seed_iter_of, timing_points
from seatrial.analyse.window import Counted, count_steps
from seatrial.analyse.with_samples import with_samples
from seatrial.eta.errors import of_mode
from seatrial.records.attempt import Attempt
from seatrial.records.eta import EtaPoint
from seatrial.records.health import LossCourse
from seatrial.records.measure import Cell, RunMeasure, TimingPoint
from seatrial.records.run_spec import RunSpec
from seatrial.records.steps import StepTables
from seatrial.records.telemetry import TelemetryTables
from seatrial.run_table.seed_columns import global_batch

FIRST_STEPS = (0, 1)
"""Scripts count their steps from either."""


def measure_run(attempt: Attempt, tables: StepTables, samples: TelemetryTables | None = None) -> RunMeasure:
    """Everything that can be said of one attempt; what cannot be is None, and a caution says why."""
    measured = _measure_steps(attempt, tables)
    measured = replace(
        measured,
        health=tables.health,
        debug=tables.debug,
        slow_signs=tables.slow_signs,
        reported=tables.reported,
        cautions=(*measured.cautions, *debug_cautions(tables.debug, attempt.spec.run)),
    )
    return measured if samples is None else with_samples(measured, attempt, tables, samples)


def _measure_steps(attempt: Attempt, tables: StepTables) -> RunMeasure:
    outcome, spec = attempt.outcome, attempt.spec
    duration_s = outcome.duration_s if outcome else None
    if tables.steps.is_empty():
        return RunMeasure(
            source=tables.source,
            world_size=tables.world_size,
            duration_s=duration_s,
            effective=tables.effective,
            cautions=tables.cautions,
        )
    spec = _with_own_cadence(spec, tables.steps)
    steps = _with_work(tables.steps, spec)
    rank0 = _first_rank(steps)
    counted = count_steps(steps, tables.pauses["step"], spec.timing.window)
    points = tables.timing_points or timing_points(rank0, spec.timing.log_every, spec.timing.timing_window)
    estimates = eta_points(steps, tables.pauses, spec, source=tables.source, told=tables.eta_points)
    asked = of_mode(estimates, spec.timing.eta_mode)
    losses = _told(rank0["loss"])
    return RunMeasure(
        source=tables.source,
        world_size=tables.world_size,
        hosts=len(attempt.nodes.nodes) if attempt.nodes else max(len({place.host for place in tables.places if place.host}), 1),
        **loop_times(steps, rank0),
        window=counted.window,
        **_throughput(counted, tables.world_size),
        **_distribution(counted),
        last_step=int(rank0["step"][-1]),
        startup_s=_startup_s(attempt, tables),
        first_loss=float(losses[0]) if len(losses) else None,
        last_loss=float(losses[-1]) if len(losses) else None,
        loss_falls=_loss_falls(losses, steps),
        loss_finite=_loss_finite(steps),
        loss_ranks=_loss_ranks(steps),
        loss_fall_pct=loss_fall_pct(losses),
        steps_done=steps_done(rank0["step"].to_numpy()),
        duration_s=duration_s,
        effective=tables.effective,
        seed=_seed(points, asked, steps, spec, tables),
        timing_points=points,
        eta_points=estimates,
        eta_quality=eta_quality(asked, run_length_s(rank0)) if asked else None,
        startup=startup_split(attempt, tables),
        slow_steps=slow_steps(counted, _phases_p50_ms(rank0, counted)),
        last_steps=last_steps(counted, tables.world_size),
        loss_course=_loss_course(rank0),
        straggler=find_straggler(tables, counted.window),
        cautions=(*tables.cautions, *run_cautions(counted, tables, spec)),
    )


def _with_own_cadence(spec: RunSpec, steps: pl.DataFrame) -> RunSpec:
    """A script whose length the plan does not know gets its timing points as one does whose length it knows: ten, half of them tail."""
    if spec.steps is not None:
        return spec
    count = int(steps["step"].to_numpy().max()) + 1
    log_every = max(1, min(spec.timing.log_every, count // 10))
    tail_points = max(1, min(spec.timing.tail_points, count // log_every // 2))
    return replace(spec, timing=replace(spec.timing, log_every=log_every, tail_points=tail_points))


def _with_work(steps: pl.DataFrame, spec: RunSpec) -> pl.DataFrame:
    """Samples and tokens as the step says them, else as the plan does; and the seeds' iter_ms beside ours."""
    work = {"samples": spec.workload.samples_per_step, "tokens": spec.workload.tokens_per_step}
    columns = [_filled(column, work[column.name]) if column.name in work else column for column in steps.get_columns()]
    return pl.DataFrame([*columns, seed_iter_of(steps)])


def _filled(column: pl.Series, value: float | None) -> pl.Series:
    return column.fill_null(float(value)) if value is not None and column.null_count() else column


def _first_rank(steps: pl.DataFrame) -> pl.DataFrame:
    """Rows of the lowest rank: the table goes by rank, so they are its head, and a slice copies nothing."""
    rank = steps["rank"].to_numpy()
    return steps.head(int(np.searchsorted(rank, rank[0], side="right")))


def _told(values: pl.Series) -> npt.NDArray[np.float64]:
    """The values that are there; one that is no number (NaN) is."""
    return (values.drop_nulls() if values.null_count() else values).to_numpy()


class _Rates(TypedDict, total=False):
    window_s: float | None
    steps_per_s: float | None
    samples_per_s: float | None
    tokens_per_s: float | None


class _Spread(TypedDict, total=False):
    wall_p50_ms: float | None
    wall_p90_ms: float | None
    wall_p99_ms: float | None
    wall_p90_over_p50: float | None


def _throughput(counted: Counted, world_size: int) -> _Rates:
    """Rates by wall clock. Where fewer ranks are timed than there are, each stands for as many."""
    if counted.window is None or counted.window_s <= 0:
        return {}
    scale = world_size / counted.ranks / counted.window_s
    return {
        "window_s": counted.window_s,
        "steps_per_s": counted.window.n / counted.window_s,
        "samples_per_s": counted.samples * scale if counted.samples is not None else None,
        "tokens_per_s": counted.tokens * scale if counted.tokens is not None else None,
    }


def _distribution(counted: Counted) -> _Spread:
    if counted.window is None:
        return {}
    p50, p90, p99 = percentiles(counted.wall_ms, (50, 90, 99))
    return {"wall_p50_ms": p50, "wall_p90_ms": p90, "wall_p99_ms": p99, "wall_p90_over_p50": p90 / p50 if p50 > 0 else None}


def _startup_s(attempt: Attempt, tables: StepTables) -> float | None:
    """Launch to the end of the first step on the slowest rank; None when it is not known or the wall clock was set in between."""
    if attempt.outcome is None or not attempt.outcome.started_t or (tables.source != "events" and not _prints_its_first(tables.steps)):
        return None
    step, t = tables.steps["step"].to_numpy(), tables.steps["t"].to_numpy()
    ended = t[(step == step.min()) & ~np.isnan(t)].tolist()
    startup_s = max(ended, default=math.nan) - attempt.outcome.started_t
    return float(startup_s) if 0 <= startup_s <= attempt.outcome.duration_s + CLOCK_SLACK_S else None


def _prints_its_first(steps: pl.DataFrame) -> bool:
    """Whether a script's first line tells the end of its first step: it speaks of that step, and came without the next line."""
    first_step, at = steps["step"][0], steps["m"][:2].to_list()
    return first_step in FIRST_STEPS and (len(at) < 2 or at[0] is None or at[0] != at[1])


def _loss_falls(rank0: npt.NDArray[np.float64], steps: pl.DataFrame) -> bool | None:
    """As rank 0's losses say, unless a rank has one that is no number: the ranks train one model."""
    return loss_falls(rank0) if np.isfinite(_told(steps["loss"])).all() else False


def _phases_p50_ms(rank0: pl.DataFrame, counted: Counted) -> float | None:
    """Median sum of phases of the window's steps, where phases were told: of launches that run ahead it is above the steps' own times."""
    if counted.window is None or rank0["fwd_ms"].null_count() == len(rank0):
        return None
    step, told = rank0["step"].to_numpy(), rank0[SEED_ITER].to_numpy()
    inside = (step >= counted.window.first_step) & (step <= counted.window.last_step) & np.isfinite(told)
    return median(told[inside]) if inside.any() else None


def _loss_finite(steps: pl.DataFrame) -> bool | None:
    told = _told(steps["loss"])
    return bool(np.isfinite(told).all()) if len(told) else None


def _loss_ranks(steps: pl.DataFrame) -> int:
    rank, loss = steps["rank"].to_numpy(), steps["loss"]
    told = rank[loss.is_not_null().to_numpy()] if loss.null_count() else rank
    # The table goes by rank: each begins where the number changes.
    return int(np.count_nonzero(np.diff(told))) + 1 if len(told) else 0


def steps_done(numbers: npt.NDArray[np.int64]) -> int:
    """How many steps the first rank's rows speak of: scripts count from 0 or from 1, and may print every so many."""
    first, last = int(numbers[0]), int(numbers[-1])
    gap = int(np.diff(numbers).min()) if len(numbers) > 1 else 1
    if first == 0:
        return last + 1
    return last if first <= gap else last - first + gap


def _loss_course(rank0: pl.DataFrame) -> LossCourse | None:
    loss = rank0["loss"]
    told = loss.is_not_null().to_numpy() if loss.null_count() else None
    return loss_course(rank0["step"].to_numpy(), loss.to_numpy(), told)


def _seed(
    points: tuple[TimingPoint, ...], estimates: tuple[EtaPoint, ...], steps: pl.DataFrame, spec: RunSpec, tables: StepTables
) -> dict[str, Cell]:
    batch = global_batch(spec, tables.effective, tables.world_size)
    batch = batch if batch is not None else _told_batch(steps, tables)
    return seed_cells(points, estimates, steps, spec, source=tables.source, global_batch=batch)


def _told_batch(steps: pl.DataFrame, tables: StepTables) -> float | int | None:
    """Samples of all ranks in one step as the steps say, where all say the same."""
    samples = steps["samples"].to_numpy()
    if not np.isfinite(samples[0]) or not (samples == samples[0]).all():
        return None
    batch = float(samples[0]) * tables.world_size
    return int(batch) if batch.is_integer() else batch
