"""The campaign loop: every run of a plan, one after another, resuming what an earlier invocation finished.

In: a CampaignPlan. Out: how the invocation ended; everything else is on disk. Plans that share a folder are kept in OUT/plans, and old
attempts stay where they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from seatrial.campaign.early_end import CampaignEnd, EarlyEnd
from seatrial.campaign.interrupts import Interrupts, StopRequests
from seatrial.campaign.live_log import LiveLog
from seatrial.campaign.lock import hold_lock
from seatrial.campaign.one_run import close_attempt, code_folder, link_counted, new_attempt, run_one
from seatrial.campaign.preflight import run_preflight
from seatrial.campaign.resume import (
    changes_since,
    choose_start,
    finished_attempt,
    recover_folder,
    refuse_changed_training,
    uncounted_runs,
)
from seatrial.campaign.schedule import Invocation, RunSource, Schedule
from seatrial.campaign.slurm.allocation_loop import AllocationLoop, is_over_since, settle_other_allocation
from seatrial.campaign.slurm.job_loop import InFlightJob, JobLoop
from seatrial.campaign.slurm.outcomes import settle_other_jobs
from seatrial.campaign.slurm.program import CurrentJob
from seatrial.campaign.slurm.queue import FollowedJob
from seatrial.core import files
from seatrial.core.durable_writes import DISK_ERRNOS
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.launch.pernode_server import PernodeServer
from seatrial.launch.prepare import masked_spec
from seatrial.machine.secrets import mask_text
from seatrial.machine.software import read_git_state
from seatrial.observe.eta import CurrentRun, RunEstimate, RunEtaTracker, TimeLeft
from seatrial.observe.progress import Progress
from seatrial.records.attempt import HostFacts
from seatrial.records.caution import Check
from seatrial.records.codec import to_json
from seatrial.records.job import AllocationOrder
from seatrial.records.outcome import Cause, Outcome, Resumption, RunOutcome
from seatrial.records.plan import CURRENT, PER_CAMPAIGN, CampaignPlan, RunSpec
from seatrial.records.results import LiveState, MeasuredRun
from seatrial.results.recompute import RunRecorder

PLAN_HASH_DIGITS = 16
# The next run in the same job would get the same nodes, or, once the job is over, none.
JOB_UNUSABLE = frozenset(
    {Cause.HOST_LOST, Cause.JOB_CANCELLED, Cause.JOB_TIME_LIMIT, Cause.JOB_NODE_FAILED, Cause.JOB_PREEMPTED, Cause.JOB_LOST}
)


class Listener(Protocol):
    """Called from the campaign's own thread: `warned` first, then for each run started, progress…, ended."""

    def warned(self, checks: Sequence[Check]) -> None:
        """Failed preflight checks that do not refuse the campaign."""

    def skipped(self, spec: RunSpec, changes: str) -> None:
        """`spec` is finished and is not run again; `changes` names what of code and environment changed since, empty for nothing."""

    def resumes(self, spec: RunSpec, resumption: Resumption) -> None:
        """The next attempt of `spec` does not simply start at step 0."""

    def noted(self, text: str) -> None:
        """Another line to show: a job ended, and another follows."""

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        """A run was launched; it is the `position`-th of `count`."""

    def progress(self, state: LiveState) -> None:
        """About once a second."""

    def stopping(self, spec: RunSpec) -> None:
        """The user requested a stop; the current run is being ended."""

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        """A run is over; `measured` is None where this machine cannot measure."""


FINISHED = "already finished. Run it again with `seatrial run PLAN --again`, or remove its folder"


def run_campaign(
    plan: CampaignPlan,
    listener: Listener,
    *,
    again: bool = False,
    from_start: bool = False,
    keep_going: bool = False,
    server: PernodeServer | None = None,
    recorder: RunRecorder | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> CampaignEnd:
    """Run what is not finished yet of `plan`, or all of it `again`. A training resumes from its last complete checkpoint unless
    `from_start`. `server` has the other nodes' commands where there is no ssh; `recorder` keeps measurements for the report.

    Unless `keep_going`, it stops after MAX_IDENTICAL_FAILURES, if no run has succeeded and no setting explains them."""
    paths = CampaignPaths(Path(plan.output))
    files.refuse_links(_written_to(plan, paths))
    with hold_lock(paths) as owner, Interrupts(paths, owner).installed() as interrupts:
        if server is not None:
            server.wait_for_nodes(interrupts.stop_requested)
        preflight = run_preflight(plan, paths, server)
        listener.warned(preflight.warnings)
        settle_other_allocation(plan, paths)
        settle_other_jobs(plan, paths)
        recover_folder(paths)
        refuse_changed_training(plan, paths, again=again, from_start=from_start)
        plan_hash = save_plan(plan, paths)
        if uncounted := uncounted_runs(paths):
            listener.warned(uncounted)
        invocation = Invocation(
            plan=plan,
            plan_hash=plan_hash,
            paths=paths,
            interrupts=interrupts,
            from_start=from_start,
            keep_going=keep_going,
            monotonic=monotonic,
        )
        job = CurrentJob() if _allocation_of(plan) == CURRENT else None
        return _Campaign(invocation, listener, server, preflight.hosts, recorder or RunRecorder(paths), job).run(again)


def run_in_job(order: AllocationOrder, paths: CampaignPaths, job: CurrentJob, requests: StopRequests, listener: Listener) -> CampaignEnd:
    """Within a job for many runs: run what is left of `order`. A harness outside follows it."""
    invocation = Invocation(
        plan=order.plan,
        plan_hash=order.plan_hash,
        paths=paths,
        interrupts=requests,
        from_start=order.from_start,
        keep_going=order.keep_going,
    )
    return _Campaign(invocation, listener, job=job, first_attempts=order.first_attempts).run_left_of(order)


def _allocation_of(plan: CampaignPlan) -> str:
    """`place.allocation` of a plan whose runs are jobs, else empty."""
    wanted = plan.runs[0].place.slurm if plan.runs else None
    return wanted.allocation if wanted else ""


def _written_to(plan: CampaignPlan, paths: CampaignPaths) -> Iterator[Path]:
    """Paths that a campaign writes to: its folders and the lock file."""
    yield from (paths.lock, paths.plans, paths.charts, paths.allocations)
    yield from (one.folder for one in paths.allocation_jobs())
    yield from (paths.run(spec.run).folder for spec in plan.chosen)
    # Abandoned attempts of any plan are closed.
    for run in paths.runs():
        yield run.folder
        yield from (attempt.folder for attempt in run.attempts())


def save_plan(plan: CampaignPlan, paths: CampaignPaths) -> str:
    """Store the plan in the folder, as the latest and under its name beside earlier ones. Returns its short hash."""
    stored = to_json(replace(plan, source=mask_text(plan.source), runs=tuple(masked_spec(spec) for spec in plan.runs)))
    files.write_json(paths.plans / f"{plan.name}.json", stored)
    files.write_json(paths.plan, stored)
    # A plan with other runs selected, or another output folder, is the same plan.
    same = {name: value for name, value in stored.items() if name not in ("selected", "output", "source", "alike", "resume_changed")}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:PLAN_HASH_DIGITS]


@dataclass
class _Campaign:
    invocation: Invocation
    listener: Listener
    server: PernodeServer | None = None
    hosts: Mapping[str, HostFacts] = field(default_factory=dict)
    recorder: RunRecorder | None = None
    """None within a job, whose runs are recorded by the harness that follows it."""
    job: CurrentJob | None = None
    """The job whose nodes the runs get, one after another."""
    first_attempts: Mapping[str, int] = field(default_factory=dict)
    """Run → the job's first attempt; later ones, of a requeued job, do not start over."""

    def __post_init__(self) -> None:
        self.plan, self.paths, self.interrupts = self.invocation.plan, self.invocation.paths, self.invocation.interrupts
        self._publisher = _ProgressPublisher(self.paths, self.plan.name, self.listener, self.recorder)

    def run(self, again: bool) -> CampaignEnd:
        schedule = self._schedule(again)
        self._publisher.count = len(schedule.left)
        if self.recorder and schedule.left:
            self.recorder.load()
        try:
            return self._run_all(schedule)
        finally:
            self._publisher.over()

    def _schedule(self, again: bool) -> Schedule:
        """The runs left; durations of finished ones serve to estimate those of their groups."""
        todo: list[RunSpec] = []
        durations_s: dict[str, list[float]] = {}
        code = cache(lambda folder: read_git_state(folder, self.paths.folder))
        for spec in self.plan.chosen:
            done = finished_attempt(self.paths.run(spec.run), spec.hash)
            if done is not None:
                durations_s.setdefault(spec.group_key, []).append(done.duration_s)
            if done is None or again:
                todo.append(spec)
            else:
                link_counted(self.paths.run(spec.run), spec.hash)
                self.listener.skipped(spec, changes_since(self.paths.run(spec.run), spec, done, code(code_folder(spec)), os.environ))
                if self.invocation.from_start and len(self.plan.runs) == 1:
                    self.listener.noted(f"{spec.run}: {FINISHED}")
        return Schedule(todo, durations_s, self.plan.budget_s, self.invocation.monotonic)

    def run_left_of(self, order: AllocationOrder) -> CampaignEnd:
        """Run what an earlier start of the same job has not finished."""
        left: list[RunSpec] = []
        durations_s: dict[str, list[float]] = {}
        for spec in self.plan.chosen:
            run, first = self.paths.run(spec.run), order.first_attempts.get(spec.run)
            if done := finished_attempt(run, spec.hash):
                durations_s.setdefault(spec.group_key, []).append(done.duration_s)
            if first is not None and not is_over_since(run, first):
                left.append(spec)
        schedule = Schedule(left, durations_s, self.plan.budget_s)
        self._publisher.count = len(schedule.left)
        return self._run_all(schedule)

    def _run_all(self, schedule: RunSource) -> CampaignEnd:
        are_jobs = self.job is None and any(spec.place.traits.runs_in_jobs for spec in self.plan.runs)
        early = EarlyEnd(self.invocation, schedule)
        end = self._run_jobs(schedule, early) if are_jobs else self._run_here(schedule, early)
        return replace(end, left=len(schedule.left))

    def _run_here(self, schedule: RunSource, early: EarlyEnd) -> CampaignEnd:
        is_first = True
        while schedule.left:
            if self.interrupts.stop_requested():
                return CampaignEnd(interrupted=True)
            spec = schedule.next()
            if spec is None:
                return CampaignEnd(out_of_budget=schedule.out_of_budget)
            # The first run of a job always starts, however long it took before: a new job would have no more time.
            if self.job is not None and not is_first and (why := self.job.too_short_for(spec, schedule.expected_s(spec))):
                return CampaignEnd(job_too_short=why)
            try:
                outcome = self._run(spec, schedule)
            except OSError as error:
                # A run in progress survives a bad disk; the next one cannot be prepared on it.
                return self._end_of_disk(error)
            schedule.ended(spec, outcome)
            if self.job is not None and not self.interrupts.stop_requested() and outcome.cause in JOB_UNUSABLE:
                return CampaignEnd(jobs_ended=outcome.detail)
            if outcome.outcome is Outcome.INTERRUPTED or self.interrupts.stop_requested():
                return CampaignEnd(interrupted=True)
            if (end := early.after(spec, outcome)) is not None:
                return end
            is_first = False
        return CampaignEnd()

    def _run_jobs(self, schedule: RunSource, early: EarlyEnd) -> CampaignEnd:
        view = _JobView(self._publisher, schedule)
        loop = (AllocationLoop if _allocation_of(self.plan) == PER_CAMPAIGN else JobLoop)(self.invocation, view)
        disk_end: CampaignEnd | None = None
        try:
            loop.run(schedule, early)
        except OSError as error:
            disk_end = self._end_of_disk(error)
        if self.interrupts.stop_requested():
            return CampaignEnd(interrupted=True, jobs_left=loop.jobs_left)
        if disk_end or early.end:
            return disk_end or early.end or CampaignEnd()
        if loop.set_aside:
            return CampaignEnd(jobs_ended=next(iter(loop.set_aside.values())))
        return CampaignEnd(out_of_budget=loop.out_of_budget)

    def _end_of_disk(self, error: OSError) -> CampaignEnd:
        if error.errno not in DISK_ERRNOS:
            raise error
        return CampaignEnd(disk_trouble=f"{error.filename or self.paths.folder}: {error.strerror}")

    def _run(self, spec: RunSpec, schedule: RunSource) -> RunOutcome:
        if self.server is not None:
            self.server.wait_for_reconnect(self.interrupts.stop_requested)
        run = self.paths.run(spec.run)
        started_over = run.next_attempt().number > self.first_attempts.get(spec.run, sys.maxsize)
        resumption = choose_start(self.plan, run, spec, from_start=self.invocation.from_start and not started_over)
        if resumption is not None:
            self.listener.resumes(spec, resumption)
        attempt = new_attempt(run, resumption)
        self.listener.started(spec, attempt.number, self._publisher.count - len(schedule.left) + 1, self._publisher.count)
        eta = RunEtaTracker(spec.steps, mode=spec.timing.eta_mode, least_samples=spec.timing.eta_min_samples)

        def on_progress(progress: Progress, elapsed_s: float, quiet_s: float, alarm: str) -> None:
            run_left = eta.update(progress.last_steps, time.time())
            campaign_left = schedule.time_left(CurrentRun(group_key=spec.group_key, elapsed_s=elapsed_s, left=run_left.left))
            self._publisher.running(
                spec,
                attempt.number,
                progress,
                elapsed_s=elapsed_s,
                quiet_s=quiet_s,
                alarm=alarm,
                run_left=run_left,
                campaign_left=campaign_left,
            )

        log = LiveLog(attempt)
        try:
            on_stop, plan_hash = partial(self.listener.stopping, spec), self.invocation.plan_hash
            if self.job is not None:
                outcome = self.job.run(spec, attempt, self.interrupts, on_progress, on_stop, plan_hash, log)
            else:
                hosts, server = self.hosts, self.server
                outcome = run_one(spec, attempt, self.interrupts, on_progress, on_stop, plan_hash, server=server, hosts=hosts, log=log)
                outcome = close_attempt(attempt, outcome)
        except OSError:
            # Nothing was written, so there was no attempt.
            with contextlib.suppress(OSError):
                attempt.resume.unlink(missing_ok=True)
                attempt.folder.rmdir()
            raise
        self._publisher.ended(spec, attempt, outcome, log)
        return outcome


class _ProgressPublisher:
    """What the campaign reports: to its listener, and in progress.json for `watch`."""

    def __init__(self, paths: CampaignPaths, plan: str, listener: Listener, recorder: RunRecorder | None) -> None:
        self.listener = listener
        self.count = 0
        self._paths, self._recorder = paths, recorder
        self._state = LiveState(t=time.time(), pid=os.getpid(), host=socket.gethostname(), plan=plan, count=0)

    def running(
        self,
        spec: RunSpec,
        attempt: int,
        progress: Progress,
        run_left: RunEstimate,
        campaign_left: TimeLeft | None,
        *,
        elapsed_s: float,
        quiet_s: float | None = None,
        alarm: str = "",
        others: str = "",
    ) -> None:
        self._publish(
            **_run_fields(spec, attempt, run_left, campaign_left),
            step=progress.step,
            total_steps=progress.total,
            phase=progress.phase,
            waits="",
            elapsed_s=elapsed_s,
            quiet_s=quiet_s,
            alarm=alarm,
            others=others,
        )

    def waiting(self, spec: RunSpec, attempt: int | None, job: FollowedJob, others: str = "") -> None:
        """Neither step nor time to go: those of an earlier start of the job are not its own."""
        self._publish(
            **_run_fields(spec, attempt, RunEstimate(), None),
            step=None,
            total_steps=spec.steps,
            phase="",
            waits=job.text,
            elapsed_s=max(0.0, time.time() - job.waits_since_t) if job.waits_since_t else 0.0,
            quiet_s=None,
            others=others,
        )

    def follows(self, state: LiveState) -> None:
        """What the program in the job has published, with the counts of this invocation."""
        own = self._state
        self.listener.progress(replace(state, count=self.count, finished=own.finished, failed=own.failed, over=False))

    def ended(self, spec: RunSpec, attempt: AttemptPaths, outcome: RunOutcome, log: LiveLog | None = None) -> None:
        how = outcome.outcome
        self._publish(run=None, finished=self._state.finished + (not how.is_cut_short), failed=self._state.failed + how.is_failure)
        measured = self._recorder.record(attempt, log.line_index() if log else None) if self._recorder else None
        self.listener.ended(spec, outcome, measured)

    def over(self) -> None:
        self._publish(run=None, over=True)

    def _publish(self, **changes: object) -> None:
        self._state = replace(self._state, t=time.time(), count=self.count, **changes)  # type: ignore[arg-type]
        # For `watch`: a full disk must not cost the run.
        with contextlib.suppress(OSError):
            files.write_json(self._paths.progress, to_json(self._state))
        self.listener.progress(self._state)


@dataclass(frozen=True)
class _JobView:
    """What the loops over jobs report, passed on to the campaign's listener."""

    publisher: _ProgressPublisher
    schedule: RunSource
    positions: dict[str, int] = field(default_factory=dict)
    """Run → its position in the order of first submission."""

    def resumes(self, spec: RunSpec, resumption: Resumption) -> None:
        self.publisher.listener.resumes(spec, resumption)

    def submitted(self, spec: RunSpec, attempt: AttemptPaths, job: str) -> None:
        again = f", attempt {attempt.number}" if attempt.number > 1 else ""
        self.noted(f"[{self._position(spec)}/{self.publisher.count}] {spec.run}: submitted as job {job}{again}")

    def started(self, spec: RunSpec, attempt: AttemptPaths) -> None:
        self.publisher.listener.started(spec, attempt.number, self._position(spec), self.publisher.count)

    def _position(self, spec: RunSpec) -> int:
        return self.positions.setdefault(spec.run, len(self.positions) + 1)

    def progress(self, followed: InFlightJob, progress: Progress, elapsed_s: float, others: Sequence[InFlightJob]) -> None:
        assert followed.eta is not None
        run_left = followed.eta.update(progress.last_steps, time.time())
        campaign_left = self.schedule.time_left(CurrentRun(group_key=followed.spec.group_key, elapsed_s=elapsed_s, left=run_left.left))
        self.publisher.running(
            followed.spec, followed.attempt.number, progress, run_left, campaign_left, elapsed_s=elapsed_s, others=_others_text(others)
        )

    def noted(self, text: str) -> None:
        self.publisher.listener.noted(text)

    def waits(self, followed: InFlightJob, others: Sequence[InFlightJob]) -> None:
        self.publisher.waiting(followed.spec, followed.attempt.number, followed, _others_text(others))

    def waits_for(self, spec: RunSpec, job: FollowedJob) -> None:
        self.publisher.waiting(spec, None, job)

    def follows(self, state: LiveState) -> None:
        self.publisher.follows(state)

    def stopping(self, spec: RunSpec) -> None:
        self.publisher.listener.stopping(spec)

    def ended(self, spec: RunSpec, attempt: AttemptPaths, outcome: RunOutcome) -> None:
        self.publisher.ended(spec, attempt, outcome)


def _others_text(others: Sequence[InFlightJob]) -> str:
    return "; ".join(f"{job.spec.run}: {job.text}" for job in others)


def _run_fields(spec: RunSpec, attempt: int | None, run: RunEstimate, campaign: TimeLeft | None) -> dict[str, object]:
    """The fields of a LiveState that name the run and hold the time to go."""
    fields: dict[str, object] = {"run": spec.run, "group": spec.group, "repeat": spec.repeat, "attempt": attempt}
    fields |= {"iter_ms_p50": run.iter_ms_p50, "eta_mode": run.mode}
    for name, left in (("run", run.left), ("campaign", campaign)):
        values = (left.eta_s, left.low_s, left.high_s) if left else (None, None, None)
        fields.update(zip((f"{name}_eta_s", f"{name}_eta_low_s", f"{name}_eta_high_s"), values, strict=True))
    return fields
