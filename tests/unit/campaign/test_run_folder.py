"""The attempts behind the folder somebody typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.campaign.run_folder import MOST_NAMED, attempts_of
from seatrial.errors import CampaignError


def made(out: Path, *runs: str, attempts: int = 1) -> None:
    for run in runs:
        for number in range(1, attempts + 1):
            (out / run / f"attempt-{number}").mkdir(parents=True)


def test_all_of_a_run_oldest_first(tmp_path: Path) -> None:
    made(tmp_path, "mb8_r1", attempts=11)
    assert [attempt.number for attempt in attempts_of(tmp_path / "mb8_r1")] == list(range(1, 12))


def test_a_campaign_is_not_a_run_and_its_runs_are_named(tmp_path: Path) -> None:
    made(tmp_path, "mb8_r1", "mb16_r1")
    with pytest.raises(CampaignError, match=r"is a campaign; name one of its runs: mb16_r1, mb8_r1$"):
        attempts_of(tmp_path)
    made(tmp_path, *(f"z{number}_r1" for number in range(MOST_NAMED)))
    with pytest.raises(CampaignError, match=r" and 2 more$"):
        attempts_of(tmp_path)


def test_a_misspelt_run_is_told_the_nearest(tmp_path: Path) -> None:
    made(tmp_path, "mb8_r1", "lr3_r1")
    with pytest.raises(CampaignError, match=r"mb8_r2 holds no run: did you mean 'mb8_r1'\?$"):
        attempts_of(tmp_path / "mb8_r2")


@pytest.mark.parametrize("name", ["empty", "no/such/folder"])
def test_where_there_is_nothing_near_that_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(CampaignError, match="holds no run: none is known here"):
        attempts_of(tmp_path / name)
