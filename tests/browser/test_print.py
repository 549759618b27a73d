"""On paper: every chart, no controls, dark on light whatever the screen was."""

from __future__ import annotations

import re
from pathlib import Path

from seatrial.core.paths import CampaignPaths
from tests.browser.conftest import OpenPage

CONTROLS = ("#theme", "#run-filter", "#timeline-run", "#heat-x", "#steps-by", "nav")


def test_charts_are_there_and_controls_are_not(campaign: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(campaign.summary_html, color_scheme="dark")
    opened.page.emulate_media(media="print")
    assert [one for one in CONTROLS if opened.page.locator(one).count() and opened.page.locator(one).first.is_visible()] == []
    assert {opened.page.locator(f"#chart-{chart} svg").first.is_visible() for chart in opened.charts()} == {True}
    assert opened.ask("contrast", 4.5) == []
    background = opened.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert background in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")


def test_it_fills_pages(made: CampaignPaths, open_page: OpenPage, tmp_path: Path) -> None:
    opened = open_page(made.summary_html)
    printed = opened.page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert num_pages(printed) > 1


def test_a_chart_is_not_torn_in_two(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    opened.page.emulate_media(media="print")
    breaks = opened.page.evaluate("() => [...document.querySelectorAll('figure.chart')].map(one => getComputedStyle(one).breakInside)")
    assert set(breaks) <= {"avoid", "avoid-page"}


def test_panels_fit_on_one_page(made: CampaignPaths, open_page: OpenPage) -> None:
    """A figure that must not be torn and is higher than a page leaves the page before it blank."""
    opened = open_page(made.summary_html, width=860, height=1200)
    opened.page.emulate_media(media="print")
    heights = opened.page.evaluate("() => [...document.querySelectorAll('figure.chart')].map(one => one.offsetHeight / innerHeight)")
    assert max(heights) < 1


def test_every_run_is_on_paper_and_the_numbers_behind_findings_are_not(made: CampaignPaths, open_page: OpenPage) -> None:
    opened = open_page(made.summary_html)
    opened.page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")
    assert opened.page.locator("details[data-table=runs] tbody tr").count() == 12
    assert opened.page.locator("details[data-table=runs] table").is_visible()
    assert opened.page.locator("details.why").count() and not opened.page.locator("details.why[open]").count()
    assert opened.page.locator(".on-screen").count() and not opened.page.locator(".on-screen").first.is_visible()
    opened.page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert not opened.page.locator("details[data-table=runs][open]").count()


def num_pages(pdf: bytes) -> int:
    counts = [int(count) for count in re.findall(rb"/Type\s*/Pages\b[^>]*?/Count\s+(\d+)", pdf)]
    return max(counts, default=len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)))
