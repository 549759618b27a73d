"""The campaign as it lies on disk at this moment, ready to be shown: finished runs as the report has them, and the one under way.

In: a campaign's folder, which is only read. Out: how a `Looker` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from seatrial.campaign.live_charts import with_live_charts
from seatrial.campaign.measuring import Measuring
from seatrial.campaign.remembered import Remembered
from seatrial.campaign.results import gather_results
from seatrial.paths import CampaignPaths
from seatrial.records.live import LiveState
from seatrial.records.results import CampaignResults
from seatrial.report.html import document as page
from seatrial.report.html.page_data import PageData
from seatrial.web.changed import mark
from seatrial.web.looker import Shown, Source
from seatrial.web.now import Now, read_now
from seatrial.web.packed import Packed

LIVE_SCRIPT = page.TEMPLATES / "live.js"

Running = dict[str, int]


def source_of(paths: CampaignPaths, line: Callable[[LiveState], str]) -> Source:
    """`line` puts a state into words."""
    measuring = Remembered()
    script = LIVE_SCRIPT.read_text(encoding="utf-8")

    def now() -> Now:
        return read_now(paths, line)

    return Source(
        now=now,
        # Who runs it is no file of the folder, and the page says that too.
        mark=lambda: (mark(paths), running(now())),
        shown=lambda version: shown(take(paths, measuring, running(now())), version, script),
    )


def running(now: Now) -> Running | None:
    """How far somebody who runs the campaign is; None where nobody does."""
    return {"finished": now.state.finished, "count": now.state.count} if now.is_run and now.state else None


def take(paths: CampaignPaths, measuring: Measuring, running: Running | None = None) -> PageData:
    """What a report would show now, with what the run under way has written so far, and that somebody runs it."""
    from seatrial.report.html.live_data import page_data_of

    results = gather_results(paths, charts=True, measuring=measuring)
    data = page_data_of(with_live_charts(results))
    return replace(data, summary={**data.summary, "running": _progress(results)}) if running else data


def _progress(results: CampaignResults) -> Running:
    """Of all that the plans ask for: who goes on with a campaign counts only what is left of it."""
    ended = sum(run.attempt.current and run.outcome is not None and not run.outcome.is_cut_short for run in results.runs)
    return {"finished": ended, "count": ended + len(results.pending)}


def shown(data: PageData, version: str, script: str) -> Shown:
    """The page as summary.html has it, with the script that keeps it new."""
    parts = {"version": version, **page.document_parts(data)}
    return Shown(
        page=lambda: page.assembled(parts, live=script, head=f'<meta name="seatrial-version" content="{version}">'),
        parts=Packed(json.dumps(parts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))),
    )
