"""The campaign as it is on disk now: the page with its finished and running attempts.

In: a campaign's folder, which is only read. Out: a `Source` for the refresher.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from seatrial.core.paths import CampaignPaths
from seatrial.records.results import CampaignResults, LiveState
from seatrial.report.html import page
from seatrial.report.html.data import PageData, page_data
from seatrial.results.cache import MeasureCache
from seatrial.results.recompute import gather_results
from seatrial.results.workers import add_live_charts
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
