"""The outcome of a job's attempt that the job itself could not record: from Slurm's state and what the program in the job saw last.

`stop_jobs(paths)` ends the jobs of a campaign that no harness follows; `settle_other_jobs(plan, paths)` closes attempts of jobs that are
not part of the current plan.
"""

from __future__ import annotations

import time
from dataclasses import replace

from seatrial.campaign.one_run import close_attempt
from seatrial.campaign.resume import read_lifetime
from seatrial.core import files
from seatrial.core.errors import CampaignError, RefusedError
from seatrial.core.paths import AllocationPaths, AttemptPaths, CampaignPaths, JobPaths
from seatrial.launch.places import slurm as place
from seatrial.launch.places.job_files import job_among, read_order, started
from seatrial.machine import slurm
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.job import FORGOTTEN, AllocationEnd, AllocationEnding, JobStatus
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import PER_RUN, CampaignPlan, RunSpec
from seatrial.records.signatures.registry import advice, fault_named, signature
from seatrial.records.stored import read_spec

LOG_TAIL_LINES = 8
# State → cause, and the verb phrase for `Slurm job 4711 …`.
_STATES = {
    "CANCELLED": (Cause.JOB_CANCELLED, "was cancelled"),
    "TIMEOUT": (Cause.JOB_TIME_LIMIT, "reached its time limit"),
    "DEADLINE": (Cause.JOB_TIME_LIMIT, "reached its deadline"),
    "PREEMPTED": (Cause.JOB_PREEMPTED, "was preempted"),
    "NODE_FAIL": (Cause.JOB_NODE_FAILED, "lost a node"),
    "BOOT_FAIL": (Cause.JOB_NODE_FAILED, "got a node that did not boot"),
    FORGOTTEN: (Cause.JOB_LOST, "left no outcome, and Slurm does not know it any more"),
}
RUN_AGAIN = frozenset({Cause.JOB_PREEMPTED, Cause.JOB_NODE_FAILED})
"""Causes after which a new job may succeed."""


def with_cause(outcome: RunOutcome, cause: Cause, detail: str, how: Outcome = Outcome.INTERRUPTED) -> RunOutcome:
    return replace(
        outcome,
        outcome=how,
        cause=cause,
        detail=detail,
        action=advice(cause),
        signature=cause.value,
        fault=fault_named(cause.value),
    )


def ended_by_slurm(outcome: RunOutcome) -> RunOutcome:
    return with_cause(outcome, Cause.SCHEDULER, "Slurm ended the job")


def judge_job(attempt: AttemptPaths, spec: RunSpec, job: str, status: JobStatus) -> RunOutcome:
    """The outcome of an attempt whose job is over and wrote none."""
    seen = _as_seen(attempt, spec)
    if status.state in _STATES:
        cause, what = _STATES[status.state]
        where = f" ({status.nodes})" if cause is Cause.JOB_NODE_FAILED and status.nodes else ""
        return with_cause(seen, cause, f"Slurm job {job} {what}{where}")
    if status.state == "OUT_OF_MEMORY":
        entry = signature("slurm_oom")
        detail = f"Slurm job {job} used more memory than it was given"
        return replace(with_cause(seen, entry.cause, detail, Outcome.FAILED), action=entry.action, signature=entry.id, fault=entry.fault)
    tail = tuple(files.tail_lines(attempt.job_log, LOG_TAIL_LINES))
    # A shell may print its own message before ours.
    last = f": {'; '.join(line.strip() for line in tail[-2:])}" if tail else ""
    begun = "before it had recorded an outcome" if started(attempt) else "before the run had begun"
    return replace(
        with_cause(seen, Cause.JOB_FAILED, f"Slurm job {job} ended as {status.state} {begun}{last}", Outcome.FAILED), log_tail=tail
    )


def requeued(attempt: AttemptPaths, spec: RunSpec, job: str, restarts: int) -> RunOutcome:
    """The outcome of an attempt whose job Slurm has started again."""
    states = slurm.earlier_states(job)
    known = states[restarts - 1] if len(states) > restarts else ""
    cause, what = _STATES.get(known, (Cause.JOB_REQUEUED, "")) if known in ("PREEMPTED", "NODE_FAIL") else (Cause.JOB_REQUEUED, "")
    detail = f"Slurm requeued job {job}" + (f": it {what}" if what else " (preempted, a lost node, or by hand)")
    return with_cause(_as_seen(attempt, spec), cause, detail)


def allocation_end(paths: AllocationPaths, job: str, status: JobStatus, cancelled: Cause | None = None, why: str = "") -> AllocationEnd:
    """The end of a job for many runs whose program recorded none; `why` it was cancelled."""
    now_t = time.time()
    if cancelled is not None:
        ending = AllocationEnding.USER if cancelled is Cause.USER else AllocationEnding.ENDED
        return AllocationEnd(ending=ending, detail=why, ended_t=now_t)
    cause, what = _STATES.get(status.state, (Cause.JOB_FAILED, f"ended as {status.state}"))
    ending = AllocationEnding.NODE_LOST if cause in RUN_AGAIN else AllocationEnding.ENDED
    if cause is Cause.JOB_TIME_LIMIT:
        ending = AllocationEnding.TIME_LIMIT
    tail = files.tail_lines(paths.job_log, LOG_TAIL_LINES) if cause is Cause.JOB_FAILED else []
    last = f": {tail[-1].strip()}" if tail else ""
    return AllocationEnd(ending=ending, detail=f"Slurm job {job} {what}{last}", ended_t=now_t)


def stop_jobs(paths: CampaignPaths) -> dict[str, bool]:
    """End the jobs of a folder without an owner: running ranks halt softly, pending jobs are cancelled. Job → whether it ran."""
    in_runs = [one for run in paths.runs() for one in run.attempts() if one.job_script.exists() and not one.outcome.exists()]
    held = paths.open_allocation()
    attempts: list[JobPaths] = [*in_runs, *([held] if held else [])]
    if not attempts:
        return {}
    known = place.poll()
    if known is None:
        raise CampaignError(f"Slurm does not answer: try again later, or cancel the jobs of {paths.folder} with scancel")
    stopped: dict[str, bool] = {}
    for attempt in attempts:
        job = job_among(attempt, known)
        if job in known and not known[job].is_over:
            stopped[job] = not known[job].is_queued
            _stop_job(attempt, job, runs=stopped[job])
    return stopped


def settle_other_jobs(plan: CampaignPlan, paths: CampaignPaths) -> None:
    """Close the attempts of single-run jobs that are not part of `plan` now: the run has changed, left the plan, or has a later attempt. A
    RefusedError while such a job lives, since it writes to the run's folder and holds nodes."""
    wanted = {(spec.run, spec.hash) for spec in plan.runs if spec.place.slurm and spec.place.slurm.allocation == PER_RUN}
    others: list[tuple[AttemptPaths, RunSpec]] = []
    for run in paths.runs():
        attempts = run.attempts()
        for attempt in attempts:
            order = None if attempt.outcome.exists() or not attempt.job_script.exists() else read_order(attempt)
            if order is not None and (attempt is not attempts[-1] or (order.spec.run, order.spec.hash) not in wanted):
                others.append((attempt, order.spec))
    known = place.poll() if others else {}
    for attempt, spec in others:
        job = job_among(attempt, known or {})
        if known is None or (job in known and not known[job].is_over):
            state = "may still run" if known is None else f"is {known[job].state.lower()} for"
            raise RefusedError(
                f"Slurm job {job or 'of unknown number'} {state} {spec.run} of the previous plan (attempt {attempt.number}): wait until it "
                f"ends, or `seatrial stop {paths.folder}`"
            )
        close_attempt(attempt, judge_job(attempt, spec, job, known.get(job) or place.final_state(job)))


def _stop_job(paths: JobPaths, job: str, *, runs: bool) -> None:
    if runs:
        files.write_json(paths.job_stop, {"t": time.time()})
        return
    answer = place.cancel(job)
    if not answer.ok:
        raise CampaignError(f"Slurm job {job} could not be cancelled ({answer.problem}): try again, or `scancel {job}`")
    why = f"stopped by the user; Slurm job {job} was cancelled"
    # Without an outcome the next `seatrial run` would take it for cancelled by another user, and set the run aside.
    if isinstance(paths, AllocationPaths):
        files.write_json(paths.job_end, to_json(allocation_end(paths, job, JobStatus(state="CANCELLED"), Cause.USER, why)))
    elif isinstance(paths, AttemptPaths) and (spec := read_spec(paths)[0]) is not None:
        close_attempt(paths, with_cause(_as_seen(paths, spec), Cause.USER, why))


def _as_seen(attempt: AttemptPaths, spec: RunSpec) -> RunOutcome:
    """The outcome as the program in the job saw it, else as the files show."""
    seen = from_json_or_none(RunOutcome, files.read_json(attempt.job_outcome))
    if seen is not None:
        return seen
    lived = read_lifetime(attempt)
    begun = started(attempt)
    started_t = lived.started_t or (begun.started_t if begun else time.time())
    ended_t = max(lived.ended_t, started_t)
    return RunOutcome(
        run=spec.run,
        attempt=attempt.number,
        hash=spec.hash,
        outcome=Outcome.INTERRUPTED,
        started_t=started_t,
        ended_t=ended_t,
        duration_s=ended_t - started_t,
        last_seen_in=lived.file,
    )
