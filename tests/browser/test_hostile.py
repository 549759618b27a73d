"""Hostile names and log lines stay text."""

from __future__ import annotations

import pytest

from seatrial.core.paths import CampaignPaths
from tests.browser import hostile
from tests.browser.conftest import MakeOnce, OpenPage
from tests.browser.opened import Opened
from tests.browser.test_charts import tooltips

RAN = "() => window.__xss"
# What no text of ours brings into the document.
PLANTED = "img[src='x'], svg[onload], [onerror], [onload], [onclick], a[href^='javascript'], iframe, object, embed, main script"
FEW_MARKS = 4


@pytest.fixture(params=[hostile.run_hostile, hostile.write_hostile])
def hostile_campaign(request: pytest.FixtureRequest, make_once: MakeOnce) -> CampaignPaths:
    return make_once(request.param)


def assert_nothing_ran(opened: Opened) -> None:
    assert opened.page.evaluate(RAN) is None
    planted = opened.page.eval_on_selector_all(PLANTED, "all => all.map(one => one.outerHTML.slice(0, 200))")
    assert planted == []


def test_nothing_runs_when_the_page_is_opened(hostile_campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(hostile_campaign.summary_html)
    assert_nothing_ran(opened)
    assert opened.requests == [hostile_campaign.summary_html.resolve().as_uri()]
    assert {opened.state(chart) for chart in opened.charts()} == {"drawn"}


def test_the_words_are_read_as_they_are(hostile_campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(hostile_campaign.summary_html)
    opened.page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true })")
    text = opened.page.locator("body").inner_text()
    assert "<img src=x onerror=window.__xss=" in text
    assert "</script><script>window.__xss=" in text
    assert "{{7*7}}" in text
    assert "\u2028" not in text and "\u202e" not in text and "\x1b" not in text


def test_nothing_runs_in_tooltips(hostile_campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(hostile_campaign.summary_html)
    told = [text for chart in opened.charts() for text in tooltips(opened, chart, FEW_MARKS)]
    assert told
    assert_nothing_ran(opened)


def test_nothing_runs_in_the_rows_of_charts(hostile_campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(hostile_campaign.summary_html)
    for chart in opened.charts():
        opened.page.click(f"#chart-{chart} summary")
        opened.page.wait_for_selector(f"#chart-{chart} details[open] tbody tr")
    assert_nothing_ran(opened)


def test_nothing_runs_in_controls(hostile_campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(hostile_campaign.summary_html)
    opened.page.fill("#run-filter", "<img src=x onerror=window.__xss=31>")
    opened.page.fill("#run-filter", "")
    for select in opened.page.locator("select:visible").all():
        for value in select.locator("option").evaluate_all("all => all.map(one => one.value)")[:4]:
            select.select_option(value)
    opened.drawn()
    assert_nothing_ran(opened)
    assert "failed" not in {opened.state(chart) for chart in opened.charts()}


def test_nothing_runs_without_script_or_on_paper(hostile_campaign: CampaignPaths, open_page: OpenPage) -> None:
    still = open_page(hostile_campaign.summary_html, java_script_enabled=False)
    assert still.page.locator(PLANTED).count() == 0
    opened = open_page(hostile_campaign.summary_html)
    opened.page.emulate_media(media="print")
    opened.page.pdf()
    assert_nothing_ran(opened)


def test_long_words_do_not_break_the_page(hostile_campaign: CampaignPaths, open_page: OpenPage) -> None:
    assert open_page(hostile_campaign.summary_html, width=380, height=800).ask("edges") == []
