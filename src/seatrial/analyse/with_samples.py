"""What the machine did while a run was measured, and what that explains.

In: the run's measure of its steps, its tables and the samples of all its hosts. Out: the measure with telemetry, hosts, memory and causes.
"""

from __future__ import annotations

from dataclasses import replace

from seatrial.analyse.clock import clock_jump
from seatrial.analyse.host_measures import host_measures
from seatrial.analyse.memory_course import memory_courses
from seatrial.analyse.telemetry import telemetry_figures
from seatrial.analyse.telemetry_cautions import telemetry_cautions
from seatrial.analyse.uneven import uneven_causes
from seatrial.analyse.uneven_span import Span
from seatrial.analyse.window_span import window_span
from seatrial.records.attempt import Attempt
from seatrial.records.measure import RunMeasure
from seatrial.records.steps import StepTables
from seatrial.records.telemetry import TelemetryTables


def with_samples(measured: RunMeasure, attempt: Attempt, tables: StepTables, samples: TelemetryTables) -> RunMeasure:
    """What the machine did meanwhile, and what that explains."""
    window = window_span(tables, measured.window)
    # Samples of a clock that was set meanwhile cannot be laid beside the steps.
    laid = TelemetryTables() if clock_jump(tables.steps) else samples
    others = attempt.node_telemetry
    figures = telemetry_figures(laid, attempt.telemetry, window.first_t, window.last_t, window.samples, others)
    cautions = telemetry_cautions(figures, attempt.telemetry, attempt.spec.run, others)
    cores = _cores(attempt) if laid.hosts else attempt.provenance.cpu_count or None
    return replace(
        measured,
        telemetry=figures,
        by_host=host_measures(laid, Span(first_t=window.first_t, last_t=window.last_t, window=measured.window)),
        memory=memory_courses(laid, tables.steps),
        uneven=uneven_causes(
            tables,
            laid,
            attempt.telemetry,
            measured.window,
            window.first_t,
            window.last_t,
            measured.straggler,
            cores=cores,
            others=others,
        ),
        cautions=(*measured.cautions, *samples.cautions, *cautions),
    )


def _cores(attempt: Attempt) -> dict[str, int]:
    """By host, where it told its processors."""
    told = {name: facts.get("cpu_count", "") for name, facts in attempt.provenance.hosts.items()}
    return {name: int(count) for name, count in told.items() if count.isdecimal() and int(count) > 0}
