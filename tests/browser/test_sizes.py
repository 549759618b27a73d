"""On a phone and on a wide screen: nothing stands out over the edges, no text of a chart is cut off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.paths import CampaignPaths
from tests.browser.campaigns import write_page
from tests.browser.conftest import OpenPage
from tests.unit.report.html.made_page import made_page

SIZES = [(380, 800), (768, 1024), (1600, 1000)]
LEAST_FONT_PX = 9
# WCAG 2.2's least size of what is touched.
LEAST_TOUCH_PX = 24


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
    groups = data.tables["groups"]
    spread = {"value": 1233.0, "low": 610.0, "high": 2495.0}
    like_it = {**groups, **{name: [value for _ in groups["group"]] for name, value in spread.items()}}
    like_it["group"] = [f"mb{place}6_unlearned" for place, _ in enumerate(groups["group"])]
    wide = write_page(tmp_path, replace(data, tables={**data.tables, "groups": like_it}))
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
    assert opened.ask("too_small", ["main p, main li, main td, main th, main text, main label", "font", LEAST_FONT_PX]) == []


def test_fields_on_a_phone_are_large_enough_to_be_touched(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, width=380, height=800, has_touch=True)
    assert opened.ask("too_small", ["select, button, #run-filter, #run-list label, summary", "height", LEAST_TOUCH_PX]) == []


def test_a_window_that_grows_is_used(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, width=500)
    opened.page.set_viewport_size({"width": 1400, "height": 900})
    opened.page.wait_for_function("() => document.querySelector('#chart-steps svg').getBoundingClientRect().width > 600")
    assert opened.ask("edges") == []
