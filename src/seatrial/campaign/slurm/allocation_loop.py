"""The campaign of place `slurm` with `allocation: campaign`: one job runs one run after another, and is followed here.

    pick up what an earlier process submitted → submit → report each attempt that the job closes → where the job ends, another for the rest

The job runs the campaign's loop by itself (`campaign.slurm_allocation_program`) and needs no harness: all state is in the folder. An
attempt that it could not close gets its outcome here, with the cause from Slurm's state. A new job is submitted where the old one reached
its time limit after some progress, or where Slurm ended it (preempted, a lost node). Otherwise the next `seatrial run` does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from seatrial.campaign.early_end import EarlyEnd
from seatrial.campaign.one_run import close_attempt
from seatrial.campaign.resume import choose_start, makes_progress
from seatrial.campaign.schedule import RunSource
from seatrial.campaign.slurm import ALLOCATION_PROGRAM
from seatrial.campaign.slurm.outcomes import allocation_end, judge_job, with_cause
from seatrial.campaign.slurm.queue import MAX_AGAIN, POLL_S, FollowedJob, JobFollower, StopListener, left_text
from seatrial.core import files
from seatrial.core.errors import LaunchError, RefusedError
from seatrial.core.paths import AllocationPaths, AttemptPaths, CampaignPaths, RunPaths
from seatrial.core.text import count
from seatrial.launch.places import slurm as slurm_place
from seatrial.launch.places.job_files import job_among, read_allocation_order, started
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.job import AllocationEnd, AllocationEnding, AllocationOrder
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import PER_CAMPAIGN, CampaignPlan, RunSpec
from seatrial.records.results import LiveState
from seatrial.records.stored import accepted_outcome


class AllocationListener(StopListener, Protocol):
    """What the campaign reports about its job (`campaign.loop`)."""

    def started(self, spec: RunSpec, attempt: AttemptPaths) -> None: ...
    def noted(self, text: str) -> None: ...
    def waits_for(self, spec: RunSpec, job: FollowedJob) -> None: ...
    def follows(self, state: LiveState) -> None: ...
    def ended(self, spec: RunSpec, attempt: AttemptPaths, outcome: RunOutcome) -> None: ...


def is_over_since(run: RunPaths, first: int) -> bool:
    """Whether an attempt from number `first` on has ended by itself."""
    return any(outcome.outcome is not Outcome.INTERRUPTED for _, outcome in _outcomes(run, first))


def settle_other_allocation(plan: CampaignPlan, paths: CampaignPaths) -> None:
    """Close the attempts of a job that runs another version of `plan`. A RefusedError while that job lives, since its runs use the same
    folders."""
    held = paths.open_allocation()
    if held is None:
        return
    order = read_allocation_order(held)
    hashes = {spec.run: spec.hash for spec in plan.runs if spec.place.slurm and spec.place.slurm.allocation == PER_CAMPAIGN}
    if order is not None and all(hashes.get(spec.run) == spec.hash for spec in order.specs):
        return
    known = slurm_place.poll()
    job = job_among(held, known or {})
    if known is None or (job in known and not known[job].is_over):
        raise RefusedError(
            f"Slurm job {job or 'of unknown number'} may still run the previous plan in {held.folder}: wait until it ends, or "
            f"`seatrial stop {paths.folder}`"
        )
    status = known.get(job) or slurm_place.final_state(job)
    for attempt, spec in _attempts_without_outcome(paths, order):
        close_attempt(attempt, judge_job(attempt, spec, job, status))
    files.write_json(held.job_end, to_json(allocation_end(held, job, status)))


def _attempts_without_outcome(paths: CampaignPaths, order: AllocationOrder | None) -> Iterator[tuple[AttemptPaths, RunSpec]]:
    """Attempts that a job left open when it ended."""
    for spec in order.specs if order else ():
        for attempt in paths.run(spec.run).attempts():
            if order and attempt.number >= order.first_attempts[spec.run] and not attempt.outcome.exists():
                yield attempt, spec


def _outcomes(run: RunPaths, first: int) -> Iterator[tuple[AttemptPaths, RunOutcome]]:
    for attempt in run.attempts():
        outcome = accepted_outcome(attempt) if attempt.number >= first else None
        if outcome is not None:
            yield attempt, outcome


@dataclass(kw_only=True)
class HeldAllocation(FollowedJob):
    """A job from its submission to its end."""

    paths: AllocationPaths
    order: AllocationOrder
    reported: dict[tuple[str, int], RunOutcome] = field(default_factory=dict)
    shown: set[tuple[str, int]] = field(default_factory=set)


@dataclass
class AllocationLoop(JobFollower):
    """The jobs of one campaign, one at a time."""

    listener: AllocationListener

    def __post_init__(self) -> None:
        super().__post_init__()
        self._held: HeldAllocation | None = None
        self._again = 0
        self._submitted = False

    def run(self, schedule: RunSource, early: EarlyEnd) -> None:
        """Follow jobs until every run has its outcome or is set aside; after an `early` end none is submitted."""
        self._held = self._pick_up()
        while not self.out_of_budget:
            if self._held is None and not self._submit_next(schedule, early):
                return
            if self.interrupts.hung_up or self._held is None:
                return
            self._queue.ask()
            is_over = self._look(self._held)
            if is_over:
                self._close_attempts(self._held)
            self._report(self._held, schedule, early)
            if is_over:
                self._end(self._held, schedule)
                self._held = None
                continue
            self._stop_where_requested([(self._current(self._held, schedule), self._held, self._held.paths)])
            if self._queue.abandoned:
                self.jobs_left = left_text({self.plan.name: self._held})
                return
            self._show(self._held, schedule)
            self.sleep(POLL_S)

    def _pick_up(self) -> HeldAllocation | None:
        """The job of an earlier harness."""
        found = self.paths.open_allocation()
        order = read_allocation_order(found) if found else None
        if found is None or order is None:
            return None
        return HeldAllocation(paths=found, order=order, job=self.place.pick_up(found), stopped_before=self._was_stopped(found))

    def _submit_next(self, schedule: RunSource, early: EarlyEnd) -> bool:
        """Submit a job for the remaining runs; False where none is needed."""
        left = [spec for spec in schedule.left if spec.run not in self.set_aside]
        if not left or early.end is not None or self.interrupts.stop_requested():
            return False
        if schedule.next(self.set_aside) is None:
            self.out_of_budget = schedule.out_of_budget
            return False
        # A later job resumes from the checkpoints of the earlier one.
        from_start = self.invocation.from_start and not self._submitted
        for spec in left:
            # Refuse a checkpoint of another number of ranks here, not in the job.
            choose_start(self.plan, self.paths.run(spec.run), spec, from_start=from_start)
        order = AllocationOrder(
            plan=replace(self.plan, budget_s=schedule.budget_left_s),
            plan_hash=self.invocation.plan_hash,
            first_attempts={spec.run: self.paths.run(spec.run).next_attempt().number for spec in left},
            from_start=from_start,
            keep_going=self.invocation.keep_going,
        )
        paths = self.paths.next_allocation()
        paths.folder.mkdir(parents=True)
        self._held = HeldAllocation(paths=paths, order=order)
        self._submitted = True
        self._submit(self._held)
        return True

    def _submit(self, held: HeldAllocation) -> None:
        try:
            held.job = self.place.submit(held.paths, held.order, ALLOCATION_PROGRAM, self._queue.call)
        except LaunchError as error:
            self._write_end(held, AllocationEnd(ending=AllocationEnding.ENDED, detail=str(error), ended_t=time.time()))
        if held.job is not None:
            self.listener.noted(f"{count(len(held.order.first_attempts), 'run')} submitted as job {held.job_id}")
        self._queue.submitted_one()

    def _look(self, held: HeldAllocation) -> bool:
        """Whether the job is over."""
        has_end = held.paths.job_end.exists()
        if held.job is not None:
            return self._is_over(held, held.order.spec.place.slurm, has_result=has_end)
        if has_end:
            return True
        if self._has_no_job(held, held.paths):
            if self.interrupts.stop_requested():
                self._write_end(held, AllocationEnd(ending=AllocationEnding.USER, detail="stopped by the user", ended_t=time.time()))
                return True
            self._submit(held)
        return False

    def _close_attempts(self, held: HeldAllocation) -> None:
        job_id = held.job_id
        for attempt, spec in list(_attempts_without_outcome(self.paths, held.order)):
            outcome = judge_job(attempt, spec, job_id, held.status)
            if held.cancelled is Cause.USER:
                outcome = with_cause(outcome, Cause.USER, held.why_cancelled(spec.place.slurm))
            close_attempt(attempt, outcome)

    def _report(self, held: HeldAllocation, schedule: RunSource, early: EarlyEnd) -> None:
        left = {spec.run: spec for spec in schedule.left}
        for run, first in held.order.first_attempts.items():
            spec = left.get(run)
            if spec is None:
                continue
            for attempt in self.paths.run(run).attempts():
                if attempt.number >= first and (run, attempt.number) not in held.shown and attempt.job_start.exists():
                    held.shown.add((run, attempt.number))
                    self.listener.started(spec, attempt)
            for attempt, outcome in _outcomes(self.paths.run(run), first):
                if (run, attempt.number) not in held.reported:
                    held.reported[run, attempt.number] = outcome
                    schedule.ended(spec, outcome)
                    self.listener.ended(spec, attempt, outcome)
                    early.after(spec, outcome)

    def _end(self, held: HeldAllocation, schedule: RunSource) -> None:
        """The job is over: decide whether another follows, and which runs it leaves out."""
        end = from_json_or_none(AllocationEnd, files.read_json(held.paths.job_end))
        if end is None:
            why = held.why_cancelled(held.order.spec.place.slurm) if held.cancelled else ""
            end = self._write_end(held, allocation_end(held.paths, held.job_id, held.status, held.cancelled, why))
        reached = any(outcome.outcome is not Outcome.INTERRUPTED for outcome in held.reported.values())
        if end.ending is AllocationEnding.NODE_LOST:
            self._again = 0 if reached else self._again + 1
        goes_on = {
            AllocationEnding.TIME_LEFT: True,
            AllocationEnding.TIME_LIMIT: True,
            AllocationEnding.NODE_LOST: self._again <= MAX_AGAIN,
            AllocationEnding.USER: held.stopped_before,
        }.get(end.ending, False)
        if end.ending is AllocationEnding.BUDGET:
            self.out_of_budget = True
        elif not goes_on:
            detail = end.detail or next((outcome.detail for outcome in held.reported.values() if outcome.detail), held.text)
            self.set_aside |= {spec.run: detail for spec in schedule.left}
        elif end.ending is AllocationEnding.TIME_LIMIT:
            self._skip_without_progress(held, end, reached)
        if (
            goes_on
            and (left := [spec for spec in schedule.left if spec.run not in self.set_aside])
            and not self.interrupts.stop_requested()
        ):
            self.listener.noted(f"{end.detail}: {count(len(left), 'run')} in a new job")

    def _skip_without_progress(self, held: HeldAllocation, end: AllocationEnd, reached: bool) -> None:
        """Set aside a run that made no progress in a whole job: it would use up the next one too."""
        for (run, number), outcome in held.reported.items():
            if outcome.cause is Cause.JOB_TIME_LIMIT and not reached:
                spec = next(spec for spec in held.order.specs if spec.run == run)
                if not makes_progress(self.plan, self.paths.run(run), spec, number):
                    self.set_aside[run] = outcome.detail
        if not held.reported:
            self.set_aside |= {spec.run: end.detail for spec in held.order.specs}

    def _write_end(self, held: HeldAllocation, end: AllocationEnd) -> AllocationEnd:
        files.write_json(held.paths.job_end, to_json(end))
        return end

    def _current(self, held: HeldAllocation, schedule: RunSource) -> RunSpec:
        """The run in progress, else the next."""
        open_runs = {run for run, number in held.shown if (run, number) not in held.reported}
        left = [spec for spec in schedule.left if spec.run in held.order.first_attempts] or list(held.order.specs)
        return next((spec for spec in left if spec.run in open_runs), left[0])

    def _show(self, held: HeldAllocation, schedule: RunSource) -> None:
        begun = started(held.paths)
        if begun is None or held.status.is_queued:
            self.listener.waits_for(self._current(held, schedule), held)
            return
        state = from_json_or_none(LiveState, files.read_json(self.paths.progress))
        if state is not None and state.t >= begun.started_t:
            self.listener.follows(state)
