"""The campaign as it is on disk now: the page with its finished and running attempts.

In: a campaign's folder, which is only read. Out: a `Source` for the refresher.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.columns import Detail, RunCharts
from seatrial.records.results import CampaignResults, LiveState
from seatrial.report.html import page
from seatrial.report.html.data import PageData, page_data
from seatrial.results.cache import MeasureCache
from seatrial.results.recompute import gather_results
from seatrial.web.compressed_text import CompressedText
from seatrial.web.refresher import PageVersion, Source, folder_marks
from seatrial.web.state import CampaignState, read_state

LIVE_SCRIPT = page.TEMPLATES / "live.js"
# Charts up to this much finer than needed are kept, so that a long campaign is redrawn a few times and not after every run.
LIVE_FINER_RATIO = 1.5


def folder_source(paths: CampaignPaths, line: Callable[[LiveState], str]) -> Source:
    """How the campaign in a folder is read; `line` gives a state as text."""
    cache = MeasureCache(LIVE_FINER_RATIO)
    script = LIVE_SCRIPT.read_text(encoding="utf-8")

    def now() -> CampaignState:
        return read_state(paths, line)

    return Source(
        now=now,
        # The page shows progress as well, which is in none of the marked files.
        mark=lambda: (folder_marks(paths), progress_mark(now())),
        shown=lambda version: page_version(read_page_data_now(paths, cache, running=progress_mark(now()) is not None), version, script),
    )


def progress_mark(now: CampaignState) -> tuple[int, int] | None:
    """Number of finished runs and of all runs; None while the campaign does not run."""
    return (now.state.finished, now.state.count) if now.is_run and now.state else None


def read_page_data_now(paths: CampaignPaths, cache: MeasureCache, *, running: bool = False) -> PageData:
    """What a report would show now, with what running attempts have written so far."""
    results = gather_results(paths, charts=True, cache=cache)
    data = page_data(add_live_charts(results))
    return replace(data, running=_progress(results)) if running else data


def _progress(results: CampaignResults) -> tuple[int, int]:
    """Number of finished runs and of all runs of the plans: a resumed campaign's own state counts only the rest."""
    ended = sum(run.attempt.current and run.outcome is not None and not run.outcome.is_cut_short for run in results.runs)
    return ended, ended + len(results.pending)


def page_version(data: PageData, version: str, script: str) -> PageVersion:
    """The page as in summary.html, with the script that keeps it current."""
    parts = {"version": version, **page.page_parts(data)}
    return PageVersion(
        page=lambda: page.assemble(parts, live=script, head=f'<meta name="seatrial-version" content="{version}">'),
        parts=CompressedText(json.dumps(parts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))),
    )


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
