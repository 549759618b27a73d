"""A run as a job of a scheduler: what was submitted and started, the input of the program in the job, and the job's state."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from seatrial.records.plan import CampaignPlan, RunSpec

LIVE = frozenset({"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "STAGE_OUT", "RESIZING", "SIGNALING"})
"""States of a job that is not over."""
QUEUED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
"""States of a job that has not started, or is to start again."""
FORGOTTEN = ""
"""In place of a state: the scheduler does not know the job any more."""


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """attempt-N/job_order.json, which only its user can read: what the program in the job runs."""

    spec: RunSpec
    plan_hash: str = ""
    resumes: bool = False
    """Whether a job that Slurm starts again resumes from a checkpoint: only a training does (one group, one repeat)."""


@dataclass(frozen=True, kw_only=True)
class AllocationOrder:
    """allocation-N/job_order.json, which only its user can read: what the program in a job for many runs runs."""

    plan: CampaignPlan
    plan_hash: str = ""
    first_attempts: dict[str, int] = field(default_factory=dict)
    """Runs to be run → the number of the first attempt that counts: an earlier one belongs to another job."""
    from_start: bool = False
    keep_going: bool = False

    @property
    def spec(self) -> RunSpec:
        """The first run, whose place is that of all."""
        return self.specs[0]

    @property
    def specs(self) -> tuple[RunSpec, ...]:
        return tuple(spec for spec in self.plan.runs if spec.run in self.first_attempts)


Order = JobOrder | AllocationOrder


class AllocationEnding(str, enum.Enum):
    """Why the program in such a job ended."""

    DONE = "done"
    BUDGET = "budget"
    TIME_LEFT = "time_left"
    """Too little time was left for the next run."""
    TIME_LIMIT = "time_limit"
    NODE_LOST = "node_lost"
    """Or preempted: a new job may succeed."""
    USER = "user"
    ENDED = "ended"
    """From outside, by stop_on_error, or after identical failures in a row."""


@dataclass(frozen=True, kw_only=True)
class AllocationEnd:
    """allocation-N/job_end.json: the job is over. Written by the program in it, else by the harness that follows the job."""

    ending: AllocationEnding
    detail: str = ""
    ended_t: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SubmittedJob:
    """job.json of an attempt or an allocation: the job that it is part of."""

    job: str
    """Slurm's id."""
    submitted_t: float = 0.0
    cluster: str = ""
    """The cluster, where the controller knows several; else empty."""


@dataclass(frozen=True, kw_only=True)
class StartedJob:
    """job_start.json, written by the program in the job: Slurm has started it for this attempt, or for this allocation."""

    job: str
    started_t: float
    restarts: int = 0
    """How often Slurm had requeued the job before."""
    nodes: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    """Variables set by Slurm (`SLURM_JOB_PARTITION`, `SLURM_JOB_CPUS_PER_NODE`, `CUDA_VISIBLE_DEVICES` …)."""


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job as its scheduler reports it."""

    state: str
    """In squeue's words: `PENDING`, `RUNNING`, `CANCELLED`; FORGOTTEN where the job is not known any more."""
    reason: str = ""
    """Why it waits, or why it ended."""
    nodes: str = ""
    comment: str = ""
    queued_t: float = 0.0
    """When it was last put into the queue; 0 where that is unknown."""

    @property
    def is_over(self) -> bool:
        return self.state not in LIVE and self.state not in QUEUED

    @property
    def is_queued(self) -> bool:
        return self.state in QUEUED
