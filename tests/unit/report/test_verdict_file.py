"""verdict.json."""

from __future__ import annotations

import json
from pathlib import Path

from seatrial.paths import CampaignPaths
from seatrial.report.verdict_file import verdict_json, write_verdict
from tests.unit.report import factory


def test_the_answer_stands_first_and_everything_it_rests_on_below() -> None:
    results = factory.results()
    told = verdict_json(results)
    assert list(told)[:3] == ["verdict", "exit_code", "partial"] and told["verdict"] == results.verdict.verdict.value
    assert told["exit_code"] == results.verdict.verdict.exit_code and told["partial"] is results.verdict.partial
    assert [one["id"] for one in told["findings"]] == [one.id for one in results.verdict.findings]
    assert told["pending"] == [f"{factory.ODD}_r2"] and told["generated_at"] == "2026-01-01T00:00:00Z"


def test_a_campaign_of_which_nothing_ran_has_one_too(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    write_verdict(factory.empty_results(), paths)
    assert json.loads(paths.verdict.read_text()) == verdict_json(factory.empty_results())
