"""A rank that holds the others up, as a number a verdict rests on."""

from __future__ import annotations

from dataclasses import replace

from seatrial.judge.reading import FILES
from seatrial.records.health import Straggler
from seatrial.records.measure import RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Evidence

ONE_RANK = "one rank only: nothing to hold up"


def is_alone(measure: RunMeasure | None) -> bool:
    """A run of a single rank has nobody to hold up."""
    return measure is not None and measure.world_size == 1 and measure.straggler is None


def straggler_evidence(run: MeasuredRun, found: Straggler) -> Evidence:
    name = f"straggler score of rank {found.rank}" if found.rank is not None else "straggler score"
    return Evidence(
        subject=run.attempt.spec.run, name=name, value=found.score, file=FILES.per_run_metrics.name, window=steps_text(found), n=found.n
    )


def held_up_evidence(run: MeasuredRun, found: Straggler) -> Evidence:
    return replace(straggler_evidence(run, found), name="time that a step is held up", value=found.held_up_ms, unit="ms")


def steps_text(found: Straggler) -> str:
    return f"steps {found.first_step}–{found.last_step}" if found.first_step is not None else "no steps"
