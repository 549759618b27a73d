"""What the reader chooses is what is drawn: runs, axes of the heat map, steps by time, the run of the timeline."""

from __future__ import annotations

from seatrial.paths import CampaignPaths
from seatrial.report.html.picks import MOST_PICKED
from tests.browser.conftest import OpenPage
from tests.browser.opened import DRAWN_WITHIN_MS, Opened

BOXES = "#run-list input[type=checkbox]"
NUM_LISTED = "[...document.querySelectorAll('#run-list label')].filter(one => one.checkVisibility()).length"


def num_picked(opened: Opened) -> int:
    return opened.page.locator(f"{BOXES}:checked").count()


def test_some_runs_are_picked_to_begin_with(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html)
    assert 1 <= num_picked(opened) <= MOST_PICKED


def test_a_run_picked_is_drawn_and_one_let_go_is_not(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    before = num_picked(opened)
    for chart in ("steps", "loss"):
        opened.assert_redrawn(chart, lambda: opened.page.locator(f"{BOXES}:checked").first.uncheck())
    assert num_picked(opened) == before - 2
    opened.assert_redrawn("eta", lambda: opened.page.locator(f"{BOXES}:not(:checked)").first.check())


def test_a_ninth_run_is_refused_and_the_page_says_so(real: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(real.summary_html)
    for _ in range(MOST_PICKED + 2):
        free = opened.page.locator(f"{BOXES}:not(:checked):not(:disabled)")
        if num_picked(opened) == MOST_PICKED or not free.count():
            break
        free.first.click()
    assert num_picked(opened) == MOST_PICKED
    rest = opened.page.locator(f"{BOXES}:not(:checked)").first
    if rest.is_enabled():
        rest.click()
    assert num_picked(opened) == MOST_PICKED
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
