"""Dark and light, by the system's wish and by the button, and every text can be read on what lies behind it."""

from __future__ import annotations

import pytest

from seatrial.paths import CampaignPaths
from tests.browser.conftest import OpenPage
from tests.browser.opened import Opened

LEAST_CONTRAST = 4.5
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(scheme: str, campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html, color_scheme=scheme)
    opened.page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true })")
    opened.page.wait_for_timeout(300)
    assert opened.ask("contrast", LEAST_CONTRAST) == []


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
def test_text_stands_out_in_the_theme_that_was_switched_to(scheme: str, made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, color_scheme=scheme)
    drawn = opened.drawing("steps")
    opened.page.click("#theme")
    if (brightness(opened) > 128) == (scheme == "light"):
        opened.page.click("#theme")
    assert (brightness(opened) > 128) != (scheme == "light")
    assert opened.ask("contrast", LEAST_CONTRAST) == []
    # By variables alone: nothing is drawn again.
    assert opened.drawing("steps") == drawn


def test_a_tooltip_stands_out(made: CampaignPaths, open_page: OpenPage) -> None:
    for scheme in ("light", "dark"):
        opened = open_page(made.summary_html, color_scheme=scheme)
        for mark in opened.ask("marks", ["ranking", 12]):
            opened.page.mouse.move(mark["x"], mark["y"])
            opened.page.wait_for_timeout(100)
            if opened.page.locator("#vg-tooltip-element.visible").count():
                break
        assert opened.page.locator("#vg-tooltip-element.visible").count() == 1
        assert opened.ask("contrast", LEAST_CONTRAST) == []


def test_less_motion_is_given_where_it_is_asked_for(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html, reduced_motion="reduce")
    assert opened.ask("moving") == []
