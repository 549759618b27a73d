"""The campaign as it lies on disk at this moment, ready to be shown: finished runs as the report has them, and the one under way.

In: a campaign's folder, which is only read. Out: how a `Looker` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from seatrial.campaign.live_charts import with_live_charts
from seatrial.campaign.measuring import Measuring
from seatrial.campaign.remembered import Remembered
from seatrial.campaign.results import gather_results
from seatrial.paths import CampaignPaths
from seatrial.records.live import LiveState
from seatrial.report.html import document as page
from seatrial.report.html.page_data import PageData
from seatrial.web.changed import mark
from seatrial.web.looker import Shown, Source
from seatrial.web.now import read_now
from seatrial.web.packed import Packed

LIVE_SCRIPT = page.TEMPLATES / "live.js"


def source_of(paths: CampaignPaths, line: Callable[[LiveState], str]) -> Source:
    """`line` puts a state into words."""
    measuring = Remembered()
    script = LIVE_SCRIPT.read_text(encoding="utf-8")
    return Source(
        now=lambda: read_now(paths, line),
        mark=lambda: mark(paths),
        shown=lambda version: shown(take(paths, measuring), version, script),
    )


def take(paths: CampaignPaths, measuring: Measuring) -> PageData:
    """What a report would show now, with what the run under way has written so far."""
    from seatrial.report.html.live_data import page_data_of

    return page_data_of(with_live_charts(gather_results(paths, charts=True, measuring=measuring)))


def shown(data: PageData, version: str, script: str) -> Shown:
    """The page as summary.html has it, with the script that keeps it new."""
    parts = {"version": version, **page.document_parts(data)}
    return Shown(
        page=lambda: page.document(data, live=script, head=f'<meta name="seatrial-version" content="{version}">'),
        parts=Packed(json.dumps(parts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))),
    )
