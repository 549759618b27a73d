"""The campaign loop of place `slurm`: every run a job, `place.jobs` of them in flight.

    pick up what an earlier process submitted → submit → poll (Slurm's state, and the attempt's own files) → the outcome

All state is in the folder: if the harness is killed, another one continues. A job that ends without an outcome gets one here, with the
cause from Slurm's state. Stop requests, and a controller that does not answer: `campaign.slurm.queue`. Closing the terminal stops nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from seatrial.campaign.early_end import EarlyEnd
from seatrial.campaign.one_run import close_attempt, new_attempt
from seatrial.campaign.resume import choose_start, makes_progress
from seatrial.campaign.run_outcome import outcome_of_unstarted
from seatrial.campaign.schedule import RunSource
from seatrial.campaign.slurm import RUN_PROGRAM
from seatrial.campaign.slurm.outcomes import RUN_AGAIN, judge_job, with_cause
from seatrial.campaign.slurm.queue import MAX_AGAIN, POLL_S, FollowedJob, JobFollower, StopListener, left_text
from seatrial.core import files
from seatrial.core.errors import LaunchError
from seatrial.core.paths import AttemptPaths
from seatrial.launch.places.job_files import read_order, started
from seatrial.launch.prepare import masked_spec
from seatrial.observe.eta import RunEtaTracker
from seatrial.observe.progress import Progress, ProgressReader
from seatrial.records.codec import to_json
from seatrial.records.job import JobOrder
from seatrial.records.outcome import Cause, Outcome, Resumption, RunOutcome
from seatrial.records.plan import RunSpec
from seatrial.records.stored import accepted_outcome


@dataclass(kw_only=True)
class InFlightJob(FollowedJob):
    """One run between its submission and its outcome."""

    spec: RunSpec
    attempt: AttemptPaths
    started_m: float | None = None
    reader: ProgressReader | None = None
    eta: RunEtaTracker | None = None

    @property
    def is_running(self) -> bool:
        """Whether its ranks may take steps; not while a requeued job waits again."""
        return self.started_m is not None and not self.status.is_queued and not self.status.is_over


class JobListener(StopListener, Protocol):
    """What the campaign reports about its jobs (`campaign.loop.Listener` and its published state)."""

    def resumes(self, spec: RunSpec, resumption: Resumption) -> None: ...
    def submitted(self, spec: RunSpec, attempt: AttemptPaths, job: str) -> None: ...
    def started(self, spec: RunSpec, attempt: AttemptPaths) -> None: ...
    def progress(self, followed: InFlightJob, progress: Progress, elapsed_s: float, others: Sequence[InFlightJob]) -> None: ...
    def waits(self, followed: InFlightJob, others: Sequence[InFlightJob]) -> None: ...
    def ended(self, spec: RunSpec, attempt: AttemptPaths, outcome: RunOutcome) -> None: ...


@dataclass
class JobLoop(JobFollower):
    """The jobs of one campaign."""

    listener: JobListener

    def __post_init__(self) -> None:
        super().__post_init__()
        self.in_flight: dict[str, InFlightJob] = {}
        self._again: dict[str, int] = {}
        self._submitted: set[str] = set()

    def run(self, schedule: RunSource, early: EarlyEnd) -> None:
        """Follow jobs until every run has its outcome or is set aside; after an `early` end none is submitted."""
        self._pick_up(schedule)
        while True:
            if early.end is None and not self.interrupts.stop_requested():
                self._submit_next(schedule)
            if not self.in_flight or self.interrupts.hung_up:
                return
            self._queue.ask()
            for followed in list(self.in_flight.values()):
                outcome = self._look(followed)
                if outcome is not None:
                    self._finish(followed, outcome, schedule)
                    early.after(followed.spec, outcome)
            self._stop_where_requested([(followed.spec, followed, followed.attempt) for followed in self.in_flight.values()])
            if self._queue.abandoned and self.in_flight:
                self.jobs_left = left_text(self.in_flight)
                return
            self._show()
            if self.in_flight:
                self.sleep(POLL_S)

    def _pick_up(self, schedule: RunSource) -> None:
        """Follow the attempts that have a job and no outcome yet."""
        for spec in schedule.left:
            attempts = self.paths.run(spec.run).attempts()
            newest = attempts[-1] if attempts else None
            if newest is None or newest.outcome.exists() or not newest.job_script.exists():
                continue
            order = read_order(newest)
            if order is not None and order.spec.hash == spec.hash:
                self._follow(spec, newest).stopped_before = self._was_stopped(newest)

    def _submit_next(self, schedule: RunSource) -> None:
        wanted = self.plan.runs[0].place.slurm
        most = wanted.jobs if wanted else 1
        while len(self.in_flight) < most:
            skip = {*self.in_flight, *self.set_aside}
            spec = schedule.next(skip)
            if spec is None:
                self.out_of_budget = schedule.out_of_budget
                return
            run = self.paths.run(spec.run)
            # The job after one that reached its time limit resumes from its checkpoint.
            from_start = self.invocation.from_start and spec.run not in self._submitted
            resumption = choose_start(self.plan, run, spec, from_start=from_start)
            self._submitted.add(spec.run)
            if resumption is not None:
                self.listener.resumes(spec, resumption)
            attempt = new_attempt(run, resumption)
            files.write_json(attempt.spec, to_json(masked_spec(spec)))
            self._submit(self._follow(spec, attempt))

    def _follow(self, spec: RunSpec, attempt: AttemptPaths) -> InFlightJob:
        followed = self.in_flight[spec.run] = InFlightJob(spec=spec, attempt=attempt, job=self.place.pick_up(attempt))
        self._follow_attempt(followed, attempt)
        if followed.job is not None:
            self.listener.submitted(spec, attempt, followed.job_id)
        return followed

    def _submit(self, followed: InFlightJob) -> None:
        order = JobOrder(spec=followed.spec, plan_hash=self.invocation.plan_hash, resumes=len(self.plan.runs) == 1)
        try:
            followed.job = self.place.submit(followed.attempt, order, RUN_PROGRAM, self._queue.call)
        except LaunchError as error:
            now_t = time.time()
            close_attempt(followed.attempt, outcome_of_unstarted(followed.spec, followed.attempt.number, error, now_t, now_t))
        if followed.job is not None:
            self.listener.submitted(followed.spec, followed.attempt, followed.job_id)
        self._queue.submitted_one()

    def _look(self, followed: InFlightJob) -> RunOutcome | None:
        """The outcome of a run that is over."""
        if followed.job is None:
            return self._look_for_job(followed)
        self._follow_attempt(followed, self._newest_attempt(followed))
        outcome = accepted_outcome(followed.attempt)
        if not self._is_over(followed, followed.spec.place.slurm, has_result=outcome is not None):
            return None
        return outcome or self._judge(followed)

    def _look_for_job(self, followed: InFlightJob) -> RunOutcome | None:
        outcome = accepted_outcome(followed.attempt)
        if outcome is not None:
            return outcome
        if not self._has_no_job(followed, followed.attempt):
            if followed.job is not None:
                self.listener.submitted(followed.spec, followed.attempt, followed.job_id)
        elif self.interrupts.stop_requested():
            followed.cancelled = Cause.USER
            return close_attempt(followed.attempt, self._stopped(followed))
        else:
            self._submit(followed)
        return None

    def _newest_attempt(self, followed: InFlightJob) -> AttemptPaths:
        """The attempt of the job now: after a requeue it is the run's next attempt."""
        later = [attempt for attempt in self.paths.run(followed.spec.run).attempts() if attempt.number > followed.attempt.number]
        own = [attempt for attempt in later if (found := self.place.pick_up(attempt)) and followed.job and found.job == followed.job_id]
        return own[-1] if own else followed.attempt

    def _follow_attempt(self, followed: InFlightJob, attempt: AttemptPaths) -> None:
        if followed.reader is not None and attempt.number == followed.attempt.number:
            return
        followed.attempt, followed.started_m = attempt, None
        followed.reader = ProgressReader(followed.spec, attempt)
        timing = followed.spec.timing
        followed.eta = RunEtaTracker(followed.spec.steps, mode=timing.eta_mode, least_samples=timing.eta_min_samples)

    def _judge(self, followed: InFlightJob) -> RunOutcome:
        assert followed.job is not None
        outcome = judge_job(followed.attempt, followed.spec, followed.job_id, followed.status)
        return close_attempt(followed.attempt, self._stopped(followed, outcome) if followed.cancelled else outcome)

    def _stopped(self, followed: InFlightJob, seen: RunOutcome | None = None) -> RunOutcome:
        assert followed.cancelled is not None
        now_t = time.time()
        spec = followed.spec
        base = seen or RunOutcome(
            run=spec.run, attempt=followed.attempt.number, hash=spec.hash, outcome=Outcome.INTERRUPTED, started_t=now_t, ended_t=now_t
        )
        return with_cause(base, followed.cancelled, followed.why_cancelled(spec.place.slurm))

    def _finish(self, followed: InFlightJob, outcome: RunOutcome, schedule: RunSource) -> None:
        spec = followed.spec
        del self.in_flight[spec.run]
        schedule.ended(spec, outcome)
        if outcome.outcome is Outcome.INTERRUPTED and not self.interrupts.stop_requested() and not self._runs_again(followed, outcome):
            self.set_aside[spec.run] = outcome.detail
        self.listener.ended(spec, followed.attempt, outcome)

    def _runs_again(self, followed: InFlightJob, outcome: RunOutcome) -> bool:
        spec = followed.spec
        if outcome.cause in RUN_AGAIN:
            self._again[spec.run] = self._again.get(spec.run, 0) + 1
            return self._again[spec.run] <= MAX_AGAIN
        if outcome.cause is Cause.USER:
            return followed.stopped_before
        if outcome.cause is not Cause.JOB_TIME_LIMIT:
            return False
        return makes_progress(self.plan, self.paths.run(spec.run), spec, followed.attempt.number)

    def _show(self) -> None:
        for followed in self.in_flight.values():
            begun = started(followed.attempt) if followed.started_m is None else None
            if begun is not None:
                followed.started_m = self.monotonic() - max(0.0, time.time() - begun.started_t)
                self.listener.started(followed.spec, followed.attempt)
        jobs = list(self.in_flight.values())
        shown = next((job for job in jobs if job.is_running), jobs[0] if jobs else None)
        if shown is None or shown.reader is None:
            return
        others = [job for job in jobs if job is not shown]
        if not shown.is_running or shown.started_m is None:
            self.listener.waits(shown, others)
            return
        self.listener.progress(shown, shown.reader.read(), self.monotonic() - shown.started_m, others)
