"""Charts of running attempts, for the live page. In: the results of a campaign. Out: the same, with charts of what has been written so
far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seatrial.core.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.columns import Detail, RunCharts
from seatrial.records.results import CampaignResults


def add_live_charts(results: CampaignResults) -> CampaignResults:
    """The results with charts of the running attempts as well."""
    from seatrial.analyse.charts.run_charts import detail_for

    if not any(run.attempt.current and run.outcome is None for run in results.runs):
        return results
    detail = detail_for(sum(run.attempt.current for run in results.runs))
    runs = [
        replace(run, charts=draw_running(run.attempt, detail)) if run.attempt.current and run.outcome is None else run
        for run in results.runs
    ]
    return replace(results, runs=tuple(runs))


def draw_running(attempt: Attempt, detail: Detail) -> RunCharts:
    """Charts of what a running attempt has written so far, with the window it would have if it ended now; empty where its files cannot be
    read: the page is refreshed soon."""
    from seatrial.analyse.charts.run_charts import run_charts
    from seatrial.analyse.measure import measure_run
    from seatrial.collect.steps import read_steps
    from seatrial.collect.telemetry import read_telemetry

    try:
        tables, samples = read_steps(attempt), read_telemetry(attempt)
        found = measure_run(attempt, tables, samples)
        return run_charts(attempt, tables, samples, found, detail, launched_t=launched_t(attempt))
    except Exception:
        # Files that are being written may hold anything.
        return RunCharts()


def launched_t(attempt: Attempt) -> float | None:
    """Wall clock of the launch, from the file that is written last before it."""
    paths = AttemptPaths(Path(attempt.folder))
    for path in (paths.provenance, paths.agent_order, paths.environment):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return None
