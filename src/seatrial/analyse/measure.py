"""The measurements of one run.

In: an attempt, its step tables and, where it was sampled, its telemetry. Out: `RunMeasure`. Throughput is the work of all ranks over the
wall-clock time of the window (analyse.steady_state); stage 1's figures are computed too, under stage 1's names. What cannot be computed
is None, with a caution that gives the reason: too few steps, no steady state, one dominant step, lost steps or ranks, debug settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.eta_replay import eta_points, eta_quality, run_length_s
from seatrial.analyse.losses import loss_curve, loss_fall_pct, loss_falls
from seatrial.analyse.memory_leaks import memory_trends
from seatrial.analyse.statistics import median, percentiles
from seatrial.analyse.steady_state import CountedSteps, count_steps, find_clock_jump, ms_text
from seatrial.analyse.step_jitter import find_jitter_causes
from seatrial.analyse.step_times import (
    CLOCK_SLACK_S,
    STAGE1_ITER,
    last_steps,
    slow_steps,
    stage1_cells,
    stage1_iter_of,
    startup_split,
    timing_points,
)
from seatrial.analyse.stragglers import find_straggler
from seatrial.analyse.telemetry_summary import host_measures, telemetry_cautions, telemetry_figures, window_span
from seatrial.core.paths import ATTEMPT_FILES
from seatrial.core.text import MAX_NAMED, count, format_duration, join_names
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import Caution, Scalar
from seatrial.records.eta import EtaPoint, points_of_mode
from seatrial.records.measure import AUDIO_PER_SAMPLE, WORKLOAD_CAUTION, DebugSetting, EffectiveSetting, RunFacts, RunMeasure, TimingPoint
from seatrial.records.plan import RunSpec
from seatrial.records.run_table import global_batch
from seatrial.records.telemetry import TelemetryTables

FIRST_STEPS = (0, 1)
"""Scripts count their steps from 0 or from 1."""
DOMINANT_SHARE = 0.2
"""One step with this share of the window's time moves throughput by as much: more than most differences between groups."""
DOMINANT_OVER_MEDIAN = 2.0
"""Only a step this many times the median dominates: each of four equal steps has a quarter of the time."""
NAMED_RANKS = 4
"""A sentence names this many ranks; of more, it gives their number."""


def measure_run(
    attempt: Attempt, tables: StepTables, samples: TelemetryTables | None = None, earlier: Sequence[StepTables] = ()
) -> RunMeasure:
    """`earlier` are the tables of the attempts that this one resumed, oldest first: losses are those of the whole training."""
    measured = _measure_steps(attempt, tables, earlier)
    measured = replace(
        measured,
        audio_s_per_s=_audio_s_per_s(measured, tables),
        cautions=(*measured.cautions, *_debug_cautions(tables.debug, attempt.spec.run)),
    )
    return measured if samples is None else _add_telemetry(measured, attempt, tables, samples)


def _audio_s_per_s(measured: RunMeasure, tables: StepTables) -> float | None:
    length = tables.reported.get(AUDIO_PER_SAMPLE)
    if length is None or measured.samples_per_s is None or not (math.isfinite(length.value) and length.value > 0):
        return None
    return measured.samples_per_s * length.value


def _measure_steps(attempt: Attempt, tables: StepTables, earlier: Sequence[StepTables]) -> RunMeasure:
    outcome, spec = attempt.outcome, attempt.spec
    duration_s = outcome.duration_s if outcome else None
    facts: dict[str, Any] = {one.name: getattr(tables, one.name) for one in fields(RunFacts)}
    if tables.steps.is_empty():
        return RunMeasure(**facts, duration_s=duration_s, cautions=tables.cautions)
    spec = _with_default_cadence(spec, tables.steps)
    steps = _with_work(tables, spec)
    rank0 = _first_rank(steps)
    counted = count_steps(steps, tables.pauses["step"], spec.timing.window)
    points = tables.timing_points or timing_points(rank0, spec.timing.log_every, spec.timing.timing_window)
    estimates = eta_points(steps, tables.pauses, spec, source=tables.source, printed=tables.eta_points)
    planned_mode = points_of_mode(estimates, spec.timing.eta_mode)
    training = _whole_training(rank0, earlier)
    losses, all_losses = _not_null(training["loss"]), _not_null(steps["loss"])
    is_finite = bool(np.isfinite(all_losses).all())
    measured = RunMeasure(
        **facts,
        hosts=len(attempt.nodes.nodes) if attempt.nodes else max(len({location.host for location in tables.locations if location.host}), 1),
        window=counted.window,
        last_step=int(rank0["step"][-1]),
        startup_s=_startup_s(attempt, tables),
        first_loss=float(losses[0]) if len(losses) else None,
        last_loss=float(losses[-1]) if len(losses) else None,
        # The ranks train one model: rank 0's losses show whether it falls, any rank's whether it is finite.
        loss_falls=loss_falls(losses) if is_finite else False,
        loss_finite=is_finite if len(all_losses) else None,
        loss_ranks=_loss_ranks(steps),
        loss_fall_pct=loss_fall_pct(losses),
        steps_done=_steps_done(training["step"].to_numpy()),
        duration_s=duration_s,
        stage1=_stage1_cells_of_run(points, planned_mode, steps, spec, tables),
        timing_points=points,
        eta_points=estimates,
        eta_quality=eta_quality(planned_mode, run_length_s(rank0)) if planned_mode else None,
        startup=startup_split(attempt, tables),
        slow_steps=slow_steps(counted, _phases_p50_ms(rank0, counted)),
        last_steps=last_steps(counted, tables.world_size),
        loss_course=loss_curve(training["step"].to_numpy(), training["loss"].to_numpy(), training["loss"].is_not_null().to_numpy()),
        straggler=find_straggler(tables, counted.window),
        cautions=(*tables.cautions, *_run_cautions(counted, tables, spec)),
    )
    return _with_wall_clock(_with_loop_times(measured, steps, rank0), counted)


def _with_default_cadence(spec: RunSpec, steps: pl.DataFrame) -> RunSpec:
    """The spec; a script of unknown length gets ten timing points, half of them tail, as one of known length does."""
    if spec.steps is not None:
        return spec
    num_steps = int(steps["step"].to_numpy().max()) + 1
    log_every = max(1, min(spec.timing.log_every, num_steps // 10))
    tail_points = max(1, min(spec.timing.tail_points, num_steps // log_every // 2))
    return replace(spec, timing=replace(spec.timing, log_every=log_every, tail_points=tail_points))


def _with_work(tables: StepTables, spec: RunSpec) -> pl.DataFrame:
    """Samples and tokens as the step reports them, else as the plan does, per rank; and stage 1's iter_ms."""
    steps = tables.steps
    work = {"samples": spec.workload.samples_per_step, "tokens": spec.workload.tokens_per_step} if tables.ranks_known else {}
    columns = [
        column.fill_null(float(value)) if column.null_count() and (value := work.get(column.name)) is not None else column
        for column in steps.get_columns()
    ]
    return pl.DataFrame([*columns, stage1_iter_of(steps)])


def _first_rank(steps: pl.DataFrame) -> pl.DataFrame:
    """Rows of the lowest rank: the table is sorted by rank, so they are its head, and a slice copies nothing."""
    rank = steps["rank"].to_numpy()
    return steps.head(int(np.searchsorted(rank, rank[0], side="right")))


def _whole_training(rank0: pl.DataFrame, earlier: Sequence[StepTables]) -> pl.DataFrame:
    """Rank 0's steps and losses, after those of earlier attempts that were not repeated."""
    joined = rank0.select("step", "loss")
    for tables in reversed(earlier):
        if not tables.steps.is_empty():
            before = _first_rank(tables.steps).select("step", "loss")
            joined = pl.concat([before.filter(before["step"] < joined["step"][0]), joined])
    return joined


def _not_null(values: pl.Series) -> npt.NDArray[np.float64]:
    """The values that are not null; NaN is not null."""
    return (values.drop_nulls() if values.null_count() else values).to_numpy()


def _with_wall_clock(measured: RunMeasure, counted: CountedSteps) -> RunMeasure:
    """The measure with step times and rates by wall clock. Where only some ranks are timed, they stand for all."""
    if counted.window is None:
        return measured
    p50, p90, p99 = percentiles(counted.wall_ms, (50, 90, 99))
    ratio = p90 / p50 if p50 > 0 else None
    timed = replace(measured, wall_p50_ms=p50, wall_p90_ms=p90, wall_p99_ms=p99, wall_p90_over_p50=ratio)
    if counted.window_s <= 0:
        return timed
    scale = measured.world_size / counted.ranks / counted.window_s
    return replace(
        timed,
        window_s=counted.window_s,
        steps_per_s=counted.window.n / counted.window_s,
        samples_per_s=counted.samples * scale if counted.samples is not None else None,
        tokens_per_s=counted.tokens * scale if counted.tokens is not None else None,
    )


def _startup_s(attempt: Attempt, tables: StepTables) -> float | None:
    """Launch to the end of the first step on the slowest rank; None where it is unknown or the wall clock was set in between."""
    first_step, m = tables.steps["step"][0], tables.steps["m"][:2].to_list()
    # A script's first line marks the end of its first step if it reports that step and did not arrive together with the next line.
    is_timed = tables.source == "events" or (first_step in FIRST_STEPS and (len(m) < 2 or m[0] is None or m[0] != m[1]))
    if attempt.outcome is None or not attempt.outcome.started_t or not is_timed:
        return None
    step, t = tables.steps["step"].to_numpy(), tables.steps["t"].to_numpy()
    ended = t[(step == step.min()) & ~np.isnan(t)].tolist()
    startup_s = max(ended, default=math.nan) - attempt.outcome.started_t
    return float(startup_s) if 0 <= startup_s <= attempt.outcome.duration_s + CLOCK_SLACK_S else None


def _phases_p50_ms(rank0: pl.DataFrame, counted: CountedSteps) -> float | None:
    """Median sum of phases of the window's steps; it exceeds the steps' own times where the host runs ahead of the GPU."""
    if counted.window is None or rank0["fwd_ms"].null_count() == len(rank0):
        return None
    step, phases_ms = rank0["step"].to_numpy(), rank0[STAGE1_ITER].to_numpy()
    inside = (step >= counted.window.first_step) & (step <= counted.window.last_step) & np.isfinite(phases_ms)
    return median(phases_ms[inside]) if inside.any() else None


def _loss_ranks(steps: pl.DataFrame) -> int:
    having = steps["rank"].to_numpy()[steps["loss"].is_not_null().to_numpy()]
    # Sorted by rank: each begins where the number changes.
    return int(np.count_nonzero(np.diff(having))) + 1 if len(having) else 0


def _steps_done(numbers: npt.NDArray[np.int64]) -> int:
    """Steps that the first rank's rows cover: scripts count from 0 or from 1, and may print only every Nth."""
    first, last = int(numbers[0]), int(numbers[-1])
    gap = int(np.diff(numbers).min()) if len(numbers) > 1 else 1
    if first == 0:
        return last + 1
    return last if first <= gap else last - first + gap


def _stage1_cells_of_run(
    points: tuple[TimingPoint, ...], estimates: tuple[EtaPoint, ...], steps: pl.DataFrame, spec: RunSpec, tables: StepTables
) -> dict[str, Scalar]:
    batch = global_batch(spec, tables.effective, tables.world_size) if tables.ranks_known else None
    batch = batch if batch is not None else _reported_batch(steps, tables)
    return stage1_cells(points, estimates, steps, spec, source=tables.source, global_batch=batch)


def _reported_batch(steps: pl.DataFrame, tables: StepTables) -> float | int | None:
    """Samples of all ranks in one step, where all steps have the same."""
    samples = steps["samples"].to_numpy()
    if not np.isfinite(samples[0]) or not (samples == samples[0]).all():
        return None
    batch = float(samples[0]) * tables.world_size
    return int(batch) if batch.is_integer() else batch


def _add_telemetry(measured: RunMeasure, attempt: Attempt, tables: StepTables, samples: TelemetryTables) -> RunMeasure:
    span = window_span(tables, measured.window)
    # Samples cannot be matched with the steps if the clock was set meanwhile.
    matched = TelemetryTables() if find_clock_jump(tables.steps) else samples
    others = attempt.node_telemetry
    figures = telemetry_figures(matched, attempt.telemetry, span, others)
    cautions = telemetry_cautions(figures, attempt.telemetry, attempt.spec.run, others)
    cpus = {name: facts.get("cpu_count", "") for name, facts in attempt.provenance.hosts.items()}
    by_host = {name: int(number) for name, number in cpus.items() if number.isdecimal() and int(number) > 0}
    cores = by_host if matched.hosts else attempt.provenance.cpu_count or None
    return replace(
        measured,
        telemetry=figures,
        by_host=host_measures(matched, span),
        memory=memory_trends(matched, tables.steps),
        jitter_causes=find_jitter_causes(tables, matched, attempt.telemetry, span, measured.straggler, cores=cores, others=others),
        cautions=(*measured.cautions, *samples.cautions, *cautions),
    )


def _with_loop_times(measured: RunMeasure, steps: pl.DataFrame, rank0: pl.DataFrame) -> RunMeasure:
    """The measure with the ends of the slowest rank's first and last step, and rank 0's time between them on its monotonic clock."""
    step, t = steps["step"].to_numpy(), steps["t"].to_numpy()
    ends = [t[(step == number) & ~np.isnan(t)] for number in (step.min(), step.max())]
    first_t, last_t = (float(found.max()) if len(found) else None for found in ends)
    m = rank0["m"].to_numpy()
    lasted_s = float(m[-1] - m[0]) if len(m) > 1 else math.nan
    return replace(measured, first_step_t=first_t, last_step_t=last_t, loop_s=lasted_s if lasted_s >= 0 else None)


def _run_cautions(counted: CountedSteps, tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    """What weakens the figures of a run, the gravest first."""
    yield from _window_cautions(counted, spec)
    yield from _one_step_dominates(counted, spec)
    yield from _other_number_of_steps(tables, spec)
    yield from _clock_was_set(tables, spec)
    yield from _loss_not_finite(tables, spec)
    yield from _workload_warns(tables, spec)
    yield from _axes_without_effect(tables, spec)
    if tables.source == "events":
        yield from _steps_lost(counted, spec)
        yield from _missing_ranks(counted, tables, spec)


def _window_cautions(counted: CountedSteps, spec: RunSpec) -> Iterator[Caution]:
    window = counted.window
    if window is None:
        where = "" if spec.timing.window == "auto" else f" in the plan's window {spec.timing.window}"
        yield Caution(
            kind="too_few_steps",
            subject=spec.run,
            numbers={"rows": counted.usable},
            text=f"Only {counted.rows} of {counted.usable} timed steps count{where}, too few for a throughput: run more steps.",
        )
    elif not window.steady:
        yield Caution(
            kind="no_steady_state",
            subject=spec.run,
            numbers={"n": window.n, "warmup_steps": window.warmup_steps},
            text=f"No steady state was found: {window.reason}.",
        )


def _other_number_of_steps(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    """A caution for a script that stops early: it does less work than the others, so its duration means nothing."""
    if spec.steps is None or tables.steps.is_empty():
        return
    rank, step = tables.steps["rank"].to_numpy(), tables.steps["step"].to_numpy()
    # Sorted by rank, then step: a rank's last row is its last step.
    lasts = step[np.append(np.flatnonzero(np.diff(rank)), len(rank) - 1)]
    taken = sorted({int(last) + 1 for last in lasts})
    # Lines may come every Nth step, and scripts may count from 1.
    slack = int(tables.steps["span"].max() or 1)  # type: ignore[arg-type]
    if any(abs(spec.steps - number) > slack for number in taken):
        steps_text = " and ".join(map(str, taken if len(taken) < 3 else (taken[0], taken[-1])))
        yield Caution(
            kind="other_number_of_steps",
            subject=spec.run,
            numbers={"asked": spec.steps, "least": taken[0], "most": taken[-1]},
            text=f"The plan requests {spec.steps} steps, but its ranks took {steps_text}, so it did not do the same work as the others. "
            "Its log may show why; else fix `steps` in the plan.",
        )


def _clock_was_set(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    jump = find_clock_jump(tables.steps)
    if jump is None:
        return
    way = "forward" if jump.jump_s > 0 else "back"
    yield Caution(
        kind="clock_jump",
        subject=spec.run,
        numbers={"step": jump.step, "jump_s": round(jump.jump_s, 3)},
        text=f"The wall clock jumped {way} by {format_duration(abs(jump.jump_s))} before step {jump.step} ended (it was set, or the "
        "machine slept). Step times are not affected; telemetry cannot be matched with the steps and is left out.",
    )


def _loss_not_finite(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    loss = tables.steps["loss"]
    # Most runs have none, which needs no query. A step without a loss is NaN here.
    if int(np.count_nonzero(np.isfinite(loss.to_numpy()))) == len(loss) - loss.null_count():
        return
    losses = tables.steps.select("rank", "step", "loss").drop_nulls()
    odd = losses.filter(~losses["loss"].is_finite())
    if odd.is_empty():
        return
    first = odd.sort("step", "rank").row(0, named=True)
    yield Caution(
        kind="loss_not_finite",
        subject=spec.run,
        numbers={"step": int(first["step"]), "rank": int(first["rank"]), "losses": odd.height, "of": losses.height},
        text=f"The loss is {first['loss']} from step {first['step']} on (rank {first['rank']}; {odd.height} of {losses.height} losses are "
        "not finite). The timings come from a failed training.",
    )


def _workload_warns(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    for name, one in tables.effective.items():
        if one.reason.startswith(WORKLOAD_CAUTION):
            yield Caution(
                kind="workload_warns",
                subject=spec.run,
                numbers={"setting": name, "effective": one.effective},
                text=f"{name} is {one.effective}: {one.reason.removeprefix(WORKLOAD_CAUTION)}.",
            )


def _axes_without_effect(tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    """Axes whose requested value was not in effect; the ranking, which has all groups, reports those that ran the same."""
    for name, value in spec.axes.items():
        one = tables.effective.get(name, EffectiveSetting(name=name, requested=value, effective=value))
        if one.requested_text != one.effective_text and one.requested not in ("auto", None):
            yield Caution(
                kind="axis_without_effect",
                subject=spec.run,
                numbers={"axis": name, "requested": one.requested, "effective": one.effective},
                text=f"Axis {name} requested {one.requested}, the run used {'none' if one.effective is None else one.effective}"
                f"{f' ({one.reason})' if one.reason else ''}. The group name is misleading.",
            )


def _one_step_dominates(counted: CountedSteps, spec: RunSpec) -> Iterator[Caution]:
    if counted.window is None or counted.window_s <= 0:
        return
    took_ms = counted.wall_ms * counted.spans
    at = int(np.argmax(took_ms))
    share = float(took_ms[at]) / 1000 / counted.window_s
    if share < DOMINANT_SHARE or counted.wall_ms[at] <= DOMINANT_OVER_MEDIAN * np.median(counted.wall_ms):
        return
    step, span = int(counted.last_steps[at]), int(counted.spans[at])
    which = f"Step {step}" if span == 1 else f"Steps {step - span + 1} to {step}"
    took = f"{which} took {ms_text(float(took_ms[at]))}, {share:.0%} of the window's time"
    yield Caution(
        kind="one_step_dominates",
        subject=spec.run,
        numbers={"step": step, "ms": round(float(took_ms[at]), 3), "share": round(share, 4)},
        text=f"{took}. Mark checkpoints and evaluations with probe.pause, so that they do not count, or run more steps.",
    )


def _steps_lost(counted: CountedSteps, spec: RunSpec) -> Iterator[Caution]:
    if not counted.lost:
        return
    most = max(counted.lost.values())
    yield Caution(
        kind="steps_lost",
        subject=spec.run,
        numbers={"steps": most, "ranks": ",".join(map(str, counted.lost))},
        text=f"{_lacking(counted.lost)} {count(most, 'step')}; only steps that every rank has are counted. Check the "
        "events files for torn lines, and for a full disk or a second process that wrote there.",
    )


def _lacking(lost: Mapping[int, int]) -> str:
    if len(lost) == 1:
        return f"Rank {next(iter(lost))} lacks"
    who = f"Ranks {', '.join(map(str, lost))}" if len(lost) <= NAMED_RANKS else f"{len(lost)} ranks"
    return f"{who} lack up to"


def _missing_ranks(counted: CountedSteps, tables: StepTables, spec: RunSpec) -> Iterator[Caution]:
    if counted.window is None or spec.rank_scope != "all" or counted.ranks >= tables.world_size:
        return
    seen = set(tables.steps["rank"].unique().to_list())
    missing = [rank for rank in range(tables.world_size) if rank not in seen]
    named = ATTEMPT_FILES.events(missing[0]).name if missing else "one of them"
    files = named if len(missing) < 2 else f"{named} and {len(missing) - 1} more"
    yield Caution(
        kind="ranks_not_seen",
        subject=spec.run,
        numbers={"ranks": counted.ranks, "world_size": tables.world_size},
        text=f"Only {counted.ranks} of {tables.world_size} ranks wrote steps (none in {files}); the others are assumed to "
        "have done the same work.",
    )


def _debug_cautions(debug: Sequence[DebugSetting], run: str) -> Iterator[Caution]:
    """Which debug settings are on, their effect on the figures, and how to turn them off; settings that the plan varies get their own
    caution."""
    fixed = [one for one in debug if not one.varied]
    varied = [one for one in debug if one.varied]
    if fixed:
        yield Caution(
            kind="debug_on",
            subject=run,
            numbers={"settings": len(fixed)},
            text=f"Measured with debug or tracing on: {_named(fixed)}. {_effects(fixed)}. The figures are not compared with those of a "
            f"plain run: {_remedy(fixed)} and run again.",
        )
    if varied:
        yield Caution(
            kind="debug_varied",
            subject=run,
            numbers={"settings": len(varied)},
            text=f"The plan turns {_named(varied)} on in this run. A comparison with runs without it includes its cost. "
            f"{_effects(varied)}.",
        )


def _named(debug: Sequence[DebugSetting]) -> str:
    return join_names([f"{one.name}={one.value} ({one.source})" for one in debug])


def _effects(debug: Sequence[DebugSetting]) -> str:
    whys = list(dict.fromkeys(one.why for one in debug[:MAX_NAMED]))
    return ". ".join(why[:1].upper() + why[1:] for why in whys)


def _remedy(debug: Sequence[DebugSetting]) -> str:
    """How to turn off each kind of setting."""
    variables = [one.name for one in debug if one.name.isupper()]
    settings = [one.name for one in debug if not one.name.isupper()]
    parts = [f"unset {_all(variables)} in the shell or the plan's env"] if variables else []
    parts += [f"turn {_all(settings)} off in the plan"] if settings else []
    return ", ".join(parts)


def _all(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
