"""The page of a thousand runs is small enough to be sent, opens whole, and answers.

Its tables are made as the charts' stage leaves them for so many runs. How long it takes is measured by benchmarks/page_scale.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.charts.detail import detail_for
from seatrial.analyse.charts.telemetry import telemetry_table
from seatrial.paths import CampaignPaths
from seatrial.records.charts import CHART_TABLES, DRAWN_GPU, DRAWN_HOST, TELEMETRY, WHOSE, Columns, Detail
from seatrial.records.telemetry import TelemetryTables
from tests.browser.campaigns import write_page
from tests.browser.conftest import MakeOnce, OpenPage

GROUPS, REPEATS = 250, 4
LARGEST_BYTES = 10_000_000
GPUS = 8
ENDS_S, EVERY_S = 600.0, 2.0


def write_thousand(folder: Path) -> CampaignPaths:
    from tests.unit.report.html.made_page import made_page

    detail = detail_for(GROUPS * REPEATS)
    data = made_page(groups=GROUPS, repeats=REPEATS, ranks=GPUS, gpus=GPUS, steps=detail.steps, telemetry=False)
    tables = {**data.tables, "telemetry": telemetry(data.tables["runs"], detail)}
    return write_page(folder / "out", replace(data, tables=tables))


def telemetry(runs: Columns, detail: Detail) -> Columns:
    """What is kept of ten minutes of samples, every one of them another number."""
    found: Columns = {name: [] for name in (*WHOSE, *CHART_TABLES[TELEMETRY])}
    for number, whose in enumerate(zip(runs["run"], runs["group"], runs["repeat"], strict=True)):
        table = telemetry_table(samples(number), 0.0, detail.telemetry)
        for name, cell in zip(WHOSE, whose, strict=True):
            found[name] += [cell] * len(table["value"])
        for name, cells in table.items():
            found[name] += cells
    return found


def samples(number: int) -> TelemetryTables:
    chance = np.random.default_rng(number)
    at_s = np.arange(0.5, ENDS_S, EVERY_S) + chance.uniform(0, 0.4)
    host = {"epoch_sec": at_s, **{metric: chance.uniform(0, 1000, len(at_s)) for metric in DRAWN_HOST}}
    of_gpus = {metric: chance.uniform(0, 1000, GPUS * len(at_s)) for metric in DRAWN_GPU}
    gpu = {"epoch_sec": np.repeat(at_s, GPUS), "gpu_index": np.tile(np.arange(float(GPUS)), len(at_s)), **of_gpus}
    return TelemetryTables(host=pl.DataFrame(host), gpu=pl.DataFrame(gpu))


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
    opened.assert_redrawn("steps", lambda: opened.page.locator("#run-list input:visible").check())
