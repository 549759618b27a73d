"""The smoke record: the rows by which the bring-up of several hosts is judged, run by run.

In: CampaignResults. Out: for every ended run on many hosts, and every run of mode `smoke`, names and values: topology, the times of
launcher and steps, what follows from them, timing, loss, quality of the estimates, and health checks. Times are by the harness's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from seatrial.records.measure import RunHealth, RunMeasure, TimingPoint
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest.labels import labels_of
from seatrial.report.numbers import NONE, figure, instant
from seatrial.run_table.seed_columns import global_batch
from seatrial.wording import named

SMOKE = "smoke"
MOST_RECORDS = 3
"""Of the page of a pull request; summary.json has them all."""
EXPLAINED = (
    "Start-up is launch to the end of the first step on the slowest rank, the loop from the first step's end to the last's; steps and "
    "samples a second are by wall clock over the measured window. Medians are over the rolling timing points (`timing_points.csv`)."
)


@dataclass(frozen=True, kw_only=True)
class SmokeRecord:
    """One run."""

    run: str
    rows: dict[str, str]
    """Name → value as people read it; '–' where it is not known."""


def smoke_records(results: CampaignResults) -> list[SmokeRecord]:
    """By run name."""
    labels = labels_of(results)
    asked = [run for run in results.runs if run.attempt.current and run.measure and run.attempt.outcome and is_asked(run)]
    return [SmokeRecord(run=labels.run(run.attempt.spec), rows=dict(_rows(run, run.measure))) for run in asked if run.measure]


def is_asked(run: MeasuredRun) -> bool:
    """Whether a run has such a record: it ran on many hosts, or its plan is a smoke test."""
    nodes = run.attempt.nodes
    return run.attempt.spec.mode == SMOKE or (nodes is not None and len(nodes.nodes) > 1)


def _rows(run: MeasuredRun, measure: RunMeasure) -> Iterator[tuple[str, str]]:
    yield "outcome", run.outcome.value if run.outcome else NONE
    yield "launch topology", _topology(run, measure)
    yield from _times(run, measure)
    yield from _speed(run, measure)
    yield "iter p50, median", _point_median(measure.timing_points, "iter_ms_p50")
    yield "step p50, median", _point_median(measure.timing_points, "step_ms_p50")
    yield "loss, first → last", _loss(measure)
    quality = measure.eta_quality
    yield "ETA error, median", NONE if quality is None else _seconds(quality.median_error_s)
    yield "ETA error, p90", NONE if quality is None else _seconds(quality.p90_error_s)
    if measure.health is not None:
        yield from _health(measure.health, is_ok=run.outcome is Outcome.OK)


def _topology(run: MeasuredRun, measure: RunMeasure) -> str:
    nodes = run.attempt.nodes
    shares = [node.ranks for node in nodes.nodes] if nodes is not None and nodes.nodes else [measure.world_size]
    each = str(shares[0]) if len(set(shares)) == 1 else f"{min(shares)} to {max(shares)}"
    return f"nnodes={len(shares)}, procs per node={each}, world size={measure.world_size}"


def _times(run: MeasuredRun, measure: RunMeasure) -> Iterator[tuple[str, str]]:
    outcome = run.attempt.outcome
    started_t = outcome.started_t if outcome and outcome.started_t else None
    ended_t = started_t + outcome.duration_s if outcome and started_t is not None else None
    yield "launcher start", _instant(started_t)
    yield "first step", _instant(measure.first_step_t)
    yield "last step", _instant(measure.last_step_t) + (f" (step {measure.last_step})" if measure.last_step is not None else "")
    yield "launcher end", _instant(ended_t)
    yield "start-up before the first step", _seconds(measure.startup_s)
    yield "loop, first step → last", _seconds(measure.loop_s)
    yield "end to end", _seconds(measure.duration_s)


def _speed(run: MeasuredRun, measure: RunMeasure) -> Iterator[tuple[str, str]]:
    window = f" (steps {measure.window.first_step}–{measure.window.last_step}, n = {measure.window.n})" if measure.window else ""
    yield "steps/s", figure(measure.steps_per_s) + (window if measure.steps_per_s is not None else "")
    batch = global_batch(run.attempt.spec, measure.effective, measure.world_size)
    if batch is None and measure.samples_per_s is not None and measure.steps_per_s:
        batch = round(measure.samples_per_s / measure.steps_per_s)
    with_batch = f" (global batch {batch:g})" if batch is not None and measure.samples_per_s is not None else ""
    yield "samples/s", figure(measure.samples_per_s) + with_batch


def _point_median(points: tuple[TimingPoint, ...], name: str) -> str:
    known = [value for point in points if (value := point.values.get(name)) is not None]
    return f"{figure(median(known))} ms ({len(known)} timing points)" if known else NONE


def _loss(measure: RunMeasure) -> str:
    if measure.first_loss is None or measure.last_loss is None:
        return NONE
    return f"{figure(measure.first_loss)} → {figure(measure.last_loss)}"


def _health(health: RunHealth, *, is_ok: bool) -> Iterator[tuple[str, str]]:
    fatal = "none" if is_ok or not health.tracebacks else f"{health.tracebacks}: see the failures"
    yield "fatal tracebacks", fatal
    well = "not told" if health.ranks_ended_well is None else f"{health.ranks_ended_well} of {health.ranks}"
    yield "workers ended well", well
    yield "harmless warnings", named([f"{one.id} × {one.lines}" for one in health.harmless]) if health.harmless else "none"


def _instant(seconds: float | None) -> str:
    return NONE if seconds is None else instant(seconds)


def _seconds(seconds: float | None) -> str:
    # Beyond a millisecond nothing here is known.
    return NONE if seconds is None else f"{seconds:.3f} s" if seconds < 10 else f"{figure(seconds)} s"
