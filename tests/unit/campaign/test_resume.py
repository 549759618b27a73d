"""What earlier invocations left: finished runs, and attempts that were never brought to an end."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.campaign.resume import changes_since, close_abandoned_attempts, finished_attempt, outdated_runs, recover_folder
from seatrial.core import files
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.machine.software import GitState
from seatrial.records.attempt import Provenance
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import CampaignPlan
from tests.unit.analyse import factory
from tests.unit.collect import on_disk

SPEC = factory.spec()


@pytest.mark.parametrize(
    ("outcomes", "counts"),
    [
        ([], None),
        ([Outcome.OK], 1),
        ([Outcome.FAILED], None),
        ([Outcome.FAILED, Outcome.OK], 2),
        ([Outcome.OK, Outcome.FAILED], None),
        ([Outcome.OK, Outcome.INTERRUPTED], 1),
        ([Outcome.INTERRUPTED], None),
        ([Outcome.OK, None], 1),
    ],
)
def test_the_newest_that_came_to_its_own_end_counts(tmp_path: Path, outcomes: list[Outcome | None], counts: int | None) -> None:
    for number, how in enumerate(outcomes, 1):
        on_disk.write_attempt(tmp_path, SPEC, number=number, outcome=how)
    found = finished_attempt(CampaignPaths(tmp_path).run(SPEC.run), SPEC.hash)
    assert (found.attempt if found else None) == counts


def test_settings_that_changed_are_another_run(tmp_path: Path) -> None:
    on_disk.write_attempt(tmp_path, SPEC)
    assert finished_attempt(CampaignPaths(tmp_path).run(SPEC.run), "another hash") is None


def test_changed_code_and_variables_are_named(tmp_path: Path) -> None:
    then = Provenance(git_commit_hash="0123456789abcdef", variables={"NCCL_DEBUG": "INFO"})
    attempt = on_disk.write_attempt(tmp_path, SPEC, provenance=then)
    assert attempt.outcome is not None
    run = CampaignPaths(tmp_path).run(SPEC.run)
    same = GitState(commit="0123456789abcdef")
    assert changes_since(run, SPEC, attempt.outcome, same, {"NCCL_DEBUG": "INFO", "HOME": "/home/ada"}) == ""
    changed = GitState(commit="fedcba9876543210", diff_sha256="77")
    assert changes_since(run, SPEC, attempt.outcome, changed, {}) == (
        "NCCL_DEBUG INFO → none, commit 0123456789ab → fedcba987654, uncommitted changes none → 77"
    )


def test_without_provenance_no_change_is_named(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path, SPEC)
    assert attempt.outcome is not None
    run = CampaignPaths(tmp_path).run(SPEC.run)
    run.attempt(1).provenance.write_text("[]")
    assert changes_since(run, SPEC, attempt.outcome, GitState(commit="1"), {}) == ""
    run.attempt(1).provenance.unlink()
    assert changes_since(run, SPEC, attempt.outcome, GitState(commit="1"), {}) == ""


def test_an_attempt_whose_harness_died_gets_an_outcome_and_others_keep_theirs(tmp_path: Path) -> None:
    done = on_disk.write_attempt(tmp_path, SPEC)
    on_disk.write_attempt(tmp_path, SPEC, number=2, outcome=None)
    bare = replace(SPEC, run="other_r1")
    open_one = on_disk.write_attempt(tmp_path, bare, outcome=None)
    AttemptPaths(Path(open_one.folder)).spec.unlink()
    close_abandoned_attempts(CampaignPaths(tmp_path))
    first, second = (files.read_json(CampaignPaths(tmp_path).run(SPEC.run).attempt(number).outcome) for number in (1, 2))
    assert first["outcome"] == done.outcome.outcome.value if done.outcome else False
    assert (second["outcome"], second["cause"], second["hash"]) == (Outcome.INTERRUPTED.value, Cause.HARNESS_LOST.value, SPEC.hash)
    assert second["action"]
    assert files.read_json(CampaignPaths(tmp_path).run("other_r1").attempt(1).outcome)["hash"] == ""


def test_tidying_an_empty_folder_is_nothing(tmp_path: Path) -> None:
    recover_folder(CampaignPaths(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_whose_harness_was_killed_has_its_true_duration(tmp_path: Path) -> None:
    attempt = AttemptPaths(Path(on_disk.write_attempt(tmp_path, SPEC, outcome=None).folder))
    for path in attempt.folder.rglob("*"):
        os.utime(path, (1000.0, 1000.0))
    attempt.launcher_log.write_text("step 1\n")
    os.utime(attempt.launcher_log, (1125.0, 1125.0))
    close_abandoned_attempts(CampaignPaths(tmp_path))
    closed = files.read_json(attempt.outcome)
    assert (closed["started_t"], closed["ended_t"], closed["duration_s"]) == (1000.0, 1125.0, 125.0)


def test_finished_runs_of_another_command_are_named(tmp_path: Path) -> None:
    on_disk.write_attempt(tmp_path, SPEC)
    on_disk.write_attempt(tmp_path, replace(SPEC, run="other_r1"), outcome=Outcome.FAILED)
    plan = CampaignPlan(name="p", output=str(tmp_path), repeats=1, runs=(SPEC,))
    assert outdated_runs(CampaignPaths(tmp_path), [plan]) == ()
    changed = replace(plan, runs=(replace(SPEC, hash="another"),))
    assert outdated_runs(CampaignPaths(tmp_path), [changed]) == (SPEC.run,)
    # Another plan of the folder still has it.
    assert outdated_runs(CampaignPaths(tmp_path), [plan, changed]) == ()
