"""A report whose page cannot be drawn, or that the disk does not take: the verdict stands, and nothing old is passed off as new."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path

import pytest
from polars.exceptions import PanicException
from rich.console import Console

from seatrial.campaign.results import remake, remake_or_say
from seatrial.paths import CampaignPaths
from seatrial.records.results import CampaignResults
from seatrial.report.digest.cautions import NOT_WRITTEN, PAGE_NOT_DRAWN
from seatrial.report.terminal import print_report
from tests.unit.campaign.made_campaign import write_campaign

FULL = OSError(errno.ENOSPC, "No space left on device", "/out/summary.html")


@pytest.fixture
def campaign(tmp_path: Path) -> CampaignPaths:
    return write_campaign(tmp_path / "out")


def printed(results: CampaignResults) -> str:
    out = io.StringIO()
    print_report(results, Console(file=out, width=200))
    return out.getvalue()


def spoil(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(name, broken)


@pytest.mark.parametrize("error", [ValueError("no such\x1b[2J column"), PermissionError(errno.EACCES, "denied"), PanicException("index")])
def test_a_spec_that_raises_costs_the_page_and_nothing_else(
    campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    whole = remake(campaign.folder)
    assert campaign.summary_html.is_file()
    spoil(monkeypatch, "seatrial.report.html.specs.all_charts.all_charts", error)
    results, unwritten = remake_or_say(campaign.folder)
    assert unwritten == "" and results.verdict == whole.verdict
    assert not campaign.summary_html.exists(), "it would show what no longer holds"
    (caution,) = [caution for caution in results.cautions if caution.kind == PAGE_NOT_DRAWN]
    assert caution.text.startswith(f"summary.html could not be drawn ({type(error).__name__}: ") and "\x1b" not in caution.text
    assert PAGE_NOT_DRAWN in {one["kind"] for one in json.loads(campaign.summary_json.read_text())["cautions"]}
    assert "could not be drawn" in campaign.summary_md.read_text()
    text = printed(results)
    assert "could not be drawn" in text and "Report: " not in text and "For a pull request: " in text


def test_a_disk_that_is_full_when_the_page_comes_says_what_is_written(campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    remake(campaign.folder)
    spoil(monkeypatch, "seatrial.report.write.write_html", FULL)
    results, unwritten = remake_or_say(campaign.folder)
    assert "written: run_manifest.tsv, verdict.json, group_summary.csv, summary.json, summary.md; not written: summary.html" in unwritten
    assert f"`seatrial report {campaign.folder}`" in unwritten
    assert NOT_WRITTEN in {caution.kind for caution in results.cautions}
    text = printed(results)
    assert "Report: " not in text and "For a pull request: " not in text and "No space left" not in text, "the caller says it"


def test_a_disk_that_takes_nothing_says_so(campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, "seatrial.campaign.results.write_manifest", FULL)
    _, unwritten = remake_or_say(campaign.folder)
    assert "; tables and report are not written: mend that" in unwritten


def test_any_other_error_of_the_disk_is_not_hushed_up(campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, "seatrial.campaign.results.write_manifest", PermissionError(errno.EACCES, "denied"))
    with pytest.raises(PermissionError):
        remake_or_say(campaign.folder)


def test_groups_that_nothing_was_made_of_are_there_all_the_same(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path / "out", nan_step=None)
    plan = json.loads(campaign.plan.read_text())
    unlike = {"run": "mb32_r1", "group": "mb32", "hash": "hash-mb32", "group_key": "key-mb32", "axes": {"micro_batch": 32}}
    aside = {**unlike, "run": "aside_r1", "group": "aside", "hash": "hash-aside", "group_key": "key-aside", "lane": False}
    plan["runs"] += [{**plan["runs"][0], **changes} for changes in (unlike, aside)]
    for path in (campaign.plan, campaign.plans / "factory.json"):
        path.write_text(json.dumps(plan))
    results = remake(campaign.folder)
    assert results.pending == ("mb32_r1", "aside_r1")
    assert [(group.group, group.lane, group.axes) for group in results.not_started] == [
        ("mb32", True, {"micro_batch": 32}),
        ("aside", False, {"micro_batch": 32}),
    ]
    assert "mb32" not in {group.group for group in results.groups} | {place.group for place in results.ranking.groups}
    told = json.loads(campaign.summary_json.read_text())
    notes = {row["group"]: (row["note"], row["n"]) for row in told["standings"]}
    assert notes["mb32"] == notes["aside"] == ("not run yet", None)
    assert notes["mb8"][0] == "leads" and told["winners"].startswith("Leads by throughput, not proven: mb8 ")
    assert "mb32" in campaign.summary_html.read_text() and "| mb32 | 32 |" in campaign.summary_md.read_text()
