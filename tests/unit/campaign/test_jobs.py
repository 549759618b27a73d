"""Runs as jobs of a Slurm that answers what each test says, by a clock of its own: what becomes of a job, whatever state it ends in."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.campaign.early_end import EarlyEnd
from seatrial.campaign.interrupts import Urgency
from seatrial.campaign.one_run import close_attempt
from seatrial.campaign.schedule import Invocation, Schedule
from seatrial.campaign.slurm import program, queue
from seatrial.campaign.slurm.job_loop import InFlightJob, JobLoop
from seatrial.campaign.slurm.outcomes import ended_by_slurm, judge_job, settle_other_jobs, stop_jobs
from seatrial.campaign.slurm.program import run_attempt
from seatrial.campaign.slurm.queue import MAX_AGAIN, NEVER_STARTS_S, FollowedJob
from seatrial.campaign.slurm.signals import JobSignals
from seatrial.core import files
from seatrial.core.errors import CampaignError, RefusedError, SeatrialError
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.launch.places import job_files
from seatrial.machine import slurm
from seatrial.machine.slurm import Answer
from seatrial.records.codec import from_json, to_json
from seatrial.records.job import FORGOTTEN, JobOrder, JobStatus, StartedJob, SubmittedJob
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, PlaceSpec, RunSpec, SlurmSpec
from tests.facts import states
from tests.unit.analyse import factory

SPEC = factory.spec("mb8", 1, place=PlaceSpec(kind="slurm", slurm=SlurmSpec(partition="gpu")))
AWAY = Answer(returncode=1, stderr="slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
OK = RunOutcome(run=SPEC.run, attempt=1, hash=SPEC.hash, outcome=Outcome.OK, duration_s=1.0)


class FakeSlurm:
    """Jobs begin as RUNNING; `ends` is what becomes of each when the loop has slept. A state of None is one that squeue does not list."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_m = 0.0
        self.states: dict[str, str | None] = {}
        self.comments: dict[str, str] = {}
        self.cancelled: list[str] = []
        self.accounting: dict[str, str] = {}
        self.away: set[str] = set()
        """Programs that get no answer."""
        self.reason = "None"
        self.queued_t = 0.0
        """When all of them were put into the queue."""
        self.takes_unanswered = False
        """Whether a job is taken though sbatch got no answer."""
        self.later: list[tuple[float, Callable[[], object]]] = []
        monkeypatch.setattr(slurm, "call", self.call)

    def at(self, now_m: float, do: Callable[[], object]) -> None:
        self.later.append((now_m, do))

    def sleep(self, duration_s: float) -> None:
        self.now_m += duration_s
        assert self.now_m < 500, "the loop does not end"
        due = [one for one in self.later if one[0] <= self.now_m]
        self.later = [one for one in self.later if one[0] > self.now_m]
        for _, do in due:
            do()

    def call(self, argv: Sequence[str], text: str = "", timeout_s: float = 0.0, **_: object) -> Answer:
        name = argv[0]
        taken = self._submit(text) if name == "sbatch" and (name not in self.away or self.takes_unanswered) else ""
        if name in self.away:
            return AWAY
        if name == "squeue":
            queued = datetime.fromtimestamp(self.queued_t).isoformat()
            known = {job: state for job, state in self.states.items() if state is not None}
            rows = [f"{job}|{state}|{self.reason}|node1|{queued}|{self.comments[job]}" for job, state in known.items()]
            return Answer(returncode=0, stdout="\n".join(rows))
        if name == "sacct":
            state = self.accounting.get(argv[-2].partition("=")[2])
            return Answer(returncode=0, stdout=f"{state}|None|node1\n") if state else Answer(returncode=1, stderr="accounting is disabled")
        if name == "scancel":
            self.cancelled.append(argv[1])
            self.states[argv[1]] = "CANCELLED"
        return Answer(returncode=0, stdout=taken)

    def _submit(self, script: str) -> str:
        job = str(len(self.states) + 1)
        self.states[job] = "RUNNING"
        self.comments[job] = script.partition("--comment=")[2].partition("\n")[0]
        return f"{job}\n"


class Listening:
    """A listener that keeps outcomes and what was shown."""

    def __init__(self) -> None:
        self.outcomes: list[RunOutcome] = []
        self.shown: list[str] = []

    def submitted(self, spec: RunSpec, attempt: AttemptPaths, job: str) -> None:
        self._show(f"submitted {job}")

    def started(self, spec: RunSpec, attempt: AttemptPaths) -> None:
        self._show("started")

    def progress(self, one: InFlightJob, *_: object) -> None:
        self._show("steps")

    def waits(self, one: InFlightJob, others: Sequence[InFlightJob]) -> None:
        self._show(one.text)

    def _show(self, text: str) -> None:
        if self.shown[-1:] != [text]:
            self.shown.append(text)

    def ended(self, spec: RunSpec, attempt: AttemptPaths, outcome: RunOutcome) -> None:
        self.outcomes.append(outcome)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class NoInterrupts:
    hung_up = False
    urgency = Urgency.NONE

    def stop_requested(self) -> bool:
        return self.urgency is not Urgency.NONE


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(monkeypatch)


def given(plan: CampaignPlan, fake: FakeSlurm, interrupts: Any = None) -> Invocation:
    return Invocation(
        plan=plan,
        plan_hash="",
        paths=CampaignPaths(Path(plan.output)),
        interrupts=interrupts or NoInterrupts(),
        monotonic=lambda: fake.now_m,
    )


def loop_of(out: Path, fake: FakeSlurm, interrupts: Any = None, specs: Sequence[RunSpec] = (SPEC,)) -> tuple[JobLoop, Schedule]:
    # Two of them: no training, which would look for checkpoints.
    plan = CampaignPlan(name="p", output=str(out), runs=(*specs, replace(SPEC, run="other")))
    return JobLoop(given(plan, fake, interrupts), Listening(), fake.sleep), Schedule(specs, {}, monotonic=lambda: fake.now_m)


def run(out: Path, fake: FakeSlurm, interrupts: Any = None) -> tuple[JobLoop, list[RunOutcome]]:
    loop, schedule = loop_of(out, fake, interrupts)
    loop.run(schedule, EarlyEnd(loop.invocation, schedule))
    assert isinstance(loop.listener, Listening)
    return loop, loop.listener.outcomes


def stored(out: Path, number: int = 1) -> RunOutcome:
    return from_json(RunOutcome, files.read_json(CampaignPaths(out).run(SPEC.run).attempt(number).outcome))


def set_states(fake: FakeSlurm, state: str | None) -> None:
    fake.states = {job: state if known == "RUNNING" else known for job, known in fake.states.items()}


def attempt_1(out: Path) -> AttemptPaths:
    return CampaignPaths(out).run(SPEC.run).attempt(1)


def finish(out: Path, fake: FakeSlurm, state: str | None) -> None:
    close_attempt(attempt_1(out), OK)
    set_states(fake, state)


JUDGED = [
    ("TIMEOUT", Outcome.INTERRUPTED, Cause.JOB_TIME_LIMIT, "reached its time limit"),
    ("DEADLINE", Outcome.INTERRUPTED, Cause.JOB_TIME_LIMIT, "reached its deadline"),
    ("NODE_FAIL", Outcome.INTERRUPTED, Cause.JOB_NODE_FAILED, "lost a node (node7)"),
    ("PREEMPTED", Outcome.INTERRUPTED, Cause.JOB_PREEMPTED, "was preempted"),
    ("CANCELLED", Outcome.INTERRUPTED, Cause.JOB_CANCELLED, "was cancelled"),
    (FORGOTTEN, Outcome.INTERRUPTED, Cause.JOB_LOST, "does not know it any more"),
    ("OUT_OF_MEMORY", Outcome.FAILED, Cause.HOST_OOM, "more memory than it was given"),
    ("COMPLETED", Outcome.FAILED, Cause.JOB_FAILED, "ended as COMPLETED before the run had begun: slurmstepd: no such file"),
    ("FAILED", Outcome.FAILED, Cause.JOB_FAILED, "ended as FAILED before the run had begun: slurmstepd: no such file"),
]


@pytest.mark.parametrize(("state", "how", "cause", "text"), JUDGED)
def test_a_job_that_left_no_outcome_is_judged_by_its_state(tmp_path: Path, state: str, how: Outcome, cause: Cause, text: str) -> None:
    attempt = AttemptPaths(tmp_path)
    attempt.job_log.write_text("slurmstepd: no such file\n")
    outcome = judge_job(attempt, SPEC, "12", JobStatus(state=state, nodes="node7"))
    assert (outcome.outcome, outcome.cause) == (how, cause) and text in outcome.detail and outcome.action


def test_what_the_program_in_the_job_saw_is_kept_and_slurm_adds_the_cause(tmp_path: Path) -> None:
    attempt = AttemptPaths(tmp_path)
    seen = ended_by_slurm(replace(OK, duration_s=7.0))
    files.write_json(attempt.job_outcome, to_json(seen))
    outcome = judge_job(attempt, SPEC, "12", JobStatus(state="PREEMPTED"))
    assert outcome.cause is Cause.JOB_PREEMPTED and outcome.duration_s == seen.duration_s


@pytest.mark.parametrize(
    ("state", "submissions"),
    [("CANCELLED", 1), ("TIMEOUT", 1), ("COMPLETED", 1), ("OUT_OF_MEMORY", 1), ("NODE_FAIL", 1 + MAX_AGAIN), ("PREEMPTED", 1 + MAX_AGAIN)],
)
def test_how_often_a_run_is_submitted_whose_jobs_all_end_alike(tmp_path: Path, fake: FakeSlurm, state: str, submissions: int) -> None:
    for turn in range(1, 20):
        fake.at(turn * 10.0, lambda: set_states(fake, state))
    loop, outcomes = run(tmp_path, fake)
    assert len(fake.states) == len(outcomes) == submissions
    # Each attempt has its outcome, and what is to be run again is said to be left.
    assert [stored(tmp_path, number + 1) for number in range(submissions)] == outcomes
    assert (SPEC.run in loop.set_aside) == (outcomes[-1].outcome is Outcome.INTERRUPTED)


def test_a_controller_that_does_not_answer_is_waited_for(tmp_path: Path, fake: FakeSlurm) -> None:
    fake.at(2.0, lambda: fake.away.update({"squeue", "sacct"}))
    fake.at(20.0, lambda: finish(tmp_path, fake, None))
    fake.at(200.0, fake.away.clear)
    _, outcomes = run(tmp_path, fake)
    assert [one.outcome for one in outcomes] == [Outcome.OK] and len(fake.states) == 1 and fake.now_m >= 200


@pytest.mark.parametrize("taken", [True, False])
def test_a_submission_without_an_answer_is_one_job_in_the_end(tmp_path: Path, fake: FakeSlurm, taken: bool) -> None:
    fake.away.update({"sbatch", "squeue"})
    fake.takes_unanswered = taken
    fake.at(30.0, fake.away.clear)
    fake.at(60.0, lambda: finish(tmp_path, fake, "COMPLETED"))
    _, outcomes = run(tmp_path, fake)
    assert [one.outcome for one in outcomes] == [Outcome.OK] and len(fake.states) == 1
    assert from_json(SubmittedJob, files.read_json(attempt_1(tmp_path).job)).job == "1"


@pytest.mark.parametrize("state", ["COMPLETED", None])
def test_an_outcome_that_the_file_system_shows_late_counts(tmp_path: Path, fake: FakeSlurm, state: str | None) -> None:
    fake.at(10.0, lambda: set_states(fake, state))
    fake.at(14.0, lambda: close_attempt(attempt_1(tmp_path), OK))
    _, outcomes = run(tmp_path, fake)
    assert [one.outcome for one in outcomes] == [Outcome.OK]


@pytest.mark.parametrize(("accounted", "cause"), [("CANCELLED by 0", Cause.JOB_CANCELLED), ("", Cause.JOB_LOST)])
def test_a_job_that_squeue_has_forgotten(tmp_path: Path, fake: FakeSlurm, accounted: str, cause: Cause) -> None:
    fake.accounting["1"] = accounted
    fake.at(10.0, lambda: set_states(fake, None))
    assert [one.cause for one in run(tmp_path, fake)[1]] == [cause]


def test_a_job_of_an_earlier_harness_is_picked_up_and_not_submitted_again(tmp_path: Path, fake: FakeSlurm) -> None:
    interrupts = NoInterrupts()
    fake.at(5.0, lambda: setattr(interrupts, "hung_up", True))
    assert run(tmp_path, fake, interrupts)[1] == [] and fake.cancelled == []
    fake.at(20.0, lambda: finish(tmp_path, fake, "COMPLETED"))
    assert [one.outcome for one in run(tmp_path, fake)[1]] == [Outcome.OK] and len(fake.states) == 1


def test_a_terminal_that_is_closed_while_slurm_is_asked_stops_nothing(
    tmp_path: Path, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = NoInterrupts()

    def call(argv: Sequence[str], *how: Any, **more: Any) -> Answer:
        if argv[0] == "squeue" and fake.now_m > 5:
            interrupts.hung_up, interrupts.urgency = True, Urgency.STOP
            return AWAY
        return fake.call(argv, *how, **more)

    monkeypatch.setattr(slurm, "call", call)
    assert run(tmp_path, fake, interrupts)[1] == [] and fake.cancelled == []
    assert interrupts.hung_up and not attempt_1(tmp_path).job_stop.exists()


@pytest.mark.parametrize("now", [(replace(SPEC, hash="changed"),), ()], ids=["a changed run", "a run that left the plan"])
def test_a_job_of_the_plan_as_it_was_is_in_the_way_until_it_is_over(tmp_path: Path, fake: FakeSlurm, now: tuple[RunSpec, ...]) -> None:
    interrupts = NoInterrupts()
    fake.at(5.0, lambda: setattr(interrupts, "hung_up", True))
    run(tmp_path, fake, interrupts)
    paths, changed = CampaignPaths(tmp_path), CampaignPlan(name="p", output=str(tmp_path), runs=now)
    same = CampaignPlan(name="p", output=str(tmp_path), runs=(SPEC,))
    settle_other_jobs(same, paths)
    with pytest.raises(RefusedError, match=rf"job 1 .*mb8_r1.*attempt 1.*`seatrial stop {tmp_path}`"):
        settle_other_jobs(changed, paths)
    fake.away.add("squeue")
    with pytest.raises(RefusedError, match="Slurm job 1 may still run mb8_r1 of the previous plan"):
        settle_other_jobs(changed, paths)
    fake.away.clear()
    assert not attempt_1(tmp_path).outcome.exists()
    fake.states["1"] = "CANCELLED"
    settle_other_jobs(changed, paths)
    assert stored(tmp_path).cause is Cause.JOB_CANCELLED and fake.cancelled == []


def test_a_stop_that_no_rank_follows_cancels_the_job_in_the_end(tmp_path: Path, fake: FakeSlurm) -> None:
    interrupts = NoInterrupts()
    fake.at(5.0, lambda: setattr(interrupts, "urgency", Urgency.STOP))
    # A controller that is away when it is to be cancelled is asked again.
    fake.at(6.0, lambda: fake.away.add("scancel"))
    fake.at(100.0, fake.away.clear)
    _, outcomes = run(tmp_path, fake, interrupts)
    assert [(one.outcome, one.cause) for one in outcomes] == [(Outcome.INTERRUPTED, Cause.USER)] and fake.cancelled == ["1"]
    assert attempt_1(tmp_path).job_stop.exists()


def test_each_wait_in_the_queue_has_its_deadline_and_is_shown_as_a_wait(
    tmp_path: Path, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that ran and is requeued waits anew: neither its old step nor its old deadline is its own."""
    limited = replace(SPEC, place=replace(SPEC.place, slurm=SlurmSpec(partition="gpu", queue_s=60.0)))
    loop, schedule = loop_of(tmp_path, fake, specs=(limited,))
    begin_t = time.time()
    monkeypatch.setattr(queue, "time", SimpleNamespace(time=lambda: begin_t + fake.now_m))

    def requeue() -> None:
        fake.states["1"], fake.reason, fake.queued_t = "PENDING", "ReqNodeNotAvail", begin_t + fake.now_m

    fake.at(4.0, lambda: job_files.record_start(attempt_1(tmp_path), StartedJob(job="1", started_t=time.time())))
    fake.at(100.0, requeue)
    loop.run(schedule, EarlyEnd(loop.invocation, schedule))
    assert isinstance(loop.listener, Listening) and fake.cancelled == ["1"] and fake.now_m > 160
    assert [one.cause for one in loop.listener.outcomes] == [Cause.JOB_QUEUE_DEADLINE] and SPEC.run in loop.set_aside
    shown = loop.listener.shown
    assert shown[0] == "submitted 1" and shown[shown.index("started") :][:2] == ["started", "steps"]
    assert shown[shown.index("steps") + 1].startswith("job 1 pending (ReqNodeNotAvail) since ") and shown.count("steps") == 1


@pytest.mark.parametrize(("reason", "cancelled"), [("PartitionTimeLimit", True), ("QOSMaxGRESPerJob", True), ("AssocMaxJobsLimit", False)])
def test_a_reason_that_no_other_jobs_end_resolves_ends_the_wait(tmp_path: Path, fake: FakeSlurm, reason: str, cancelled: bool) -> None:
    fake.at(1.0, lambda: set_states(fake, "PENDING"))
    fake.reason = reason
    interrupts = NoInterrupts()
    fake.at(NEVER_STARTS_S + 30, lambda: setattr(interrupts, "hung_up", True))
    _, outcomes = run(tmp_path, fake, interrupts)
    assert [(one.cause, one.detail) for one in outcomes] == (
        [(Cause.JOB_NEVER_STARTS, f"Slurm job 1 could never start ({reason}), and was cancelled")] if cancelled else []
    )


def test_a_second_stop_without_an_answer_ends_at_once_and_names_the_jobs(tmp_path: Path, fake: FakeSlurm) -> None:
    interrupts = NoInterrupts()
    programs = {"squeue", "scancel", "sbatch", "sacct"}
    fake.at(5.0, lambda: fake.away.update(programs))
    fake.at(6.0, lambda: setattr(interrupts, "urgency", Urgency.STOP))
    fake.at(20.0, lambda: setattr(interrupts, "urgency", Urgency.KILL))
    loop, outcomes = run(tmp_path, fake, interrupts)
    assert outcomes == [] and fake.now_m < 25 and attempt_1(tmp_path).job_stop.exists()
    assert states(loop.jobs_left, "job 1", "`scancel 1`")
    # The ranks halted meanwhile; the next harness finds that, and runs it again.
    fake.away.clear()
    job_files.record_start(attempt_1(tmp_path), StartedJob(job="1", started_t=0.0))
    close_attempt(attempt_1(tmp_path), replace(OK, outcome=Outcome.INTERRUPTED, cause=Cause.USER))
    attempt_1(tmp_path).outcome.rename(tmp_path / "kept")
    fake.at(22.0, lambda: (tmp_path / "kept").rename(attempt_1(tmp_path).outcome))
    fake.at(22.0, lambda: fake.states.update({"1": "COMPLETED"}))
    fake.at(40.0, lambda: finish_attempt(tmp_path, fake, 2))
    assert [one.outcome for one in run(tmp_path, fake)[1]] == [Outcome.INTERRUPTED, Outcome.OK]


def finish_attempt(out: Path, fake: FakeSlurm, number: int) -> None:
    close_attempt(CampaignPaths(out).run(SPEC.run).attempt(number), replace(OK, attempt=number))
    fake.states[str(number)] = "COMPLETED"


def test_a_job_that_was_asked_to_stop_before_it_started_is_wanted_again(tmp_path: Path, fake: FakeSlurm) -> None:
    interrupts = NoInterrupts()
    fake.at(1.0, lambda: set_states(fake, "PENDING"))
    fake.at(5.0, lambda: fake.away.update({"squeue", "scancel"}))
    fake.at(6.0, lambda: setattr(interrupts, "urgency", Urgency.STOP))
    fake.at(20.0, lambda: setattr(interrupts, "urgency", Urgency.KILL))
    run(tmp_path, fake, interrupts)
    assert attempt_1(tmp_path).job_stop.exists()
    fake.away.clear()
    fake.at(25.0, lambda: finish(tmp_path, fake, "COMPLETED"))
    fake.at(25.0, lambda: fake.states.update({"1": "COMPLETED"}))
    assert [one.outcome for one in run(tmp_path, fake)[1]] == [Outcome.OK] and not attempt_1(tmp_path).job_stop.exists()


def test_a_stop_before_a_job_was_taken_cancels_none() -> None:
    assert FollowedJob(cancelled=Cause.USER).why_cancelled(None) == "stopped by the user before a job was submitted"


def test_a_stop_without_a_harness(tmp_path: Path, fake: FakeSlurm) -> None:
    paths = CampaignPaths(tmp_path)
    assert stop_jobs(paths) == {}
    interrupts = NoInterrupts()
    fake.at(5.0, lambda: setattr(interrupts, "hung_up", True))
    run(tmp_path, fake, interrupts)
    fake.away.add("squeue")
    with pytest.raises(CampaignError, match="Slurm does not answer"):
        stop_jobs(paths)
    fake.away.clear()
    # Its number was never written down.
    attempt_1(tmp_path).job.unlink()
    assert stop_jobs(paths) == {"1": True} and attempt_1(tmp_path).job_stop.exists() and fake.cancelled == []
    fake.states["1"] = "PENDING"
    assert stop_jobs(paths) == {"1": False} and fake.cancelled == ["1"] and stored(tmp_path).cause is Cause.USER
    assert stop_jobs(paths) == {}


ENVIRON = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "node1"}


@pytest.fixture
def ordered(tmp_path: Path, fake: FakeSlurm) -> Iterator[AttemptPaths]:
    """An attempt whose job has been submitted; signal handlers are as before afterwards."""
    attempt = AttemptPaths(tmp_path / SPEC.run / "attempt-1")
    attempt.folder.mkdir(parents=True)
    files.write_private_json(attempt.job_order, to_json(JobOrder(spec=SPEC)))
    job_files.record(attempt, SubmittedJob(job="12"))
    attempt.job_script.write_text("#!/bin/bash\n")
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)}
    yield attempt
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_program_that_slurm_lost_sight_of_ends_and_leaves_the_later_outcome(
    ordered: AttemptPaths, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slurmd is dead, and Slurm starts the job again on another node: two programs of one job at a time."""
    monkeypatch.setattr(slurm, "host_names", lambda nodelist: ("node1",))
    ended: list[Urgency] = []

    def second(spec: RunSpec, attempt: AttemptPaths, *_: Any, **__: Any) -> RunOutcome:
        assert attempt.number == 2
        return replace(OK, attempt=2)

    def first(spec: RunSpec, attempt: AttemptPaths, signals: JobSignals, *_: Any, **__: Any) -> RunOutcome:
        assert attempt.number == 1 and signals.urgency is Urgency.NONE
        monkeypatch.setattr(program, "run_one", second)
        assert run_attempt(ordered, {**ENVIRON, "SLURM_RESTART_COUNT": "1"}).outcome is Outcome.OK
        monkeypatch.setattr("seatrial.campaign.slurm.signals.STOP_POLL_S", 0.0)
        ended.append(signals.urgency)
        return OK

    monkeypatch.setattr(program, "run_one", first)
    assert run_attempt(ordered, ENVIRON).cause is Cause.JOB_REQUEUED
    assert ended == [Urgency.KILL]
    attempts = [ordered, AttemptPaths(ordered.folder.with_name("attempt-2"))]
    found = [from_json(RunOutcome, files.read_json(one.outcome)) for one in attempts]
    assert [(one.outcome, one.cause) for one in found] == [(Outcome.INTERRUPTED, Cause.JOB_REQUEUED), (Outcome.OK, Cause.NONE)]
    assert [from_json(StartedJob, files.read_json(one.job_start)).restarts for one in attempts] == [0, 1]


def test_a_script_submitted_by_hand_while_its_job_lives_is_refused(ordered: AttemptPaths, fake: FakeSlurm) -> None:
    by_hand = {**ENVIRON, "SLURM_JOB_ID": "13"}
    for state, said in (("PENDING", "job 12 waits for "), ("RUNNING", "job 12 runs ")):
        fake.states, fake.comments = {"12": state}, {"12": ""}
        with pytest.raises(SeatrialError, match=said):
            run_attempt(ordered, by_hand)
    fake.away.add("squeue")
    with pytest.raises(SeatrialError, match="job 12 may still run"):
        run_attempt(ordered, by_hand)
    assert not ordered.job_start.exists() and not ordered.outcome.exists()


def test_a_script_submitted_by_hand_after_its_job_is_run(ordered: AttemptPaths, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "host_names", lambda nodelist: ("node1",))
    monkeypatch.setattr(program, "run_one", lambda *_, **__: OK)
    fake.states, fake.comments = {"12": "CANCELLED"}, {"12": ""}
    assert run_attempt(ordered, {**ENVIRON, "SLURM_JOB_ID": "13"}).outcome is Outcome.OK
