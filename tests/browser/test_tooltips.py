"""On hover every figure says over which steps it was taken and how many there were."""

from __future__ import annotations

import re

import pytest

from seatrial.paths import CampaignPaths
from tests.browser.conftest import OpenPage
from tests.browser.opened import Opened
from tests.browser.test_page_opens import CHARTS

MOST_MARKS = 12
TOOLTIP = "#vg-tooltip-element"
SHOWN_WITHIN_MS = 500
WINDOW = re.compile(r"\bwindow\b", re.IGNORECASE)
COUNT = re.compile(r"(^|\W)n\b\W*\d", re.MULTILINE)


@pytest.mark.parametrize("chart", sorted(CHARTS))
def test_a_mark_tells_its_window_and_n(chart: str, made: CampaignPaths, open_page: OpenPage) -> None:
    told = tooltips(open_page(made.summary_html), chart)
    assert told, "no mark of the chart has a tooltip"
    assert [text for text in told if not WINDOW.search(text) or not COUNT.search(text)] == []


def test_what_the_machine_did_is_of_seconds_and_not_of_steps(made: CampaignPaths, open_page: OpenPage) -> None:
    told = tooltips(open_page(made.summary_html), "timeline", 40)
    of_machine = [text for text in told if "gpu 0, power" in text]
    assert of_machine
    assert [text for text in of_machine if "s since launch" not in text or "steps" in text] == []
    of_steps = [text for text in told if "in a window of" in text or "outside a window of" in text]
    assert of_steps
    assert [text for text in of_steps if "steps 20–" not in text] == []


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


def test_the_word_on_a_bar_tells_what_the_bar_tells(made: CampaignPaths, open_page: OpenPage) -> None:
    page = open_page(made.summary_html).page
    word = page.locator("#chart-ranks .mark-text.role-mark text").first
    word.scroll_into_view_if_needed()
    box = word.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector(f"{TOOLTIP}.visible", timeout=30_000)
    text = page.inner_text(TOOLTIP)
    assert "own work" in text and WINDOW.search(text) and COUNT.search(text)


def test_marks_of_a_real_campaign_tell_theirs(real: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(real.summary_html)
    told = {chart: tooltips(opened, chart) for chart in opened.charts()}
    assert [chart for chart, texts in told.items() if not texts] == []
    assert {chart: text for chart, texts in told.items() for text in texts if not WINDOW.search(text) or not COUNT.search(text)} == {}


def tooltips(opened: Opened, chart: str, most: int = MOST_MARKS, within_ms: int = SHOWN_WITHIN_MS) -> list[str]:
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
