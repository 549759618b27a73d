"""summary.html opens without errors and requests, fits every width, and keeps its theme."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.analyse.charts.run_charts import detail_for
from seatrial.core.paths import CampaignPaths
from seatrial.records.columns import Columns
from seatrial.report.html.data import PageData
from tests.browser.campaigns import write_page
from tests.browser.conftest import MakeOnce, OpenPage
from tests.browser.opened import Opened
from tests.unit.report.html.made_page import made_page

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


def test_every_chart_is_there_also_without_a_gpu(campaign: CampaignPaths, open_page: OpenPage) -> None:
    assert set(open_page(campaign.summary_html).charts()) == CHARTS


def test_sections_are_in_their_order_and_none_is_empty(campaign: CampaignPaths, open_page: OpenPage) -> None:
    page = open_page(campaign.summary_html).page
    assert page.evaluate("() => [...document.querySelectorAll('main section[id]')].map(one => one.id)") == SECTIONS
    words = {name: len(page.locator(f"section#{name}").inner_text().split()) for name in SECTIONS}
    assert all(count > 3 for count in words.values()), words


FIRST_VIEW = (1280, 800), (390, 844)


@pytest.mark.parametrize(("width", "height"), FIRST_VIEW)
def test_the_headline_and_the_best_group_are_in_the_first_view(
    campaign: CampaignPaths, open_page: OpenPage, width: int, height: int
) -> None:
    opened = open_page(campaign.summary_html, width=width, height=height)
    headline = json.loads(campaign.summary_json.read_text())["headline"]
    parts = opened.page.locator(".headline li")
    texts = parts.all_inner_texts()
    assert len(texts) == 3 and all(part["word"] in text for part, text in zip(headline, texts, strict=True))
    assert len({part.evaluate("one => getComputedStyle(one).borderLeftColor") for part in parts.all()}) == len(
        {part["status"] for part in headline}
    )
    for seen in (parts.last, opened.page.locator(".first tbody tr").first):
        box = seen.bounding_box()
        assert box is not None and box["y"] + box["height"] <= height, seen


def test_what_failed_and_what_to_do_is_in_the_first_view(real: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(real.summary_html, width=1280, height=800)
    action = opened.page.locator(".key .bad .action").first
    box = action.bounding_box()
    assert box is not None and box["y"] + box["height"] <= 800 and action.inner_text().startswith("What to do:")


# Parts of names between separators that do not stand on one line, and tables that are cut off.
BROKEN_NAMES = """() => [...document.querySelectorAll('.first .name, .stacks tbody th')].filter(one => one.checkVisibility()).flatMap(one =>
  [...one.childNodes].filter(node => node.nodeType === Node.TEXT_NODE && node.textContent.trim()).filter(node => {
    const range = document.createRange(); range.selectNodeContents(node);
    return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1;
  }).map(node => node.textContent))"""
CUT_TABLES = """() => [...document.querySelectorAll('table.first, table.stacks')].filter(one => one.checkVisibility())
  .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1
    || one.parentElement.scrollWidth > one.parentElement.clientWidth + 1)
  .map(one => one.className)"""


def test_on_a_phone_no_name_breaks_and_no_table_is_cut(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html, width=390, height=844)
    opened.page.evaluate("() => document.querySelectorAll('details:not(.rows)').forEach(one => { one.open = true })")
    assert opened.page.locator("table.stacks:visible").count() > 0
    assert opened.page.evaluate(BROKEN_NAMES) == []
    assert opened.page.evaluate(CUT_TABLES) == []


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


def test_texts_and_tables_are_there(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html, java_script_enabled=False)
    summary = json.loads(campaign.summary_json.read_text())
    for section in SECTIONS:
        assert opened.page.locator(f"section#{section}").is_visible(), section
    text = opened.page.locator("main").inner_text()
    assert summary["verdict"]["verdict"] in text
    for group in summary["ranking"]["groups"]:
        assert group["group"] in text
    assert opened.page.locator("main table").count() > 0
    assert opened.page.locator("#ranking table").first.is_visible()


def test_it_says_why_there_are_no_charts(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, java_script_enabled=False)
    # The driver's way to turn scripts off leaves this element unseen; a browser's own shows it.
    assert "JavaScript" in (opened.page.locator("noscript").first.text_content() or "")


SIZES = [(380, 800), (768, 1024), (1600, 1000)]
MIN_FONT_PX = 9
# WCAG 2.2's least size of what is touched.
MIN_TOUCH_PX = 24


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_page_does_not_scroll_sideways(width: int, height: int, campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html, width=width, height=height)
    assert opened.ask("edges") == []
    opened.page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true })")
    opened.page.wait_for_timeout(300)
    assert opened.ask("edges") == []


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_text_of_a_chart_is_cut_off(width: int, height: int, campaign: CampaignPaths, open_page: OpenPage) -> None:
    assert open_page(campaign.summary_html, width=width, height=height).ask("clipped") == []


def test_a_number_near_the_end_of_an_axis_is_whole(tmp_path: Path, open_page: OpenPage) -> None:
    # An axis that ends at 2,500 in the room there was at first, and at 2,600 in the room that the names of groups leave.
    data = made_page()
    groups = data.drawn.tables["groups"]
    spread = {"value": 1233.0, "low": 610.0, "high": 2495.0}
    like_it = {**groups, **{name: [value for _ in groups["group"]] for name, value in spread.items()}}
    like_it["group"] = [f"mb{place}6_unlearned" for place, _ in enumerate(groups["group"])]
    wide = write_page(tmp_path, with_tables(data, groups=like_it))
    opened = open_page(wide.summary_html, width=380, height=800)
    assert "2,500" in (opened.page.locator("#chart-ranking svg").text_content() or "")
    assert opened.ask("clipped") == []


def test_charts_take_the_width_there_is(made: CampaignPaths, open_page: OpenPage) -> None:
    widths = {}
    for width in (380, 1600):
        opened = open_page(made.summary_html, width=width)
        widths[width] = opened.page.evaluate("() => document.querySelector('#chart-steps svg').getBoundingClientRect().width")
    assert widths[380] <= 380 and widths[1600] > 600


def test_text_on_a_phone_can_be_read(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html, width=380, height=800)
    assert opened.ask("too_small", ["main p, main li, main td, main th, main text, main label", "font", MIN_FONT_PX]) == []


def test_fields_on_a_phone_are_large_enough_to_be_touched(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, width=380, height=800, has_touch=True)
    assert opened.ask("too_small", ["select, button, #run-filter, #run-list label, summary", "height", MIN_TOUCH_PX]) == []


def test_a_window_that_grows_is_used(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, width=500)
    opened.page.set_viewport_size({"width": 1400, "height": 900})
    opened.page.wait_for_function("() => document.querySelector('#chart-steps svg').getBoundingClientRect().width > 600")
    assert opened.ask("edges") == []


GROUPS, REPEATS = 250, 4


def write_thousand(folder: Path) -> CampaignPaths:
    steps = detail_for(GROUPS * REPEATS).steps
    return write_page(folder / "out", made_page(groups=GROUPS, repeats=REPEATS, ranks=8, gpus=8, steps=steps, telemetry=False))


def with_tables(data: PageData, **tables: Columns) -> PageData:
    return replace(data, drawn=replace(data.drawn, tables={**data.drawn.tables, **tables}))


@pytest.fixture(scope="session")
def thousand(make_once: MakeOnce) -> CampaignPaths:
    return make_once(write_thousand)


def test_it_opens_whole_and_the_list_of_runs_answers(thousand: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(thousand.summary_html)
    assert {opened.state(chart) for chart in opened.charts()} == {"drawn"}
    assert opened.ask("edges") == []
    opened.page.fill("#run-filter", "g250_r4")
    opened.page.wait_for_function(
        "() => [...document.querySelectorAll('#run-list label')].filter(one => one.checkVisibility()).length === 1"
    )
    opened.assert_redrawn("steps", lambda: opened.page.locator("#run-list input:visible").check())


MIN_CONTRAST = 4.5
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_is_out(scheme: str, campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html, color_scheme=scheme)
    opened.page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true })")
    opened.page.wait_for_timeout(300)
    assert opened.ask("contrast", MIN_CONTRAST) == []


def brightness(opened: Opened) -> float:
    parts = opened.page.evaluate(BACKGROUND).removeprefix("rgb(").removesuffix(")").split(",")
    return sum(float(part) for part in parts[:3]) / 3


def test_the_system_decides_and_may_change_its_mind(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, color_scheme="dark")
    assert brightness(opened) < 60
    opened.page.emulate_media(color_scheme="light")
    assert brightness(opened) > 220


def test_the_button_goes_round_and_overrules_the_system(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, color_scheme="dark")
    seen = []
    for _ in range(3):
        opened.page.click("#theme")
        seen.append(brightness(opened) > 128)
    # Auto, which is dark here, then the two others in some order, then auto again.
    assert sorted(seen[:2]) == [False, True] and seen[2] is False


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_out_in_the_theme_that_was_switched_to(scheme: str, made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, color_scheme=scheme)
    drawn = opened.drawing("steps")
    opened.page.click("#theme")
    if (brightness(opened) > 128) == (scheme == "light"):
        opened.page.click("#theme")
    assert (brightness(opened) > 128) != (scheme == "light")
    assert opened.ask("contrast", MIN_CONTRAST) == []
    # By variables alone: nothing is drawn again.
    assert opened.drawing("steps") == drawn


def test_a_tooltip_is_out(made: CampaignPaths, open_page: OpenPage) -> None:
    for scheme in ("light", "dark"):
        opened = open_page(made.summary_html, color_scheme=scheme)
        for mark in opened.ask("marks", ["ranking", 12]):
            opened.page.mouse.move(mark["x"], mark["y"])
            opened.page.wait_for_timeout(100)
            if opened.page.locator("#vg-tooltip-element.visible").count():
                break
        assert opened.page.locator("#vg-tooltip-element.visible").count() == 1
        assert opened.ask("contrast", MIN_CONTRAST) == []


def test_less_motion_is_given_where_it_is_requested(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, reduced_motion="reduce")
    assert opened.ask("moving") == []
