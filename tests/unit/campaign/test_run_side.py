"""A run as one side of a difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial import files
from seatrial.campaign.run_side import run_side
from seatrial.errors import CampaignError
from seatrial.paths import AttemptPaths
from seatrial.records.outcome import Outcome
from tests.unit.analyse import factory
from tests.unit.collect import on_disk

SPEC = factory.spec()


def test_of_several_attempts_the_newest_that_ended_is_taken(tmp_path: Path) -> None:
    on_disk.write_attempt(tmp_path, SPEC, number=1)
    on_disk.write_attempt(tmp_path, SPEC, number=2, outcome=Outcome.FAILED)
    on_disk.write_attempt(tmp_path, SPEC, number=3, outcome=Outcome.INTERRUPTED)
    assert run_side(tmp_path / SPEC.run).attempt.number == 2
    assert run_side(tmp_path / SPEC.run / "attempt-1").attempt.number == 1


def test_where_none_has_ended_the_newest_is(tmp_path: Path) -> None:
    on_disk.write_attempt(tmp_path, SPEC, number=1, outcome=None)
    on_disk.write_attempt(tmp_path, SPEC, number=2, outcome=None)
    assert run_side(tmp_path / SPEC.run).attempt.number == 2


def test_a_folder_without_a_name_of_its_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk.write_attempt(tmp_path, SPEC)
    monkeypatch.chdir(tmp_path / SPEC.run)
    assert run_side(Path()).attempt.spec.run == SPEC.run
    monkeypatch.chdir(tmp_path / SPEC.run / "attempt-1")
    assert run_side(Path("..")).attempt.spec.run == SPEC.run


def test_what_ranks_said_and_what_they_were_started_with(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path, SPEC)
    on_disk.write_events(attempt, 0, on_disk.event(attempt, "effective", setting="precision", requested="bf16", effective="fp16") + "\n")
    variables: list[Any] = [{"name": "A", "value": "1"}, {"name": 3, "value": "x"}, {"name": "B"}, "C", None]
    files.write_json(AttemptPaths(Path(attempt.folder)).environment, {"variables": variables})
    side = run_side(tmp_path / SPEC.run)
    assert side.environment == {"A": "1"} and "precision" in side.effective


@pytest.mark.parametrize("content", ["", "[]", '{"variables": {"A": 1}}', "{"])
def test_an_environment_that_is_damaged_is_empty(tmp_path: Path, content: str) -> None:
    attempt = on_disk.write_attempt(tmp_path, SPEC)
    AttemptPaths(Path(attempt.folder)).environment.write_text(content)
    assert run_side(tmp_path / SPEC.run).environment == {}


def test_a_run_without_a_spec_was_never_started(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path, SPEC)
    AttemptPaths(Path(attempt.folder)).spec.unlink()
    with pytest.raises(CampaignError, match=r"has no spec.json that can be read: it was never started"):
        run_side(tmp_path / SPEC.run)
