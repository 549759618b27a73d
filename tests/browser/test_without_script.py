"""With JavaScript off the texts and tables are read as they are; charts say how they would be seen."""

from __future__ import annotations

import json

from seatrial.paths import CampaignPaths
from tests.browser.conftest import OpenPage
from tests.browser.test_page_opens import SECTIONS


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
