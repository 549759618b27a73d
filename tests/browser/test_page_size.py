"""The page of a thousand runs is small enough to be sent, opens whole, and answers.

Its tables are made as the charts' stage leaves them for so many runs. How long it takes is measured by benchmarks/page_scale.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.analyse.charts.detail import detail_for
from seatrial.paths import CampaignPaths
from seatrial.records.charts import DRAWN_GPU, DRAWN_HOST, Columns, Detail
from tests.browser.campaigns import write_page
from tests.browser.conftest import MakeOnce, OpenPage

GROUPS, REPEATS = 250, 4
LARGEST_BYTES = 10_000_000
GPUS = 2
ENDS_S = 600.0


def write_thousand(folder: Path) -> CampaignPaths:
    from tests.unit.report.html.made_page import made_page

    detail = detail_for(GROUPS * REPEATS)
    data = made_page(groups=GROUPS, repeats=REPEATS, ranks=GPUS, gpus=GPUS, steps=detail.steps, telemetry=False)
    tables = {**data.tables, "telemetry": telemetry(data.tables["runs"], detail)}
    return write_page(folder / "out", replace(data, tables=tables))


def telemetry(runs: Columns, detail: Detail) -> Columns:
    """As many points of each metric as are kept, every one another number."""
    series = [("host", metric) for metric in DRAWN_HOST] + [(f"gpu {gpu}", metric) for gpu in range(GPUS) for metric in DRAWN_GPU]
    every_s = ENDS_S / detail.telemetry
    rows = [
        (run, group, repeat, source, metric, at * every_s + number / 7, 1000 * abs(math.sin(number * 97 + at * 13 + len(metric))))
        for number, (run, group, repeat) in enumerate(zip(runs["run"], runs["group"], runs["repeat"], strict=True))
        for source, metric in series
        for at in range(detail.telemetry)
    ]
    return dict(zip(("run", "group", "repeat", "source", "metric", "t_s", "value"), map(list, zip(*rows, strict=True)), strict=True))


@pytest.fixture(scope="session")
def thousand(make_once: MakeOnce) -> CampaignPaths:
    return make_once(write_thousand)


def test_it_is_small_enough_to_be_sent(thousand: CampaignPaths) -> None:
    assert thousand.summary_html.stat().st_size < LARGEST_BYTES


def test_it_opens_whole_and_the_list_of_runs_answers(thousand: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(thousand.summary_html)
    assert {opened.state(chart) for chart in opened.charts()} == {"drawn"}
    assert opened.ask("edges") == []
    opened.page.fill("#run-filter", "g250_r4")
    opened.page.wait_for_function(
        "() => [...document.querySelectorAll('#run-list label')].filter(one => one.checkVisibility()).length === 1"
    )
    opened.redrawn("steps", lambda: opened.page.locator("#run-list input:visible").check())
