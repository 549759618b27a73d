"""Everything that can be drawn of one attempt.

In: the attempt, its step tables and samples as they are in memory while it is measured, what was measured, and the detail asked for. Out:
`RunCharts`, whose tables hold plain lists: they travel between processes. A table that would be empty is not there. Where the wall clock
was set meanwhile, samples and spans cannot be laid beside the steps and are left out, as they are from the figures.
"""

from __future__ import annotations

from seatrial.analyse.charts.eta import eta_table
from seatrial.analyse.charts.first_rank import FirstRank, first_rank
from seatrial.analyse.charts.phases import phase_table
from seatrial.analyse.charts.ranks import rank_table
from seatrial.analyse.charts.spans import span_table
from seatrial.analyse.charts.step_times import step_time_table
from seatrial.analyse.charts.steps import step_table
from seatrial.analyse.charts.telemetry import Telemetry, telemetry_series
from seatrial.analyse.clock import clock_jump
from seatrial.analyse.straggler_work import rank_work
from seatrial.records.attempt import Attempt
from seatrial.records.charts import ETA, PHASES, RANKS, SPANS, STEP_TIMES, STEPS, TELEMETRY, Columns, Detail, RunCharts
from seatrial.records.measure import RunMeasure
from seatrial.records.steps import StepTables
from seatrial.records.telemetry import TelemetryTables


def run_charts(
    attempt: Attempt,
    tables: StepTables,
    samples: TelemetryTables | None,
    measure: RunMeasure | None,
    detail: Detail,
    *,
    launched_t: float | None = None,
) -> RunCharts:
    """The tables of one attempt. `launched_t` is when it was launched, of one that has no outcome yet to say so."""
    found: dict[str, Columns] = {}
    if launched_t is None and attempt.outcome is not None and attempt.outcome.started_t > 0:
        launched_t = attempt.outcome.started_t
    jumped = clock_jump(tables.steps) is not None if len(tables.steps) else False
    first = first_rank(tables, launched_t, jumped=jumped)
    if first is not None:
        found |= _of_steps(attempt, tables, first, measure, detail)
    series = Telemetry()
    if not jumped:
        origin_t = first.origin_t if first is not None else launched_t
        laid = samples or TelemetryTables()
        series = telemetry_series(laid, origin_t, detail.telemetry)
        found[TELEMETRY] = series.table
        found[SPANS] = span_table(tables, first, laid.gpu, origin_t, detail, laid.hosts)
    drawn = {name: columns for name, columns in found.items() if columns}
    return RunCharts(tables=drawn, gpus=series.gpus, gpus_drawn=series.gpus_drawn, hosts=series.hosts, hosts_drawn=series.hosts_drawn)


def _of_steps(attempt: Attempt, tables: StepTables, first: FirstRank, measure: RunMeasure | None, detail: Detail) -> dict[str, Columns]:
    window = measure.window if measure is not None else None
    found = {STEPS: step_table(first, window, detail.steps)}
    if measure is not None:
        found[ETA] = eta_table(measure.eta_points, attempt.spec.timing.eta_mode, first, detail.eta)
    if window is not None:
        work = rank_work(tables, window)
        found[STEP_TIMES] = step_time_table(tables, first, window)
        found[PHASES] = phase_table(work, window)
        found[RANKS] = rank_table(tables, work, window, min(detail.steps, MOST_RANKS))
    return found


MOST_RANKS = 1024
"""As many can be told apart on a wide screen; of more the extremes are kept."""
