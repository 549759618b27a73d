"""Contrast, names, landmarks and the keyboard."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.core.paths import CampaignPaths
from tests.browser.conftest import OpenPage
from tests.browser.opened import Opened

HEAD = "<!doctype html><html lang=en><head><title>made to be faulty</title></head><body style='margin:0;background:#fff'>"
CHART = "<figure class=chart id=chart-a data-chart=a data-state=drawn><svg width=100 height=50>{}</svg></figure>"
CASES: dict[str, tuple[str, Any, str, str]] = {
    # What: script, argument, body with the fault, body without.
    "pale text": ("contrast", 4.5, "<p id=a style='color:#999'>pale</p>", "<p id=a style='color:#333'>plain</p>"),
    "faded text": ("contrast", 4.5, "<div id=a style='opacity:.4'><p>pale</p></div>", "<div id=a><p>plain</p></div>"),
    "text in a chart on the page": (
        "contrast",
        4.5,
        CHART.format("<text x=5 y=20 fill='#bbb'>pale</text>"),
        CHART.format("<text x=5 y=20 fill='#222'>plain</text>"),
    ),
    "text in a chart on a dark cell": (
        "contrast",
        4.5,
        CHART.format("<rect width=100 height=50 fill='#123' /><text x=5 y=20 fill='#222'>hidden</text>"),
        CHART.format("<rect width=100 height=50 fill='#123' /><text x=5 y=20 fill='#fff'>plain</text>"),
    ),
    "too wide": (
        "edges",
        None,
        "<div style='width:3000px'>wide</div>",
        "<div style='overflow:auto'><p style='width:3000px'>x</div>",
    ),
    "over the left edge": ("edges", None, "<p style='margin-left:-50px'>out</p>", "<p>in</p>"),
    "cut off": (
        "clipped",
        None,
        CHART.format("<text x=80 y=20>a long text</text>"),
        CHART.format("<text x=1 y=20>a</text>"),
    ),
    "no label": ("order", None, "<input id=a>", "<label>Name <input id=a></label>"),
    "no alt": ("order", None, "<img src='data:,'>", "<img src='data:,' alt='a'>"),
    "headings that skip": ("order", None, "<h1>a</h1><h3>b</h3>", "<h1>a</h1><h2>b</h2>"),
    "id twice": ("order", None, "<p id=a></p><p id=a></p>", "<p id=a></p><p id=b></p>"),
    "link to nothing": ("order", None, "<a href='#b'>b</a>", "<a href='#b'>b</a><p id=b></p>"),
    "moving": ("moving", None, "<p style='transition:opacity 1s'>a</p>", "<p>a</p>"),
    "small letters": ("too_small", ["p", "font", 9], "<p id=a style='font-size:5px'>a</p>", "<p id=a>a</p>"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_found_and_nothing_where_there_is_none(case: str, open_page: OpenPage) -> None:
    script, argument, faulty, sound = CASES[case]
    opened = open_page("about:blank", wait=False, width=600)
    opened.page.set_content(HEAD + sound)
    assert opened.ask(script, argument) == []
    opened.page.set_content(HEAD + faulty)
    assert len(opened.ask(script, argument)) > 0


def test_troubles_are_heard(open_page: OpenPage) -> None:
    opened = open_page("about:blank", wait=False)
    opened.page.set_content(f"{HEAD}<script>console.warn('one'); setTimeout(() => {{ throw new Error('two') }})</script>")
    opened.page.wait_for_timeout(200)
    assert [line.partition(":")[0] for line in opened.troubles] == ["warning", "error"]
    opened.troubles.clear()


def test_a_request_is_heard_and_a_breach_of_the_policy(open_page: OpenPage) -> None:
    opened = open_page("about:blank", wait=False)
    policy = "<meta http-equiv='Content-Security-Policy' content=\"img-src 'none'\">"
    opened.page.set_content("<!doctype html><img src='http://127.0.0.1:9/a.png'>")
    assert opened.requests == ["http://127.0.0.1:9/a.png"]
    opened.troubles.clear()
    opened.page.goto("data:text/html," + f"<!doctype html><head>{policy}</head><img src='http://127.0.0.1:9/b.png'>".replace("#", "%23"))
    opened.page.wait_for_timeout(200)
    assert opened.breaches("img-src")
    assert len(opened.requests) == 1
    opened.troubles.clear()


MAX_TABS = 400


def tabbed(opened: Opened) -> list[dict[str, Any]]:
    """What the Tab key comes to, from the top of the page to where it leaves it."""
    seen: list[dict[str, Any]] = []
    for _ in range(MAX_TABS):
        opened.page.keyboard.press("Tab")
        focused = opened.ask("focused")
        if focused is None or (seen and focused["at"] <= seen[-1]["at"]):
            break
        seen.append(focused)
    return seen


def test_tab_comes_to_everything_in_order_and_it_is_seen(campaign: CampaignPaths, open_page: OpenPage) -> None:
    # A page that glides is not where it goes when it is looked at.
    opened = open_page(campaign.summary_html, reduced_motion="reduce")
    seen = tabbed(opened)
    reachable = opened.ask("reachable")
    assert {one["tabindex"] for one in reachable} == {0}
    came_to = {one["at"] for one in seen}
    # Of radio buttons with one name the keys go to one; there are none here, so nothing may be missing.
    assert [one["what"] for one in reachable if one["at"] not in came_to] == []
    assert [one for one in seen if not one["seen"] or not one["within"]] == []


def test_the_first_key_offers_to_skip_and_then_come_navigation_theme_and_charts(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    seen = tabbed(opened)
    assert seen[0]["tag"] == "a" and "skip" in seen[0]["text"].lower()
    words = [one["id"] or one["chart"] or one["section"] or one["tag"] for one in seen]
    for control in ("theme", "run-filter", "timeline-run", "heat-x", "heat-y", "steps-by"):
        assert control in words, control
    assert [one["chart"] for one in seen if one["chart"]] == opened.charts()
    assert any(one["section"] == "nav" for one in seen)
    assert sum(one["tag"] == "summary" for one in seen) >= len(opened.charts())


def test_the_skip_link_goes_to_the_content(made: CampaignPaths, open_page: OpenPage) -> None:
    page = open_page(made.summary_html).page
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("() => !!document.activeElement.closest('main')")


def test_the_theme_is_changed_by_key(made: CampaignPaths, open_page: OpenPage) -> None:
    page = open_page(made.summary_html).page
    page.focus("#theme")
    said = {page.locator("#theme").inner_text() + (page.get_attribute("#theme", "aria-label") or "")}
    for key in ("Enter", "Space"):
        page.keyboard.press(key)
        said.add(page.locator("#theme").inner_text() + (page.get_attribute("#theme", "aria-label") or ""))
    assert len(said) == 3


def test_a_run_is_picked_by_keys(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    opened.page.focus("#run-list input[type=checkbox] >> nth=0")
    opened.assert_redrawn("steps", lambda: opened.page.keyboard.press("Space"))


def test_a_select_is_changed_by_keys(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    opened.page.focus("#steps-by")
    opened.assert_redrawn("steps", lambda: opened.page.keyboard.press("ArrowDown"))


def test_rows_of_a_chart_are_opened_by_key_and_are_those_drawn(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html)
    for chart in opened.charts():
        opened.page.focus(f"#chart-{chart} summary")
        opened.page.keyboard.press("Enter")
        opened.page.wait_for_selector(f"#chart-{chart} details[open] tbody tr")
        assert opened.page.locator(f"#chart-{chart} details th").count() > 1


def test_all_rows_of_a_chart_are_reached_by_keys(made: CampaignPaths, open_page: OpenPage) -> None:
    """Page by page, with the focus on a button that still does something, and the count told to a screen reader."""
    opened = open_page(made.summary_html)
    page, rows = opened.page, "#chart-steps details"
    page.evaluate("() => document.querySelectorAll('#run-list input:not(:checked)').forEach((box, at) => at < 6 && box.click())")
    opened.drawn()
    page.focus(f"{rows} summary")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{rows} tbody tr")
    said = page.locator(f"{rows} p[aria-live=polite]")
    in_all = int(said.inner_text().replace(",", "").rstrip(".").split()[-1])
    assert in_all > 500
    assert said.inner_text().startswith("Rows 1 to 500 of ")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Next"
    seen = page.locator(f"{rows} tbody tr").count()
    while page.evaluate("() => document.activeElement.textContent") == "Next":
        page.keyboard.press("Enter")
        seen += page.locator(f"{rows} tbody tr").count()
    assert seen == in_all
    # At the end the focus is on the other button, which goes back.
    assert page.evaluate("() => document.activeElement.textContent") == "Previous"
    assert page.locator(f"{rows} button:has-text('Next')").is_disabled()
    page.keyboard.press("Enter")
    assert page.locator(f"{rows} tbody tr").count() == 500


def test_every_metric_of_a_timeline_can_be_chosen_and_tells_its_runs_window(made: CampaignPaths, open_page: OpenPage) -> None:
    page = open_page(made.summary_html).page
    rows = "#chart-timeline details"
    page.focus(f"{rows} summary")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{rows} tbody tr")
    choices = page.locator(f"{rows} select option").all_inner_texts()
    assert {"telemetry: power_w", "telemetry: pcie_rx_kib_per_s", "telemetry: disk_read_kib_per_s", "spans", "steps"} <= set(choices)
    page.select_option(f"{rows} select", "telemetry: disk_read_kib_per_s")
    heads = page.locator(f"{rows} th").all_inner_texts()
    assert heads[-2:] == ["run's window", "run's n"]
    metric = page.locator(f"{rows} tbody td:nth-child({heads.index('metric') + 1})").all_inner_texts()
    assert set(metric) == {"disk_read_kib_per_s"}
    assert page.locator(f"{rows} tbody tr").first.locator("td").nth(len(heads) - 2).inner_text().startswith("steps 20–")


def test_rows_that_tell_their_own_n_have_no_other(made: CampaignPaths, open_page: OpenPage) -> None:
    page = open_page(made.summary_html).page
    for chart, has_own in {"steps": False, "loss": False, "eta": False, "step_times": True, "ranks": True}.items():
        page.locator(f"#chart-{chart} summary").click()
        page.wait_for_selector(f"#chart-{chart} tbody tr")
        heads = page.locator(f"#chart-{chart} th").all_inner_texts()
        assert ("n" in heads, "run's n" in heads) == (has_own, not has_own), chart


# Colour and dash of each line of the chart, once.
LOOKS = """() => [...new Set([...document.querySelectorAll('#chart-steps .mark-line path')].map(one =>
    JSON.stringify([getComputedStyle(one).stroke, getComputedStyle(one).strokeDasharray])))].map(one => JSON.parse(one))"""
WORDS_OF = "svg => svg.getAttribute('aria-label') ?? svg.closest('[aria-label], figure')?.textContent"


def test_nothing_is_without_a_name_or_out_of_order(campaign: CampaignPaths, open_page: OpenPage) -> None:
    assert open_page(campaign.summary_html).ask("order") == []


def test_the_document_has_language_title_and_one_heading_of_the_first_level(campaign: CampaignPaths, open_page: OpenPage) -> None:
    page = open_page(campaign.summary_html).page
    assert page.get_attribute("html", "lang") == "en"
    assert len(page.title()) > 5
    assert page.locator("h1").count() == 1
    for landmark in ("main", "nav", "header"):
        assert page.locator(landmark).count() >= 1, landmark
    assert page.locator("main").count() == 1
    assert page.locator("section:not(:has(h1, h2, h3))").count() == 0


def test_a_chart_is_a_picture_with_words(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html)
    for chart in opened.charts():
        words = opened.page.locator(f"#chart-{chart} svg").first.evaluate(WORDS_OF)
        assert words and words.strip(), chart


def test_of_eight_runs_no_two_look_alike_and_half_are_dashed(made: CampaignPaths, open_page: OpenPage) -> None:
    """Colours that nearly everybody tells apart, and a dash where there are more than four of them."""
    opened = open_page(made.summary_html)
    for _ in range(8 - opened.page.locator("#run-list input:checked").count()):
        opened.page.locator("#run-list input:not(:checked)").first.check()
    opened.page.wait_for_function(f"() => ({LOOKS})().length === 8")
    looks = [tuple(look) for look in opened.page.evaluate(LOOKS)]
    assert len({colour for colour, _ in looks}) == 8
    assert [sum(dash == one for _, dash in looks) for one in sorted({dash for _, dash in looks})] == [4, 4]
