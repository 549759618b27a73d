"""What a screen reader goes by: language, title, landmarks, headings in order, names of fields, words for charts."""

from __future__ import annotations

from seatrial.paths import CampaignPaths
from tests.browser.conftest import OpenPage

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
