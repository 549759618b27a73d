"""What the page draws is what pictures are drawn from: draw.js and rows_for.py go by the same rules, and are held together here.

The documents are taken where the page hands them to Vega, of a campaign with all that the two could see differently: axes of mixed kinds,
losses that are no numbers, names that markup or titles could be.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.paths import CampaignPaths
from seatrial.report.html.page_data import read_page_data
from seatrial.report.html.rows_for import Picks, drawn_spec
from seatrial.report.html.specs.all_charts import all_charts
from tests.browser.campaigns import write_page
from tests.browser.conftest import MakeOnce, OpenPage
from tests.browser.opened import Opened
from tests.browser.test_page_opens import CHARTS
from tests.unit.report.html.made_page import HOSTILE, columns, made_page, rows_of

# What Vega is given, by chart, before it is drawn.
KEEP_DOCUMENTS = """
window.given = {};
Object.defineProperty(window, "vegaEmbed", {
  set(draw) {
    this.drawn = (plot, spec, options) => {
      window.given[plot.closest("figure").dataset.chart] = structuredClone(spec);
      return draw(plot, spec, options);
    };
  },
  get() {
    return this.drawn;
  },
});
"""
LEVELS: tuple[dict[str, Any], ...] = (
    {"axis_yes_or_number": False, "axis_text_or_number": "1e3", "axis_may_be_none": None, "axis_rate_s": 0.000123456789, "axis_{x}": True},
    {"axis_yes_or_number": 1, "axis_text_or_number": 1000, "axis_may_be_none": 8, "axis_rate_s": 1.0, "axis_{x}": False},
    {"axis_yes_or_number": 2, "axis_text_or_number": True, "axis_may_be_none": 16, "axis_rate_s": 1234567.8, "axis_{x}": None},
    {"axis_yes_or_number": True, "axis_text_or_number": 0.5, "axis_may_be_none": None, "axis_rate_s": 2.0, "axis_{x}": True},
)
LOSSES = (float("nan"), 3.0, float("inf"), 4.0, float("-inf"), None)


def write_mixed(folder: Path) -> CampaignPaths:
    """Four groups, on axes of every kind."""
    data = made_page(name=HOSTILE, steps=40, axes=())
    groups = [{**row, **levels} for row, levels in zip(rows_of(data.tables["groups"]), LEVELS, strict=True)]
    steps = [{**row, "loss": LOSSES[at % len(LOSSES)]} for at, row in enumerate(rows_of(data.tables["steps"]))]
    tables = {**data.tables, "groups": columns(groups), "steps": columns(steps)}
    return write_page(folder / "out", replace(data, tables=tables))


@pytest.fixture(scope="session")
def mixed(make_once: MakeOnce) -> CampaignPaths:
    return make_once(write_mixed)


@pytest.mark.parametrize("name", ["made", "mixed"])
def test_the_page_draws_what_pictures_draw(name: str, request: pytest.FixtureRequest, open_page: OpenPage) -> None:
    paths: CampaignPaths = request.getfixturevalue(name)
    opened = with_documents(open_page(paths.summary_html, wait=False))
    assert set(given(opened)) == set(CHARTS)
    assert_alike(opened, paths, None)


def test_they_are_alike_when_the_reader_has_picked(mixed: CampaignPaths, open_page: OpenPage) -> None:
    opened = with_documents(open_page(mixed.summary_html, wait=False))
    before = opened.page.evaluate("window.seatrial.picked()")
    opened.page.select_option("#steps-by", "time")
    opened.page.select_option("#heat-x", before["y"])
    opened.page.select_option("#timeline-run", index=2)
    opened.drawn()
    after = opened.page.evaluate("window.seatrial.picked()")
    assert (after["x"], after["y"], after["by"]) == (before["y"], before["x"], "time")
    assert_alike(opened, mixed, after)


def test_they_are_alike_on_every_axis(mixed: CampaignPaths, open_page: OpenPage) -> None:
    opened = with_documents(open_page(mixed.summary_html, wait=False))
    axes = opened.page.locator("#heat-x option").evaluate_all("all => all.map(one => one.value)")
    assert len(axes) == len(LEVELS[0])
    for axis in axes:
        opened.page.select_option("#heat-x", axis)
        opened.drawn()
        picks = opened.page.evaluate("window.seatrial.picked()")
        assert picks["x"] == axis
        assert_alike(opened, mixed, picks)


def with_documents(opened: Opened) -> Opened:
    """The page anew, with its documents kept."""
    opened.page.add_init_script(KEEP_DOCUMENTS)
    opened.page.reload()
    return opened.drawn()


def given(opened: Opened) -> dict[str, Any]:
    documents: dict[str, Any] = opened.page.evaluate("window.given")
    return documents


def assert_alike(opened: Opened, paths: CampaignPaths, picks: Picks | None) -> None:
    """`picks` are None where nobody has picked: then what both begin with must be the same."""
    data, of_page = read_page_data(paths), given(opened)
    for chart in all_charts(data):
        of_picture = json.loads(json.dumps(drawn_spec(chart, data, picks), allow_nan=False))
        own, other = (without_width(spec) for spec in (of_page[chart.id], of_picture))
        assert own.pop("datasets")["rows"] == other.pop("datasets")["rows"], chart.id
        assert own == other, chart.id


def without_width(spec: dict[str, Any]) -> dict[str, Any]:
    """Panels are as wide as the page is."""
    return {**spec, "vconcat": [{**panel, "width": 0} for panel in spec["vconcat"]]} if "vconcat" in spec else spec
