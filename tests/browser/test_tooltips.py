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


def test_marks_of_a_real_campaign_tell_theirs(real: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(real.summary_html)
    told = {chart: tooltips(opened, chart) for chart in opened.charts()}
    assert [chart for chart, texts in told.items() if not texts] == []
    assert {chart: text for chart, texts in told.items() for text in texts if not WINDOW.search(text) or not COUNT.search(text)} == {}


def tooltips(opened: Opened, chart: str, most: int = MOST_MARKS) -> list[str]:
    """What is shown over some of its marks, in the order of the marks; those that show nothing are left out."""
    from playwright.sync_api import TimeoutError as NotShown

    told = []
    for mark in opened.ask("marks", [chart, most]):
        opened.page.mouse.move(mark["x"], mark["y"])
        try:
            opened.page.wait_for_selector(f"{TOOLTIP}.visible", timeout=SHOWN_WITHIN_MS)
        except NotShown:
            continue
        told.append(opened.page.inner_text(TOOLTIP))
        opened.page.mouse.move(1, 1)
        opened.page.wait_for_selector(f"{TOOLTIP}.visible", state="hidden", timeout=SHOWN_WITHIN_MS * 4)
    return told
