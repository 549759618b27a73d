"""The plan kept in its campaign's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seatrial import files
from seatrial.campaign.save_plan import PLAN_HASH_DIGITS, save_plan
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import from_json
from tests.unit.campaign.made_campaign import TOKEN, spec

PLAN = CampaignPlan(name="nightly", output="out", source="seatrial sweep -- train", repeats=2, runs=(spec("mb8", 1), spec("mb8", 2)))


def test_the_latest_lies_at_the_top_and_each_under_its_name(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    save_plan(PLAN, paths)
    save_plan(replace(PLAN, name="weekly"), paths)
    assert sorted(path.name for path in paths.plans.iterdir()) == ["nightly.json", "weekly.json"]
    assert files.read_json(paths.plan)["name"] == "weekly"
    assert from_json(CampaignPlan, files.read_json(paths.plans / "nightly.json")).runs[0].run == "mb8_r1"


def test_what_is_secret_is_not_written(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    save_plan(replace(PLAN, source=f"seatrial sweep -- train --hub-token {TOKEN}"), paths)
    text = paths.plan.read_text()
    assert TOKEN not in text and "sesame-open" not in text


def test_which_runs_are_asked_for_and_where_makes_it_no_other_plan(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    first = save_plan(PLAN, paths)
    assert len(first) == PLAN_HASH_DIGITS
    assert save_plan(replace(PLAN, selected=("mb8_r1",), output="elsewhere", source="p.yaml"), paths) == first
    assert save_plan(replace(PLAN, repeats=3), paths) != first
