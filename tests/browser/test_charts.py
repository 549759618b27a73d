"""Tooltips, picks, and the rows the page draws."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.paths import CampaignPaths
from seatrial.records.columns import RunCharts
from seatrial.report.html.data import MAX_PICKED, ChartData, PageData, Picks, drawn_spec, page_data
from seatrial.report.html.page import all_charts
from tests.browser.campaigns import write_page
from tests.browser.conftest import MakeOnce, OpenPage
from tests.browser.opened import DRAWN_WITHIN_MS, Opened
from tests.browser.test_page import CHARTS
from tests.unit.report.html.made_page import HOSTILE, made_page, made_results

MAX_MARKS = 12
TOOLTIP = "#vg-tooltip-element"
SHOWN_WITHIN_MS = 500
WINDOW = re.compile(r"\bwindow\b", re.IGNORECASE)
COUNT = re.compile(r"(^|\W)n\b\W*\d", re.MULTILINE)


@pytest.mark.parametrize("chart", sorted(CHARTS))
def test_a_mark_tells_its_window_and_n(chart: str, made: CampaignPaths, open_page: OpenPage) -> None:
    told = tooltips(open_page(made.summary_html), chart)
    assert told, "no mark of the chart has a tooltip"
    assert [text for text in told if not WINDOW.search(text) or not COUNT.search(text)] == []


def test_line_and_band_of_predictions_tell_the_nearest(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    kinds = [mark["kind"] for mark in opened.ask("marks", ["eta", 1000])]
    assert any("mark-line" in kind for kind in kinds) and any("mark-area" in kind for kind in kinds)
    # Every one of them has a word to say, however busy the machine is.
    told = tooltips(opened, "eta", 1000, within_ms=30_000)
    assert len(told) == len(kinds)
    for text in told:
        step, window, count = (re.search(rf"^{name}:?\s+(.+)$", text, re.MULTILINE) for name in ("step", "window", "n"))
        assert window and count
        if step:
            assert (window[1], count[1]) == (f"steps 0–{step[1]}", f"{int(step[1]) + 1}")
        else:
            assert (window[1], count[1]) == ("whole run", "1")


def tooltips(opened: Opened, chart: str, most: int = MAX_MARKS, within_ms: int = SHOWN_WITHIN_MS) -> list[str]:
    """What is shown over some of its marks, in the order of the marks; those that show nothing are left out."""
    from playwright.sync_api import TimeoutError as NotShown

    told = []
    for mark in opened.ask("marks", [chart, most]):
        opened.page.mouse.move(mark["x"], mark["y"])
        try:
            opened.page.wait_for_selector(f"{TOOLTIP}.visible", timeout=within_ms)
        except NotShown:
            continue
        told.append(opened.page.inner_text(TOOLTIP))
        opened.page.mouse.move(1, 1)
        opened.page.wait_for_selector(f"{TOOLTIP}.visible", state="hidden", timeout=30_000)
    return told


BOXES = "#run-list input[type=checkbox]"


def num_picked(opened: Opened) -> int:
    return opened.page.locator(f"{BOXES}:checked").count()


def test_a_run_picked_is_drawn_and_one_let_go_is_not(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    before = num_picked(opened)
    for chart in ("steps", "loss"):
        opened.assert_redrawn(chart, lambda: opened.page.locator(f"{BOXES}:checked").first.uncheck())
    assert num_picked(opened) == before - 2
    opened.assert_redrawn("eta", lambda: opened.page.locator(f"{BOXES}:not(:checked)").first.check())


def test_a_ninth_run_is_refused_and_the_page_says_so(real: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(real.summary_html)
    for _ in range(MAX_PICKED + 2):
        free = opened.page.locator(f"{BOXES}:not(:checked):not(:disabled)")
        if num_picked(opened) == MAX_PICKED or not free.count():
            break
        free.first.click()
    assert num_picked(opened) == MAX_PICKED
    rest = opened.page.locator(f"{BOXES}:not(:checked)").first
    if rest.is_enabled():
        rest.click()
    assert num_picked(opened) == MAX_PICKED
    words = opened.page.locator("[role=status], [aria-live]").all_inner_texts()
    assert any("8" in text for text in words), words


def test_the_filter_leaves_the_runs_that_match(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html)
    all_names = [text.strip() for text in opened.page.locator("#run-list label:visible").all_inner_texts()]
    wanted = all_names[-1].split()[0]
    opened.page.fill("#run-filter", wanted)
    opened.page.wait_for_function(
        "before => [...document.querySelectorAll('#run-list label')].filter(one => one.checkVisibility()).length < before",
        arg=len(all_names),
    )
    left = opened.page.locator("#run-list label:visible").all_inner_texts()
    assert left and all(wanted in text for text in left)
    opened.page.fill("#run-filter", "")
    opened.page.wait_for_function(
        "before => [...document.querySelectorAll('#run-list label')].filter(one => one.checkVisibility()).length === before",
        arg=len(all_names),
    )


def test_axes_of_the_heat_map_can_be_changed(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html)
    x, y = opened.page.input_value("#heat-x"), opened.page.input_value("#heat-y")
    assert x != y
    opened.assert_redrawn("heat", lambda: opened.page.select_option("#heat-x", y))
    # Both at once would draw a diagonal: the other axis gives way.
    assert opened.page.input_value("#heat-x") == y
    assert opened.page.input_value("#heat-y") != y


def test_steps_are_drawn_by_time(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html)
    opened.assert_redrawn("steps", lambda: opened.page.select_option("#steps-by", "time"))
    opened.assert_redrawn("steps", lambda: opened.page.select_option("#steps-by", "step"))


def test_another_run_is_seen_in_the_timeline(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html)
    others = opened.page.eval_on_selector_all("#timeline-run option:not(:checked)", "all => all.map(one => one.value)")
    assert others
    opened.assert_redrawn("timeline", lambda: opened.page.select_option("#timeline-run", others[0]))
    assert opened.state("timeline") == "drawn"


def test_open_rows_follow_what_is_picked(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    opened.page.click("#chart-steps summary")
    opened.page.wait_for_selector("#chart-steps details tbody tr")
    before = opened.page.inner_text("#chart-steps details")
    opened.page.locator(f"{BOXES}:checked").first.uncheck()
    opened.page.wait_for_function("before => document.querySelector('#chart-steps details').innerText !== before", arg=before)


def test_nothing_picked_says_so_and_does_not_break(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    while num_picked(opened):
        opened.page.locator(f"{BOXES}:checked").first.uncheck()
    opened.page.wait_for_selector("#chart-steps[data-state=empty]", timeout=DRAWN_WITHIN_MS)
    assert len(opened.page.inner_text("#chart-steps [data-plot]").split()) > 2
    opened.page.locator(BOXES).first.check()
    opened.page.wait_for_selector("#chart-steps[data-state=drawn]", timeout=DRAWN_WITHIN_MS)


BRING_NEWS = """async timeline => {
  const payload = JSON.parse(document.getElementById("page-data").textContent);
  payload.picks.timeline = timeline;
  await window.seatrial.replace({ main: document.querySelector("main").innerHTML, payload });
  return window.seatrial.picked().timeline;
}"""


def test_news_move_the_timeline_only_where_nobody_chose_it(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    first, second, third = opened.page.eval_on_selector_all("#timeline-run option", "all => all.map(one => one.value)")[:3]
    assert opened.page.evaluate(BRING_NEWS, second) == second
    opened.page.select_option("#timeline-run", third)
    assert opened.page.evaluate(BRING_NEWS, first) == third
    assert opened.page.input_value("#timeline-run") == third


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
    {"yes_or_number": False, "text_or_number": "1e3", "may_be_none": None, "rate_s": 0.000123456789, "{x}": True},
    {"yes_or_number": 1, "text_or_number": 1000, "may_be_none": 8, "rate_s": 1.0, "{x}": False},
    {"yes_or_number": 2, "text_or_number": True, "may_be_none": 16, "rate_s": 1234567.8, "{x}": None},
    {"yes_or_number": True, "text_or_number": 0.5, "may_be_none": None, "rate_s": 2.0, "{x}": True},
)
LOSSES = (float("nan"), 3.0, float("inf"), 4.0, float("-inf"), None)


def mixed_page() -> PageData:
    """Four groups, on axes of every kind, with losses that are no numbers."""
    results = made_results(name=HOSTILE, steps=40, axes=())
    rows = [replace(row, summary=replace(row.summary, axes=axes)) for row, axes in zip(results.ranking.groups, LEVELS, strict=True)]
    groups = tuple(row.summary for row in rows)
    runs = [replace(run, charts=with_losses(run.charts)) if run.charts else run for run in results.runs]
    return page_data(replace(results, runs=tuple(runs), groups=groups, ranking=replace(results.ranking, groups=tuple(rows))))


def with_losses(charts: RunCharts) -> RunCharts:
    steps = charts.tables["steps"]
    losses = [LOSSES[at % len(LOSSES)] for at, _ in enumerate(steps["loss"])]
    return replace(charts, tables={**charts.tables, "steps": {**steps, "loss": losses}})


def write_mixed(folder: Path) -> CampaignPaths:
    return write_page(folder / "out", mixed_page())


@pytest.fixture(scope="session")
def mixed(make_once: MakeOnce) -> CampaignPaths:
    return make_once(write_mixed)


@pytest.mark.parametrize(("name", "make"), [("made", made_page), ("mixed", mixed_page)])
def test_the_page_draws_what_pictures_draw(
    name: str, make: Callable[[], PageData], request: pytest.FixtureRequest, open_page: OpenPage
) -> None:
    paths: CampaignPaths = request.getfixturevalue(name)
    opened = with_documents(open_page(paths.summary_html, wait=False))
    assert set(given(opened)) == set(CHARTS)
    assert_same_documents(opened, make().drawn)


def test_so_it_does_when_the_reader_has_picked(mixed: CampaignPaths, open_page: OpenPage) -> None:
    opened = with_documents(open_page(mixed.summary_html, wait=False))
    before = picked(opened)
    opened.page.select_option("#steps-by", "time")
    opened.page.select_option("#heat-x", before.y)
    opened.page.select_option("#timeline-run", index=2)
    after = picked(opened.drawn())
    assert (after.x, after.y, after.by) == (before.y, before.x, "time")
    assert_same_documents(opened, replace(mixed_page().drawn, picks=after))


def test_so_it_does_on_every_axis(mixed: CampaignPaths, open_page: OpenPage) -> None:
    data = mixed_page().drawn
    opened = with_documents(open_page(mixed.summary_html, wait=False))
    axes = opened.page.locator("#heat-x option").evaluate_all("all => all.map(one => one.value)")
    assert len(axes) == len(LEVELS[0])
    for axis in axes:
        opened.page.select_option("#heat-x", axis)
        picks = picked(opened.drawn())
        assert picks.x == axis
        assert_same_documents(opened, replace(data, picks=picks))


def picked(opened: Opened) -> Picks:
    picks = opened.page.evaluate("window.seatrial.picked()")
    return Picks(**{**picks, "runs": tuple(picks["runs"])})


def with_documents(opened: Opened) -> Opened:
    """The page anew, with its documents kept."""
    opened.page.add_init_script(KEEP_DOCUMENTS)
    opened.page.reload()
    return opened.drawn()


def given(opened: Opened) -> dict[str, Any]:
    documents: dict[str, Any] = opened.page.evaluate("window.given")
    return documents


def assert_same_documents(opened: Opened, data: ChartData) -> None:
    of_page = given(opened)
    for chart in all_charts(data):
        of_picture = json.loads(json.dumps(drawn_spec(chart, data), allow_nan=False))
        own, other = (without_width(spec) for spec in (of_page[chart.id], of_picture))
        assert own.pop("datasets")["rows"] == other.pop("datasets")["rows"], chart.id
        assert own == other, chart.id


def without_width(spec: dict[str, Any]) -> dict[str, Any]:
    """Panels are as wide as the page is."""
    return {**spec, "vconcat": [{**panel, "width": 0} for panel in spec["vconcat"]]} if "vconcat" in spec else spec
