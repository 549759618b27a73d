"""The page opens from a file: no complaint, no network, every chart drawn, nothing that its policy does not allow."""

from __future__ import annotations

from pathlib import Path

from seatrial.paths import CampaignPaths
from tests.browser.conftest import OpenPage

SECTIONS = [
    "verdict", "ranking", "found", "heat", "steps", "distribution", "phases", "startup", "timeline", "ranks", "eta", "failures", "cautions",
    "machine", "files",
]  # fmt: skip
CHARTS = {"ranking", "heat", "steps", "loss", "step_times", "phases", "startup", "timeline", "ranks", "eta"}
NUM_MARKS = "svg => svg.querySelectorAll('.role-mark path, .role-mark line, .role-mark text').length"


def test_it_asks_for_nothing_but_itself_and_complains_of_nothing(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html)
    assert opened.requests == [campaign.summary_html.resolve().as_uri()]
    assert opened.troubles == []


def test_every_chart_is_drawn_with_marks(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html)
    assert {chart: opened.state(chart) for chart in opened.charts()} == dict.fromkeys(opened.charts(), "drawn")
    marks = {chart: opened.page.locator(f"#chart-{chart} svg").first.evaluate(NUM_MARKS) for chart in opened.charts()}
    assert all(marks.values()), marks


def test_a_campaign_with_every_table_has_every_chart(made: CampaignPaths, open_page: OpenPage) -> None:
    assert set(open_page(made.summary_html).charts()) == CHARTS


def test_a_real_campaign_without_a_gpu_has_every_chart(real: CampaignPaths, open_page: OpenPage) -> None:
    assert set(open_page(real.summary_html).charts()) == CHARTS


def test_sections_stand_in_their_order_and_none_is_empty(campaign: CampaignPaths, open_page: OpenPage) -> None:
    page = open_page(campaign.summary_html).page
    assert page.evaluate("() => [...document.querySelectorAll('main section[id]')].map(one => one.id)") == SECTIONS
    words = {name: len(page.locator(f"section#{name}").inner_text().split()) for name in SECTIONS}
    assert all(count > 3 for count in words.values()), words


def test_the_verdict_is_in_the_first_screen(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html, height=900)
    box = opened.page.locator("#verdict h2, #verdict h1, #verdict").first.bounding_box()
    assert box is not None and box["y"] < 500
    assert "FAIL" in opened.page.locator("#verdict").inner_text() or "PASS" in opened.page.locator("#verdict").inner_text()


def test_charts_are_drawn_on_demand_before_the_browser_is_idle(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, wait=False)
    opened.page.wait_for_function("() => window.seatrial")
    opened.page.evaluate("() => window.seatrial.drawAll()")
    assert {opened.state(chart) for chart in opened.charts()} == {"drawn"}


def test_a_page_that_was_tampered_with_does_not_run_what_was_added(made: CampaignPaths, open_page: OpenPage, tmp_path: Path) -> None:
    text = made.summary_html.read_text()
    added = "<script>window.__xss = 1</script><img src=x onerror='window.__xss = 2'><script src='https://example.invalid/a.js'></script>"
    copy = tmp_path / "tampered.html"
    # The last one: the same word may stand inside a script, which must stay as it was.
    before, end, after = text.rpartition("</body>")
    copy.write_text(before + added + end + after)
    opened = open_page(copy)
    assert opened.page.evaluate("() => window.__xss") is None
    assert len(opened.breaches("script-src")) >= 3
    # Refused before it was asked for: nothing has left the machine.
    assert opened.requests == [copy.as_uri()]
    assert {opened.state(chart) for chart in opened.charts()} == {"drawn"}
    opened.troubles.clear()


def test_a_script_that_was_changed_is_refused(made: CampaignPaths, open_page: OpenPage, tmp_path: Path) -> None:
    text = made.summary_html.read_text()
    copy = tmp_path / "changed.html"
    changed = text.replace("window.seatrial", "window.__xss = 1; window.seatrial")
    assert changed != text
    copy.write_text(changed)
    opened = open_page(copy, wait=False)
    opened.page.wait_for_timeout(500)
    assert opened.page.evaluate("() => window.__xss") is None
    assert opened.breaches("script-src")
    opened.troubles.clear()
