"""Whether there is something new: told by plans, outcomes and what the run under way writes, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.web.changed import mark
from tests.unit.campaign.made_campaign import write_campaign


@pytest.fixture
def campaign(tmp_path: Path) -> CampaignPaths:
    return write_campaign(tmp_path / "out", steps=5)


def attempt_of(campaign: CampaignPaths, run: str) -> AttemptPaths:
    return campaign.run(run).attempts()[-1]


def append(path: Path) -> None:
    with open(path, "a") as file:
        file.write("{}\n")


def test_a_folder_that_nobody_touches_stays_the_same(campaign: CampaignPaths) -> None:
    assert mark(campaign) == mark(campaign)


def test_reports_and_progress_are_no_news(campaign: CampaignPaths) -> None:
    before = mark(campaign)
    for path in (campaign.progress, campaign.summary_json, campaign.summary_html, campaign.owner):
        path.write_text("{}")
    append(attempt_of(campaign, "mb8_r2").events(0))
    assert mark(campaign) == before


def test_a_plan_an_outcome_a_new_attempt_and_a_step_of_the_run_under_way_are(campaign: CampaignPaths) -> None:
    seen = [mark(campaign)]
    append(campaign.plan)
    seen.append(mark(campaign))
    under_way = attempt_of(campaign, "mb16_r2")
    under_way.outcome.unlink()
    seen.append(mark(campaign))
    append(under_way.events(1))
    seen.append(mark(campaign))
    append(under_way.gpu_telemetry)
    seen.append(mark(campaign))
    campaign.run("mb8_r1").next_attempt().folder.mkdir()
    append(AttemptPaths(campaign.run("mb8_r1").attempts()[-1].folder).spec)
    seen.append(mark(campaign))
    assert len(set(seen)) == len(seen)


def test_a_folder_that_is_gone_has_a_mark_too(tmp_path: Path) -> None:
    assert mark(CampaignPaths(tmp_path / "nowhere")) == frozenset()
