"""What one run measured.

In: an attempt and its step tables. Out: `RunMeasure`. Throughput is the work of all ranks over the wall-clock time of the window:
see analyse.window. The seeds' figures, by their own rules, stand beside ours under the seeds' names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from seatrial.analyse.seed_metrics import seed_cells
from seatrial.analyse.timing_points import SEED_ITER, seed_iter_ms, timing_points
from seatrial.analyse.window import Counted, count_steps
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.measure import Cell, RunMeasure, TimingPoint
from seatrial.records.run_spec import RunSpec
from seatrial.records.steps import StepTables
from seatrial.seed_columns import global_batch

LEAST_LOSSES = 8


def measure_run(attempt: Attempt, tables: StepTables) -> RunMeasure:
    """Everything that can be said of one attempt; what cannot be is None, and a caution says why."""
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
    rank0 = steps.filter(pl.col("rank") == steps["rank"].min())
    counted = count_steps(steps, tables.pauses["step"], spec.timing.window)
    points = tables.timing_points or timing_points(rank0, spec.timing.log_every, spec.timing.timing_window)
    losses = rank0["loss"].drop_nulls().to_list()
    return RunMeasure(
        source=tables.source,
        world_size=tables.world_size,
        window=counted.window,
        **_throughput(counted, tables.world_size),
        **_distribution(counted),
        last_step=int(rank0["step"].to_list()[-1]),
        startup_s=_startup_s(attempt, rank0),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        loss_falls=loss_falls(losses),
        duration_s=duration_s,
        effective=tables.effective,
        seed=_seed(points, steps, spec, tables),
        timing_points=points,
        cautions=(*tables.cautions, *_window_cautions(counted, spec), *_missing_ranks(counted, tables, spec)),
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
    work = spec.workload
    return steps.with_columns(
        pl.col("samples").fill_null(pl.lit(work.samples_per_step, pl.Float64)),
        pl.col("tokens").fill_null(pl.lit(work.tokens_per_step, pl.Float64)),
        seed_iter_ms().alias(SEED_ITER),
    )


def _throughput(counted: Counted, world_size: int) -> dict[str, float | None]:
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


def _distribution(counted: Counted) -> dict[str, float | None]:
    if counted.window is None:
        return {}
    p50, p90, p99 = (float(value) for value in np.percentile(counted.wall_ms, (50, 90, 99)))
    return {"wall_p50_ms": p50, "wall_p90_ms": p90, "wall_p99_ms": p99, "wall_p90_over_p50": p90 / p50 if p50 > 0 else None}


def _startup_s(attempt: Attempt, rank0: pl.DataFrame) -> float | None:
    """Launch to the end of the first step; None when the wall clock was set back in between."""
    first_t = rank0["t"].to_list()[0]
    if attempt.outcome is None or not attempt.outcome.started_t or first_t is None:
        return None
    startup_s = float(first_t) - attempt.outcome.started_t
    return startup_s if startup_s >= 0 else None


def loss_falls(losses: list[float]) -> bool | None:
    """Whether the last quarter's median loss is below the first quarter's; None below eight losses, False for a loss that is no number."""
    if losses and not math.isfinite(losses[-1]):
        return False
    finite = [loss for loss in losses if math.isfinite(loss)]
    if len(finite) < LEAST_LOSSES:
        return None
    quarter = len(finite) // 4
    return bool(np.median(finite[-quarter:]) < np.median(finite[:quarter]))


def _seed(points: tuple[TimingPoint, ...], steps: pl.DataFrame, spec: RunSpec, tables: StepTables) -> dict[str, Cell]:
    batch = global_batch(spec, tables.effective, tables.world_size)
    if batch is None:
        samples = steps["samples"].to_numpy()
        batch = float(samples[0]) * tables.world_size if (samples == samples[0]).all() else None
    return seed_cells(points, steps, spec, source=tables.source, global_batch=batch)


def _window_cautions(counted: Counted, spec: RunSpec) -> Iterator[Caution]:
    window = counted.window
    if window is None:
        asked = "" if spec.timing.window == "auto" else f" in the window {spec.timing.window} that the plan gives"
        yield Caution(
            kind="too_few_steps",
            subject=spec.run,
            numbers={"rows": counted.usable},
            text=f"Only {counted.rows} timed steps are left{asked}, of {counted.usable}: no throughput can be given; run more steps.",
        )
    elif not window.steady:
        yield Caution(
            kind="no_steady_state",
            subject=spec.run,
            numbers={"n": window.n, "warmup_steps": window.warmup_steps},
            text=f"No steady state was found: {window.reason}.",
        )


def _missing_ranks(counted: Counted, tables: StepTables, spec: RunSpec) -> list[Caution]:
    if counted.window is None or tables.source != "events" or spec.rank_scope != "all" or counted.ranks >= tables.world_size:
        return []
    return [
        Caution(
            kind="ranks_not_seen",
            subject=spec.run,
            numbers={"ranks": counted.ranks, "world_size": tables.world_size},
            text=f"Only {counted.ranks} of {tables.world_size} ranks wrote steps; the others are taken to have done the same work.",
        )
    ]
