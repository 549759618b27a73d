"""Slurm's queue, for both loops over jobs: polled, waited for, stopped and cancelled. `JobFollower` is the loops' common base.

A controller that does not answer is waited for. At the user's first stop request, running ranks halt through a file, which needs no
controller, and pending jobs are cancelled. The second request cancels everything; if Slurm does not answer then, the jobs are left as they
are and named (`left_text`): the next harness picks them up.

A job may wait for `place.queue_s`, counted anew after a requeue. A reason that is a limit on the job itself (NEVER_STARTS) ends the wait
after NEVER_STARTS_S: no end of other jobs resolves it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from seatrial.campaign.interrupts import StopRequests, Urgency
from seatrial.campaign.schedule import Invocation
from seatrial.core import files
from seatrial.core.paths import JobPaths
from seatrial.launch.places import JobPlace
from seatrial.launch.places import slurm as slurm_place
from seatrial.launch.places.job_files import started
from seatrial.machine import slurm
from seatrial.records.job import JobStatus, SubmittedJob
from seatrial.records.outcome import Cause
from seatrial.records.plan import LimitsSpec, RunSpec, SlurmSpec

POLL_S = 0.5
# The file system of the nodes may show a file late here.
OUTCOME_GRACE_S = 5.0
MAX_AGAIN = 2
"""How often a run, or a job for many, is resubmitted after a lost node or a preemption."""

# Every harness of a cluster asks the same controller.
ASK_EVERY_S = 3.0
# Beyond the soft stop and TERM, for agents to end and write files.
STOP_GRACE_S = 20.0
# Slurm's time to answer after a second Ctrl-C.
KILL_ANSWER_S = 5.0
NEVER_STARTS_S = 60.0
"""A partition's limit may be changed, and the reason may be from the scheduler's previous pass."""
NEVER_STARTS = re.compile(
    r"\w*PerJob\w*|Partition(?:TimeLimit|NodeLimit)|BadConstraints|Invalid(?:Account|QOS)|(?:Account|QOS)NotAllowed|DependencyNeverSatisfied"
)
"""Reasons why a job waits that the end of other jobs does not resolve."""


@dataclass
class FollowedJob:
    """A job from its submission to its end, as this harness knows it."""

    job: SubmittedJob | None = None
    status: JobStatus = field(default_factory=lambda: JobStatus(state="PENDING"))
    cancelled: Cause | None = None
    """Why this harness cancelled it."""
    over_m: float | None = None
    """When it was first seen to be over."""
    stop_until_m: float | None = None
    stopped_before: bool = False
    """An earlier harness requested its stop, so its end is no reason to set the run aside."""
    unstartable_since_m: float | None = None
    """Since when its reason has been one of NEVER_STARTS."""

    @property
    def job_id(self) -> str:
        """Slurm's id; empty where it is unknown."""
        return self.job.job if self.job else ""

    @property
    def title(self) -> str:
        return f"Slurm job {self.job_id}" if self.job else "the job"

    @property
    def waits_since_t(self) -> float:
        """When it entered the queue, for a requeued job the last time."""
        return max(self.job.submitted_t if self.job else 0.0, self.status.queued_t)

    @property
    def text(self) -> str:
        """`job 4711 pending (Resources) since 09:31`."""
        if self.job is None:
            return "being submitted"
        if not self.status.is_queued:
            return f"job {self.job_id} {self.status.state.lower()}"
        why = f" ({self.status.reason})" if self.status.reason not in ("", "None") else ""
        since = f" since {datetime.fromtimestamp(self.waits_since_t):%H:%M}" if self.waits_since_t else ""
        return f"job {self.job_id} {self.status.state.lower()}{why}{since}"

    def why_cancelled(self, wanted: SlurmSpec | None) -> str:
        if self.cancelled is Cause.JOB_QUEUE_DEADLINE and wanted and wanted.queue_s:
            return f"{self.title} was still waiting after {wanted.queue_s:.0f} s, and was cancelled"
        if self.cancelled is Cause.JOB_NEVER_STARTS:
            return f"{self.title} could never start ({self.status.reason}), and was cancelled"
        return f"stopped by the user; {self.title} was cancelled" if self.job else "stopped by the user before a job was submitted"


class JobQueue:
    """The jobs of one campaign at their controller."""

    def __init__(self, place: JobPlace, interrupts: StopRequests, monotonic: Callable[[], float]) -> None:
        self._place, self._interrupts, self._monotonic = place, interrupts, monotonic
        self._last_query_m = float("-inf")
        self._handled_urgency = Urgency.NONE
        self.jobs: Mapping[str, JobStatus] | None = None
        """None while Slurm has not answered, or its answer is older than the newest job."""
        self.abandoned = False
        """Whether Slurm did not answer after the second stop request, so that jobs are left as they are."""

    def ask(self) -> None:
        if self._monotonic() - self._last_query_m >= ASK_EVERY_S:
            self.jobs = self._place.poll(self.call)
            self._last_query_m = self._monotonic()
            self.abandoned = self.abandoned or (self.jobs is None and self._interrupts.urgency is Urgency.KILL)

    def call(self, argv: Sequence[str], text: str = "") -> slurm.Answer:
        """Call one of Slurm's programs, and give up at a new stop request."""
        timeout_s = KILL_ANSWER_S if self._interrupts.urgency is Urgency.KILL else slurm.TIMEOUT_S
        return slurm.call(
            argv, text, timeout_s, give_up=lambda: self._interrupts.hung_up or self._interrupts.urgency > self._handled_urgency
        )

    def submitted_one(self) -> None:
        """Slurm's last answer is older than this job."""
        self._last_query_m, self.jobs = self._monotonic(), None

    def check_wait(self, followed: FollowedJob, wanted: SlurmSpec | None) -> None:
        """Cancel a job that has waited too long or can never start."""
        if followed.cancelled or not followed.status.is_queued or followed.job is None:
            followed.unstartable_since_m = None
            return
        if wanted and wanted.queue_s is not None and time.time() - followed.waits_since_t > wanted.queue_s:
            self.cancel(followed, Cause.JOB_QUEUE_DEADLINE)
        elif not NEVER_STARTS.fullmatch(followed.status.reason):
            followed.unstartable_since_m = None
        else:
            followed.unstartable_since_m = self._monotonic() if followed.unstartable_since_m is None else followed.unstartable_since_m
            if self._monotonic() - followed.unstartable_since_m > NEVER_STARTS_S:
                self.cancel(followed, Cause.JOB_NEVER_STARTS)

    def cancel(self, followed: FollowedJob, why: Cause) -> None:
        """Cancel a job; without an answer, again at the next turn."""
        if followed.job is None or self.abandoned:
            return
        answer = self._place.cancel(followed.job_id, self.call)
        if answer.ok:
            followed.cancelled = why
        self.abandoned = answer.unreachable and self._interrupts.urgency is Urgency.KILL

    def stop(self, jobs: Sequence[tuple[FollowedJob, JobPaths, LimitsSpec]]) -> None:
        """Called at every turn while a stop is requested."""
        urgency = self._interrupts.urgency
        for followed, paths, limits in jobs:
            if followed.stop_until_m is None:
                followed.stop_until_m = self._monotonic() + limits.soft_s + limits.term_s + STOP_GRACE_S
                # Its ranks halt by this file even if the controller does not answer; a pending job ends as soon as it starts.
                files.write_json(paths.job_stop, {"t": time.time()})
            late = self._monotonic() > followed.stop_until_m
            is_due = self.jobs is not None and (followed.status.is_queued or late)
            if not followed.cancelled and (is_due or urgency is Urgency.KILL):
                self.cancel(followed, Cause.USER)
        self._handled_urgency = urgency
        # A job whose submission was not answered may have been accepted.
        self.abandoned = self.abandoned or (urgency is Urgency.KILL and self.jobs is None and any(job.job is None for job, _, _ in jobs))


def left_text(jobs: Mapping[str, FollowedJob]) -> str:
    """Names the jobs that were left as they are, by run."""
    known = [followed.job_id for followed in jobs.values() if followed.job]
    unknown = [run for run, followed in jobs.items() if followed.job is None]
    left = f"job {', '.join(known)} may go on: `scancel {' '.join(known)}` ends {'it' if len(known) == 1 else 'them'}"
    taken = f"it may have accepted a job for {', '.join(unknown)}: see `squeue --me`"
    return f"Slurm does not answer, and {'; '.join([*([left] if known else []), *([taken] if unknown else [])])}"


class StopListener(Protocol):
    """Called when a stop is requested."""

    def stopping(self, spec: RunSpec) -> None: ...


@dataclass
class JobFollower:
    """The state of a loop over jobs in this process; all lasting state is in the folder."""

    invocation: Invocation
    listener: StopListener
    sleep: Callable[[float], None] = time.sleep
    place: JobPlace = slurm_place

    def __post_init__(self) -> None:
        self.plan, self.paths = self.invocation.plan, self.invocation.paths
        self.interrupts, self.monotonic = self.invocation.interrupts, self.invocation.monotonic
        self.set_aside: dict[str, str] = {}
        """Runs that are not submitted again by this invocation, and why."""
        self.out_of_budget = False
        self.jobs_left = ""
        """Jobs that may go on, and how to end them: Slurm did not answer after the second stop request."""
        self._queue = JobQueue(self.place, self.interrupts, self.monotonic)
        self._stopping = False

    def _was_stopped(self, paths: JobPaths) -> bool:
        """Whether an earlier harness requested the job's stop. For a job that has not started, the request is withdrawn."""
        was_stopped = paths.job_stop.exists()
        if started(paths) is None:
            paths.job_stop.unlink(missing_ok=True)
        return was_stopped

    def _is_over(self, followed: FollowedJob, wanted: SlurmSpec | None, *, has_result: bool) -> bool:
        """Whether the job, whose number is known, is over and its program's files are complete."""
        assert followed.job is not None
        if self._queue.jobs is None:
            # After a stop request there is no wait for Slurm's confirmation.
            return has_result and self.interrupts.stop_requested()
        status = self._queue.jobs.get(followed.job_id)
        if status is None:
            status = JobStatus(state="COMPLETED") if has_result else self.place.final_state(followed.job_id)
        followed.status = status
        if not status.is_over:
            followed.over_m = None
            self._queue.check_wait(followed, wanted)
            return False
        followed.over_m = followed.over_m or self.monotonic()
        return has_result or self.monotonic() - followed.over_m >= OUTCOME_GRACE_S

    def _has_no_job(self, followed: FollowedJob, paths: JobPaths) -> bool:
        """Whether there is no job by the folder and by Slurm, where its number is unknown: it was refused, its submission was not answered,
        or an earlier harness was killed just then. After the terminal was closed, the next harness decides."""
        followed.job = self.place.pick_up(paths, self._queue.jobs)
        return followed.job is None and self._queue.jobs is not None and not self.interrupts.hung_up

    def _stop_where_requested(self, jobs: Sequence[tuple[RunSpec, FollowedJob, JobPaths]]) -> None:
        """`jobs`: each with its current run."""
        # The terminal may be closed in the middle of a turn, while Slurm is queried.
        if self.interrupts.urgency is Urgency.NONE or self.interrupts.hung_up:
            return
        for spec, _, _ in jobs if not self._stopping else ():
            self.listener.stopping(spec)
        self._stopping = True
        self._queue.stop([(followed, paths, spec.limits) for spec, followed, paths in jobs])
