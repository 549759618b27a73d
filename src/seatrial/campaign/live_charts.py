"""What can be drawn of an attempt that is still running, for whoever looks on.

In: an attempt without an outcome, whose files grow meanwhile. Out: `RunCharts` of what it has written so far, with the window that it would
have if it ended now. Nothing is written. When it was launched is told by the file that is written last before it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.charts import Detail, RunCharts
from seatrial.records.results import CampaignResults


def with_live_charts(results: CampaignResults) -> CampaignResults:
    """The results with something to draw of the runs that are under way too."""
    from seatrial.analyse.charts.detail import detail_for

    if not any(run.attempt.current and run.outcome is None for run in results.runs):
        return results
    detail = detail_for(sum(run.attempt.current for run in results.runs))
    runs = [
        replace(run, charts=charts_of_running(run.attempt, detail)) if run.attempt.current and run.outcome is None else run
        for run in results.runs
    ]
    return replace(results, runs=tuple(runs))


def charts_of_running(attempt: Attempt, detail: Detail) -> RunCharts:
    """What it has written so far; nothing where that cannot be read, since the next look comes soon."""
    from seatrial.analyse.charts.run import run_charts
    from seatrial.analyse.measure import measure_run
    from seatrial.collect.steps import read_steps
    from seatrial.collect.telemetry import read_telemetry

    try:
        tables, samples = read_steps(attempt), read_telemetry(attempt)
        measure = measure_run(attempt, tables, samples)
        return run_charts(attempt, tables, samples, measure, detail, launched_t=launched_t(attempt))
    except Exception:
        # Files that are written while they are read may look like anything.
        return RunCharts()


def launched_t(attempt: Attempt) -> float | None:
    """Wall clock of the launch as the folder tells it: what the machine is has been gathered just before."""
    paths = AttemptPaths(Path(attempt.folder))
    for path in (paths.provenance, paths.agent_order, paths.environment):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return None
