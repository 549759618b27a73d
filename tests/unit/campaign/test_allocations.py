"""One job for many runs, by a Slurm that answers what each test says: how often it is submitted, and what becomes of its attempts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign.early_end import EarlyEnd
from seatrial.campaign.interrupts import Urgency
from seatrial.campaign.one_run import close_attempt
from seatrial.campaign.resume import close_abandoned_attempts
from seatrial.campaign.schedule import Schedule
from seatrial.campaign.slurm.allocation_loop import AllocationLoop, settle_other_allocation
from seatrial.campaign.slurm.outcomes import stop_jobs
from seatrial.campaign.slurm.program import CurrentJob
from seatrial.campaign.slurm.queue import MAX_AGAIN
from seatrial.campaign.slurm_allocation_program import run_allocation
from seatrial.core import files
from seatrial.core.errors import RefusedError
from seatrial.core.paths import CampaignPaths
from seatrial.launch.places import job_files
from seatrial.machine import slurm
from seatrial.records.codec import from_json, to_json
from seatrial.records.job import AllocationEnd, AllocationEnding, StartedJob
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, PlaceSpec, SlurmSpec
from tests.unit.analyse import factory
from tests.unit.campaign.test_jobs import FakeSlurm, Listening, NoInterrupts, given, set_states

HELD = PlaceSpec(kind="slurm", slurm=SlurmSpec(allocation="campaign"))
FIRST, SECOND = (factory.spec("mb8", repeat, place=HELD) for repeat in (1, 2))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(monkeypatch)


def run(out: Path, fake: FakeSlurm, interrupts: Any = None) -> tuple[AllocationLoop, list[RunOutcome]]:
    plan = CampaignPlan(name="p", output=str(out), runs=(FIRST, SECOND))
    listening = Listening()
    loop = AllocationLoop(given(plan, fake, interrupts), listening, fake.sleep)
    schedule = Schedule((FIRST, SECOND), {}, monotonic=lambda: fake.now_m)
    loop.run(schedule, EarlyEnd(loop.invocation, schedule))
    return loop, listening.outcomes


def begin(out: Path, run: str) -> None:
    attempt = CampaignPaths(out).run(run).next_attempt()
    attempt.folder.mkdir(parents=True)
    job_files.record_start(attempt, StartedJob(job="1", started_t=0.0))


def finish(out: Path, run: str) -> None:
    begin(out, run)
    attempt = CampaignPaths(out).run(run).attempts()[-1]
    close_attempt(attempt, RunOutcome(run=run, attempt=attempt.number, hash=FIRST.hash, outcome=Outcome.OK, duration_s=1.0))


def end(out: Path, fake: FakeSlurm, ending: AllocationEnding, state: str = "COMPLETED") -> None:
    files.write_json(CampaignPaths(out).allocation_jobs()[-1].job_end, to_json(AllocationEnd(ending=ending, detail="why")))
    set_states(fake, state)


def test_one_job_for_all_runs(tmp_path: Path, fake: FakeSlurm) -> None:
    fake.at(5.0, lambda: finish(tmp_path, FIRST.run))
    fake.at(9.0, lambda: finish(tmp_path, SECOND.run))
    fake.at(10.0, lambda: end(tmp_path, fake, AllocationEnding.DONE))
    loop, outcomes = run(tmp_path, fake)
    assert len(fake.states) == 1 and [one.run for one in outcomes] == [FIRST.run, SECOND.run] and not loop.set_aside


@pytest.mark.parametrize(
    ("state", "submissions"), [("CANCELLED", 1), ("TIMEOUT", 1), ("FAILED", 1), ("NODE_FAIL", 1 + MAX_AGAIN), ("PREEMPTED", 1 + MAX_AGAIN)]
)
def test_how_often_it_is_submitted_where_nothing_is_reached(tmp_path: Path, fake: FakeSlurm, state: str, submissions: int) -> None:
    for turn in range(1, 20):
        fake.at(turn * 10.0, lambda: set_states(fake, state))
    loop, outcomes = run(tmp_path, fake)
    assert len(fake.states) == submissions and outcomes == [] and set(loop.set_aside) == {FIRST.run, SECOND.run}
    assert all(one.job_end.exists() for one in CampaignPaths(tmp_path).allocation_jobs())


@pytest.mark.parametrize("state", ["TIMEOUT", "NODE_FAIL"])
def test_what_was_cut_short_runs_again_in_the_next_job(tmp_path: Path, fake: FakeSlurm, state: str) -> None:
    fake.at(5.0, lambda: finish(tmp_path, FIRST.run))
    fake.at(6.0, lambda: begin(tmp_path, SECOND.run))
    fake.at(10.0, lambda: set_states(fake, state))
    fake.at(30.0, lambda: finish(tmp_path, SECOND.run))
    fake.at(31.0, lambda: end(tmp_path, fake, AllocationEnding.DONE))
    _, outcomes = run(tmp_path, fake)
    assert len(fake.states) == 2 and [one.outcome for one in outcomes] == [Outcome.OK, Outcome.INTERRUPTED, Outcome.OK]


def test_a_run_that_is_too_long_for_any_job_is_left_and_the_others_get_theirs(tmp_path: Path, fake: FakeSlurm) -> None:
    fake.at(5.0, lambda: begin(tmp_path, FIRST.run))
    fake.at(10.0, lambda: set_states(fake, "TIMEOUT"))
    fake.at(30.0, lambda: finish(tmp_path, SECOND.run))
    fake.at(31.0, lambda: end(tmp_path, fake, AllocationEnding.DONE))
    loop, outcomes = run(tmp_path, fake)
    assert [(one.run, one.cause) for one in outcomes] == [(FIRST.run, Cause.JOB_TIME_LIMIT), (SECOND.run, Cause.NONE)]
    assert set(loop.set_aside) == {FIRST.run} and len(fake.states) == 2


def test_too_little_time_left_is_followed_by_another_job(tmp_path: Path, fake: FakeSlurm) -> None:
    fake.at(5.0, lambda: finish(tmp_path, FIRST.run))
    fake.at(6.0, lambda: end(tmp_path, fake, AllocationEnding.TIME_LEFT))
    fake.at(20.0, lambda: finish(tmp_path, SECOND.run))
    fake.at(21.0, lambda: end(tmp_path, fake, AllocationEnding.DONE))
    assert not run(tmp_path, fake)[0].set_aside and len(fake.states) == 2


@pytest.mark.parametrize("taken", [True, False])
def test_a_submission_without_an_answer_is_one_job_in_the_end(tmp_path: Path, fake: FakeSlurm, taken: bool) -> None:
    fake.away.update({"sbatch", "squeue"})
    fake.takes_unanswered = taken
    fake.at(30.0, fake.away.clear)
    fake.at(60.0, lambda: [finish(tmp_path, FIRST.run), finish(tmp_path, SECOND.run), end(tmp_path, fake, AllocationEnding.DONE)])
    assert len(run(tmp_path, fake)[1]) == 2 and len(fake.states) == 1


def test_a_job_of_an_earlier_harness_is_picked_up_and_its_attempts_are_left_alone(tmp_path: Path, fake: FakeSlurm) -> None:
    interrupts = NoInterrupts()
    fake.at(3.0, lambda: begin(tmp_path, FIRST.run))
    fake.at(5.0, lambda: setattr(interrupts, "hung_up", True))
    run(tmp_path, fake, interrupts)
    paths = CampaignPaths(tmp_path)
    close_abandoned_attempts(paths)
    attempt = paths.run(FIRST.run).attempt(1)
    assert not attempt.outcome.exists() and fake.cancelled == []
    ok = RunOutcome(run=FIRST.run, attempt=1, hash=FIRST.hash, outcome=Outcome.OK)
    fake.at(10.0, lambda: close_attempt(attempt, ok))
    fake.at(12.0, lambda: [finish(tmp_path, SECOND.run), end(tmp_path, fake, AllocationEnding.DONE)])
    assert [one.outcome for one in run(tmp_path, fake)[1]] == [Outcome.OK, Outcome.OK] and len(fake.states) == 1


def test_a_job_that_runs_the_plan_as_it_was_is_in_the_way_until_it_is_over(tmp_path: Path, fake: FakeSlurm) -> None:
    interrupts = NoInterrupts()
    fake.at(3.0, lambda: begin(tmp_path, FIRST.run))
    fake.at(5.0, lambda: setattr(interrupts, "hung_up", True))
    run(tmp_path, fake, interrupts)
    paths = CampaignPaths(tmp_path)
    plan = CampaignPlan(name="p", output=str(tmp_path), runs=(FIRST, SECOND))
    settle_other_allocation(plan, paths)
    changed = replace(plan, runs=(replace(FIRST, hash="other"), SECOND))
    with pytest.raises(RefusedError, match="Slurm job 1 may still run the previous plan"):
        settle_other_allocation(changed, paths)
    set_states(fake, "CANCELLED")
    settle_other_allocation(changed, paths)
    outcome = from_json(RunOutcome, files.read_json(paths.run(FIRST.run).attempt(1).outcome))
    assert outcome.cause is Cause.JOB_CANCELLED and paths.open_allocation() is None


def test_a_stop_asks_first_and_cancels_what_does_not_follow(tmp_path: Path, fake: FakeSlurm) -> None:
    interrupts = NoInterrupts()
    fake.at(3.0, lambda: begin(tmp_path, FIRST.run))
    fake.at(5.0, lambda: setattr(interrupts, "urgency", Urgency.STOP))
    _, outcomes = run(tmp_path, fake, interrupts)
    assert [one.cause for one in outcomes] == [Cause.USER] and fake.cancelled == ["1"] and len(fake.states) == 1
    assert CampaignPaths(tmp_path).allocation_jobs()[0].job_stop.exists()


def test_a_stop_without_a_harness(tmp_path: Path, fake: FakeSlurm) -> None:
    interrupts = NoInterrupts()
    fake.at(5.0, lambda: setattr(interrupts, "hung_up", True))
    run(tmp_path, fake, interrupts)
    paths = CampaignPaths(tmp_path)
    held = paths.allocation_jobs()[0]
    assert stop_jobs(paths) == {"1": True} and held.job_stop.exists()
    fake.states["1"] = "PENDING"
    assert stop_jobs(paths) == {"1": False} and fake.cancelled == ["1"] and held.job_end.exists() and stop_jobs(paths) == {}


def test_a_program_that_was_replaced_ends_and_writes_no_end(tmp_path: Path, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slurmd is dead, and Slurm has started the job again on another node."""
    interrupts = NoInterrupts()
    fake.at(5.0, lambda: setattr(interrupts, "hung_up", True))
    run(tmp_path, fake, interrupts)
    paths = CampaignPaths(tmp_path).allocation_jobs()[0]
    monkeypatch.setattr(slurm, "host_names", lambda nodelist: ("node1",))

    def replaced(order: Any, campaign: Any, job: Any, signals: Any, listener: Any) -> Any:
        job_files.record_start(paths, replace(StartedJob(job="1", started_t=0.0), restarts=1))
        assert signals.urgency is Urgency.KILL
        return None

    monkeypatch.setattr("seatrial.campaign.slurm_allocation_program.run_in_job", replaced)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert run_allocation(paths, {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node1"}) is None and not paths.job_end.exists()


@pytest.mark.parametrize(
    ("shown", "expected_s", "is_short"),
    [
        ("4:59", 60.0, False),
        ("2:59", 60.0, True),
        ("1-00:00:00", 3600.0, False),
        ("1:59", None, True),
        ("UNLIMITED", 9e9, False),
        ("", 9e9, False),
    ],
)
def test_whether_a_job_has_time_for_the_next_run(
    monkeypatch: pytest.MonkeyPatch, shown: str, expected_s: float | None, is_short: bool
) -> None:
    """Slurm warns two minutes before the end."""
    monkeypatch.setattr(slurm, "call", lambda argv, *_, **__: slurm.Answer(returncode=0, stdout=f"{shown}\n"))
    assert bool(CurrentJob({"SLURM_JOB_ID": "1"}).too_short_for(FIRST, expected_s)) == is_short


@pytest.mark.parametrize(
    ("state", "how", "cause"),
    [
        ("RUNNING", Outcome.FAILED, Cause.HOST_LOST),
        ("TIMEOUT", Outcome.INTERRUPTED, Cause.JOB_TIME_LIMIT),
        ("CANCELLED", Outcome.INTERRUPTED, Cause.JOB_CANCELLED),
    ],
)
def test_a_run_in_the_users_job_that_fails_since_the_job_is_over_is_no_failed_run(
    tmp_path: Path, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch, state: str, how: Outcome, cause: Cause
) -> None:
    fake.states, fake.comments = {"1": state}, {"1": ""}
    monkeypatch.setattr(slurm, "host_names", lambda nodelist: ("node1",))
    lost = RunOutcome(run=FIRST.run, attempt=1, hash=FIRST.hash, outcome=Outcome.FAILED, cause=Cause.HOST_LOST)
    monkeypatch.setattr("seatrial.campaign.slurm.program.run_one", lambda *_, **__: lost)
    attempt = CampaignPaths(tmp_path).run(FIRST.run).attempt(1)
    attempt.folder.mkdir(parents=True)
    outcome = CurrentJob({"SLURM_JOB_ID": "1"}).run(FIRST, attempt, NoInterrupts())
    assert (outcome.outcome, outcome.cause) == (how, cause)
    # A harness that is killed takes such a run along: the next one closes it.
    assert not attempt.job.exists()
