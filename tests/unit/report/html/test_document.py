"""summary.html as text: whole, closed to everything outside, and never run by what is in it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.report.html import document as document_module
from seatrial.report.html.content import SECTIONS, content
from seatrial.report.html.document import document, document_parts, write_html
from seatrial.report.html.page_data import PageData, read_page_data
from seatrial.report.html.specs.series import HOW_TO_ZOOM
from seatrial.report.summary import summary_json
from tests.unit.report import factory

BUNDLE = "window.vegaEmbed=1;"
HOSTILE = "</script><script>alert(1)</script>\u2028\u202e<!--\"'&{{7*7}}"
VOID = {"meta", "link", "input", "br", "img"}


@pytest.fixture(autouse=True)
def bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "vega_bundle", lambda: BUNDLE)


class Read(HTMLParser):
    """What a browser makes of the page: elements with their attributes, scripts, text; and tags that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def data_of(results: Any, tmp_path: Path) -> PageData:
    paths = CampaignPaths(tmp_path)
    files.write_json(paths.summary_json, summary_json(results))
    return read_page_data(paths)


@pytest.fixture
def data(tmp_path: Path) -> PageData:
    return data_of(factory.results(), tmp_path)


def hostile(value: Any) -> Any:
    """Every text of a summary with something that would run after it."""
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return value + HOSTILE if isinstance(value, str) else value


def test_every_section_is_there_in_order_and_says_something(data: PageData) -> None:
    page = Read(document(data))
    assert page.open == []
    assert [one["id"] for one in page.of("section")] == [id for id, _ in SECTIONS]
    assert [one["href"] for one in page.of("a")][1 : len(SECTIONS) + 1] == [f"#{id}" for id, _ in SECTIONS]


def test_the_verdict_comes_first_in_words(data: PageData) -> None:
    text = Read(document_parts(data)["main"]).text
    assert text.startswith("demo ✗ Verdict: FAIL")
    assert text.index("Leads by throughput, not proven: mb16_nw2 (1,270 samples/s") < text.index("95 % interval")


def test_a_page_of_a_campaign_that_runs_says_so_first(data: PageData) -> None:
    running = PageData(summary={**data.summary, "running": {"finished": 2, "count": 4}}, tables=data.tables)
    text = Read(document_parts(running)["main"]).text
    assert text.startswith("demo ▶ RUNNING, 2 of 4 So far: ✗ FAIL ")
    assert Read(document(running)).of("section")[0]["class"] == "verdict running"


def test_the_head_of_a_failed_campaign_leads_to_its_failures(data: PageData) -> None:
    page = Read(document_parts(data)["main"])
    assert page.of("a")[0]["href"] == "#failures" and "What failed, and what to do: cuda_oom" in page.text
    without = PageData(summary={**data.summary, "failures": []}, tables=data.tables)
    assert "#failures" not in [one["href"] for one in Read(document_parts(without)["main"]).of("a")]


def test_what_stands_between_backticks_is_code_in_findings() -> None:
    told = {"verdict": "FAIL", "statements": [{"id": "a", "verdict": "FAIL", "text": "look at `top <b>`"}]}
    main = document_parts(PageData(summary={"verdict": told}))["main"]
    assert "look at <code>top &lt;b&gt;</code>" in main


def test_what_a_pointer_can_do_is_told_on_the_screen_alone() -> None:
    shown = document_module.told_apart(f"Of <b>. {HOW_TO_ZOOM} More.")
    assert shown == f'Of &lt;b&gt;. <span class="on-screen">{HOW_TO_ZOOM}</span> More.'
    assert document_module.told_apart("plain & simple") == "plain &amp; simple"


def test_the_policy_allows_the_pages_own_scripts_and_nothing_else(data: PageData) -> None:
    page = Read(document(data))
    policy = next(one["content"] for one in page.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    run = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in run]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "script-src": " ".join(hashes),
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert len(run) == 3


def test_nothing_is_fetched_from_anywhere(data: PageData) -> None:
    text = document(data)
    page = Read(text)
    addresses = [
        value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href", "srcset", "action")
    ]
    beside = {name for name, _ in content(data, [], has_bundle=True)["files"]}
    assert all(value and (value.startswith(("#", "data:")) or value in beside) for value in addresses)
    assert beside and not [name for name in beside if ":" in name or name.startswith("/")]
    # A link fetches nothing before somebody follows it; nothing else names a file.
    assert not [tag for tag, attributes in page.elements if tag != "a" and beside & set(attributes.values())]
    assert "@import" not in text and "url(" not in text


def test_a_live_page_may_ask_its_own_server_and_runs_its_script(data: PageData) -> None:
    page = Read(document(data, live="follow();", head='<meta name="seatrial-version" content="3">'))
    policy = next(one["content"] for one in page.of("meta") if one.get("http-equiv"))
    assert policy is not None and policy.endswith("connect-src 'self'")
    assert page.scripts[-1] == ({"type": "module"}, "follow();")
    assert {"name": "seatrial-version", "content": "3"} in page.of("meta")


def test_hostile_words_are_read_as_words(data: PageData) -> None:
    bad = PageData(summary=hostile(data.summary), tables={name: hostile(table) for name, table in data.tables.items()})
    plain, text = Read(document(data)), document(bad)
    page = Read(text)
    assert page.open == []
    assert len(page.scripts) == len(plain.scripts)
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert "</script><script>alert(1)</script> <!--\"'&{{7*7}}" in page.text
    assert "\u202e" not in text and "\u2028" not in text


def test_the_payload_is_whole_json_and_holds_the_tables(data: PageData) -> None:
    page = Read(document(data))
    attributes, text = next(one for one in page.scripts if one[0].get("id") == "page-data")
    told = json.loads(text)
    assert attributes["type"] == "application/json"
    assert told["tables"]["groups"]["rows"] == 4
    assert told["picks"] == {"runs": [], "timeline": ""}
    assert [chart["id"] for chart in told["charts"]] == re.findall(r'id="chart-(\w+)"', document(data))


def test_the_parts_are_what_the_page_is_made_of(data: PageData) -> None:
    parts = document_parts(data)
    assert set(parts) == {"title", "main", "payload", "sections"}
    assert parts["main"] in document(data)
    assert json.loads(json.dumps(parts, allow_nan=False)) == parts


def test_without_the_drawing_package_the_page_says_how_to_get_it(data: PageData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "vega_bundle", lambda: None)
    page = Read(document(data))
    assert "pip install 'seatrial[charts]'" in page.text
    assert {one["data-state"] for one in page.of("figure")} == {"empty"}
    assert [one.get("type") for one, _ in page.scripts] == [None, "application/json", "module"]


@pytest.mark.parametrize("summary", [{}, {"verdict": 3, "ranking": None, "failures": [1], "cautions": "x", "runs": [{}], "groups": {}}])
def test_a_summary_of_another_version_gives_a_page(summary: dict[str, Any]) -> None:
    page = Read(document(PageData(summary=summary)))
    assert page.open == [] and "UNKNOWN" in page.text
    assert [one["id"] for one in page.of("section")] == [id for id, _ in SECTIONS]


def test_a_campaign_that_has_not_begun_has_a_page(tmp_path: Path) -> None:
    text = Read(document(data_of(factory.empty_results(), tmp_path))).text
    assert "1 run still to be run: mb16_nw2_r1" in text
    assert "No group could be ranked yet." in text


def test_a_folder_without_anything_has_a_page(tmp_path: Path) -> None:
    write_html(CampaignPaths(tmp_path))
    assert "UNKNOWN" in (tmp_path / "summary.html").read_text(encoding="utf-8")


def test_bytes_that_are_no_text_are_spelt_out(tmp_path: Path) -> None:
    results = dataclasses.replace(factory.results(), plans=("odd\udcff",))
    paths = CampaignPaths(tmp_path)
    files.write_json(paths.summary_json, summary_json(results))
    write_html(paths)
    assert "odd\\udcff" in paths.summary_html.read_text(encoding="utf-8")
