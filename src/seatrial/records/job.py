"""A run as a job of a scheduler: what was submitted, what was started, and what the program in the job needs to know."""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.records.plan import RunSpec


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """attempt-N/job_order.json, which only its user can read: what the program in the job runs."""

    spec: RunSpec
    plan_hash: str = ""
    resumes: bool = False
    """Whether a job that Slurm starts again goes on from a checkpoint: only a training does (one group, one repeat)."""


@dataclass(frozen=True, kw_only=True)
class SubmittedJob:
    """attempt-N/job.json: the job that this attempt is part of."""

    job: str
    """Slurm's id."""
    submitted_t: float = 0.0
    cluster: str = ""
    """Of several that one controller knows; empty for the only one."""


@dataclass(frozen=True, kw_only=True)
class StartedJob:
    """attempt-N/job_start.json, written by the program in the job: Slurm has started it for this attempt."""

    job: str
    started_t: float
    restarts: int = 0
    """How often Slurm had requeued the job before."""
    nodes: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    """What Slurm gave to it (`SLURM_JOB_PARTITION`, `SLURM_JOB_CPUS_PER_NODE`, `CUDA_VISIBLE_DEVICES` …)."""
