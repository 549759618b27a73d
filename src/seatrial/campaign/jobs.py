"""The campaign loop of place `slurm`: every run a job, `place.jobs` of them in flight.

    pick up what an earlier process submitted → submit → look (Slurm's word, and the attempt's own files) → the outcome

The harness holds nothing that is not in the folder: killed at any moment, another one goes on where it was. A job that ends without an
outcome gets one here, with the cause by Slurm's state. Stop requests, and a controller that does not answer: `campaign.job_queue`. A
terminal that is closed stops nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from seatrial.campaign.interrupts import Interrupts, Urgency
from seatrial.campaign.job_endings import RUN_AGAIN, judge_job, with_cause
from seatrial.campaign.job_queue import FollowedJob, JobQueue, left_text
from seatrial.campaign.one_run import close_attempt, new_attempt
from seatrial.campaign.resume import choose_start
from seatrial.campaign.run_outcome import outcome_of_unstarted
from seatrial.campaign.schedule import Schedule
from seatrial.collect.attempt_files import read_resumption
from seatrial.core import files
from seatrial.core.errors import LaunchError
from seatrial.core.paths import AttemptPaths, CampaignPaths, RunPaths
from seatrial.launch.places import slurm as place
from seatrial.launch.prepare import masked_spec
from seatrial.machine import slurm
from seatrial.observe.eta import RunEtaTracker
from seatrial.observe.progress import Progress, ProgressReader
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.job import JobOrder, SubmittedJob
from seatrial.records.outcome import Cause, Outcome, Resumption, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec

POLL_S = 0.5
# The file system of the nodes may show a file late here.
OUTCOME_GRACE_S = 5.0
MAX_AGAIN = 2
"""How often a run is submitted again that lost its node or was preempted."""


@dataclass(kw_only=True)
class Flight(FollowedJob):
    """One run between its submission and its outcome."""

    spec: RunSpec
    attempt: AttemptPaths
    started_m: float | None = None
    reader: ProgressReader | None = None
    eta: RunEtaTracker | None = None

    @property
    def is_running(self) -> bool:
        """Its ranks may take steps: a requeued job that waits again has had its start."""
        return self.started_m is not None and not self.status.is_queued and not self.status.is_over


def gets_further(plan: CampaignPlan, run: RunPaths, spec: RunSpec, number: int) -> bool:
    """Whether the attempt `number` saved a newer checkpoint than it started from: otherwise the next job would end where this one did."""
    before, after = read_resumption(run.attempt(number)), choose_start(plan, run, spec)
    reached = -1 if before is None or before.step is None else before.step
    if after is None or after.step is None:
        # A script has a format of its own: that it wrote some in this attempt has to do.
        return after is not None and after.from_attempt == number
    return after.step > reached


class JobListener(Protocol):
    """What the campaign tells of its jobs (`campaign.loop.Listener` and its published state)."""

    def resumes(self, spec: RunSpec, resumption: Resumption) -> None: ...
    def submitted(self, spec: RunSpec, attempt: AttemptPaths, job: str) -> None: ...
    def started(self, spec: RunSpec, attempt: AttemptPaths) -> None: ...
    def progress(self, flight: Flight, progress: Progress, elapsed_s: float, others: Sequence[Flight]) -> None: ...
    def waits(self, flight: Flight, others: Sequence[Flight]) -> None: ...
    def stopping(self, spec: RunSpec) -> None: ...
    def ended(self, spec: RunSpec, attempt: AttemptPaths, outcome: RunOutcome) -> None: ...


@dataclass
class JobLoop:
    """The jobs of one campaign."""

    plan: CampaignPlan
    plan_hash: str
    paths: CampaignPaths
    interrupts: Interrupts
    listener: JobListener
    from_start: bool = False
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.flights: dict[str, Flight] = {}
        self.set_aside: dict[str, str] = {}
        """Runs that are not submitted again by this invocation, and why."""
        self.out_of_budget = False
        self.jobs_left = ""
        """Which jobs may go on, and how to end them: Slurm did not answer after the second stop request."""
        self._again: dict[str, int] = {}
        self._submitted: set[str] = set()
        self._queue = JobQueue(self.interrupts, self.monotonic)
        self._stopping = False

    def run(self, schedule: Schedule, is_enough: Callable[[RunSpec, RunOutcome], bool]) -> None:
        """Until every run has its outcome or is set aside; `is_enough` says after each outcome whether nothing more is to be submitted."""
        self._pick_up(schedule)
        enough = False
        while True:
            if not enough and not self.interrupts.stop_requested():
                self._submit_next(schedule)
            if not self.flights or self.interrupts.hung_up:
                return
            self._queue.ask()
            for flight in list(self.flights.values()):
                outcome = self._look(flight)
                if outcome is not None:
                    self._finish(flight, outcome, schedule)
                    enough = is_enough(flight.spec, outcome) or enough
            self._stop_where_requested()
            if self._queue.abandoned and self.flights:
                self.jobs_left = left_text(self.flights)
                return
            self._show()
            if self.flights:
                self.sleep(POLL_S)

    def _pick_up(self, schedule: Schedule) -> None:
        """Attempts that have a job and no outcome yet."""
        for spec in schedule.left:
            attempts = self.paths.run(spec.run).attempts()
            newest = attempts[-1] if attempts else None
            if newest is None or newest.outcome.exists() or not newest.job_script.exists():
                continue
            order = place.read_order(newest)
            if order is not None and order.spec.hash == spec.hash:
                flight = self._take_off(spec, newest)
                flight.stopped_before = newest.job_stop.exists()
                if place.started(newest) is None:
                    # What is still waiting is wanted again.
                    newest.job_stop.unlink(missing_ok=True)

    def _submit_next(self, schedule: Schedule) -> None:
        wanted = self.plan.runs[0].place.slurm
        most = wanted.jobs if wanted else 1
        while len(self.flights) < most:
            skip = {*self.flights, *self.set_aside}
            if all(spec.run in skip for spec in schedule.left):
                return
            spec = schedule.next(skip)
            if spec is None:
                self.out_of_budget = True
                return
            run = self.paths.run(spec.run)
            # The job after one that reached its time limit goes on from what that one saved.
            resumption = choose_start(self.plan, run, spec, from_start=self.from_start and spec.run not in self._submitted)
            self._submitted.add(spec.run)
            if resumption is not None:
                self.listener.resumes(spec, resumption)
            attempt = new_attempt(run, resumption)
            files.write_json(attempt.spec, to_json(masked_spec(spec)))
            self._submit(self._take_off(spec, attempt))

    def _take_off(self, spec: RunSpec, attempt: AttemptPaths) -> Flight:
        flight = self.flights[spec.run] = Flight(spec=spec, attempt=attempt, job=place.submitted(attempt))
        self._follow_attempt(flight, attempt)
        if flight.job is not None:
            self.listener.submitted(spec, attempt, flight.job.job)
        return flight

    def _submit(self, flight: Flight) -> None:
        order = JobOrder(spec=flight.spec, plan_hash=self.plan_hash, resumes=len(self.plan.runs) == 1)
        try:
            flight.job = place.submit(flight.attempt, order, self._queue.call)
        except LaunchError as error:
            now_t = time.time()
            close_attempt(flight.attempt, outcome_of_unstarted(flight.spec, flight.attempt.number, error, now_t, now_t))
        if flight.job is not None:
            self.listener.submitted(flight.spec, flight.attempt, flight.job.job)
        self._queue.submitted_one()

    def _look(self, flight: Flight) -> RunOutcome | None:
        """The outcome of a run that is over."""
        if flight.job is None:
            return self._look_for_job(flight)
        self._follow_attempt(flight, self._newest_attempt(flight))
        outcome = from_json_or_none(RunOutcome, files.read_json(flight.attempt.outcome))
        if self._queue.jobs is None:
            # Who wants the end does not wait for Slurm to confirm it.
            return outcome if self.interrupts.stop_requested() else None
        status = self._queue.jobs.get(flight.job.job)
        if status is None and outcome is None:
            status = slurm.final_state(flight.job.job)
        flight.status = status or slurm.JobStatus(state="COMPLETED")
        if not flight.status.is_over:
            flight.over_m = None
            self._queue.check_wait(flight, flight.spec.place.slurm)
            return None
        if outcome is not None:
            return outcome
        flight.over_m = flight.over_m or self.monotonic()
        return self._judge(flight) if self.monotonic() - flight.over_m >= OUTCOME_GRACE_S else None

    def _look_for_job(self, flight: Flight) -> RunOutcome | None:
        """A job whose number is not known: refused, or its submission had no answer, or an earlier harness was killed just then."""
        outcome = from_json_or_none(RunOutcome, files.read_json(flight.attempt.outcome))
        if outcome is not None:
            return outcome
        flight.job = place.submitted(flight.attempt)
        if flight.job is not None or self._queue.jobs is None:
            return None
        if found := place.job_among(flight.attempt, self._queue.jobs):
            flight.job = place.record(flight.attempt, SubmittedJob(job=found, submitted_t=time.time()))
            self.listener.submitted(flight.spec, flight.attempt, found)
        elif self.interrupts.stop_requested():
            flight.cancelled = Cause.USER
            return close_attempt(flight.attempt, self._stopped(flight))
        else:
            self._submit(flight)
        return None

    def _newest_attempt(self, flight: Flight) -> AttemptPaths:
        """Slurm may have started the job again, as the run's next attempt."""
        later = [one for one in self.paths.run(flight.spec.run).attempts() if one.number > flight.attempt.number]
        own = [one for one in later if (found := place.submitted(one)) and flight.job and found.job == flight.job.job]
        return own[-1] if own else flight.attempt

    def _follow_attempt(self, flight: Flight, attempt: AttemptPaths) -> None:
        if flight.reader is not None and attempt.number == flight.attempt.number:
            return
        flight.attempt, flight.started_m = attempt, None
        flight.reader = ProgressReader(flight.spec, attempt)
        timing = flight.spec.timing
        flight.eta = RunEtaTracker(flight.spec.steps, mode=timing.eta_mode, least_samples=timing.eta_min_samples)

    def _judge(self, flight: Flight) -> RunOutcome:
        assert flight.job is not None
        outcome = judge_job(flight.attempt, flight.spec, flight.job.job, flight.status)
        return close_attempt(flight.attempt, self._stopped(flight, outcome) if flight.cancelled else outcome)

    def _stopped(self, flight: Flight, seen: RunOutcome | None = None) -> RunOutcome:
        assert flight.cancelled is not None
        now_t = time.time()
        spec = flight.spec
        base = seen or RunOutcome(
            run=spec.run, attempt=flight.attempt.number, hash=spec.hash, outcome=Outcome.INTERRUPTED, started_t=now_t, ended_t=now_t
        )
        return with_cause(base, flight.cancelled, flight.why_cancelled(spec.place.slurm))

    def _finish(self, flight: Flight, outcome: RunOutcome, schedule: Schedule) -> None:
        spec = flight.spec
        del self.flights[spec.run]
        schedule.ended(spec, outcome)
        if outcome.outcome is Outcome.INTERRUPTED and not self.interrupts.stop_requested() and not self._runs_again(flight, outcome):
            self.set_aside[spec.run] = outcome.detail
        self.listener.ended(spec, flight.attempt, outcome)

    def _runs_again(self, flight: Flight, outcome: RunOutcome) -> bool:
        spec = flight.spec
        if outcome.cause in RUN_AGAIN:
            self._again[spec.run] = self._again.get(spec.run, 0) + 1
            return self._again[spec.run] <= MAX_AGAIN
        if outcome.cause is Cause.USER:
            return flight.stopped_before
        if outcome.cause is not Cause.JOB_TIME_LIMIT:
            return False
        return gets_further(self.plan, self.paths.run(spec.run), spec, flight.attempt.number)

    def _stop_where_requested(self) -> None:
        if self.interrupts.urgency is Urgency.NONE:
            return
        for flight in self.flights.values() if not self._stopping else ():
            self.listener.stopping(flight.spec)
        self._stopping = True
        self._queue.stop([(flight, flight.attempt, flight.spec.limits) for flight in self.flights.values()])

    def _show(self) -> None:
        for flight in self.flights.values():
            begun = place.started(flight.attempt) if flight.started_m is None else None
            if begun is not None:
                flight.started_m = self.monotonic() - max(0.0, time.time() - begun.started_t)
                self.listener.started(flight.spec, flight.attempt)
        shown = next((one for one in self.flights.values() if one.is_running), next(iter(self.flights.values()), None))
        if shown is None or shown.reader is None:
            return
        others = [one for one in self.flights.values() if one is not shown]
        if not shown.is_running or shown.started_m is None:
            self.listener.waits(shown, others)
            return
        self.listener.progress(shown, shown.reader.read(), self.monotonic() - shown.started_m, others)
