"""Campaigns with place `slurm`, started on the login node; afterwards no job and no process may be left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seatrial.core.paths import AttemptPaths
from seatrial.records.codec import from_json
from seatrial.records.job import StartedJob, SubmittedJob
from tests.cluster.campaigns import DUMMY, Campaign
from tests.cluster.running import Started
from tests.slurm.controller import SlurmCluster

ONE_NODE: dict[str, Any] = {**DUMMY, "name": "jobs", "place": {"kind": "slurm", "partition": "gpu", "time": "5"}}
LONG: dict[str, Any] = {**ONE_NODE, "steps": 100_000, "limits": {"start_s": 60, "run_s": 600}}
# Enough for a job to be disturbed, and short enough to wait for.
SOME_SECONDS: dict[str, Any] = {**ONE_NODE, "steps": 160, "settings": {"step_ms": 50}}


class JobCampaign(Campaign):
    """One plan and its output folder, and the Slurm it runs on."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        super().__init__(slurm.hosts, folder)
        self.slurm = slurm

    def job(self, run: str = "", number: int = 1) -> str:
        """The job of an attempt, by the folder alone."""
        return from_json(SubmittedJob, json.loads(self.attempt(run, number).job.read_text())).job

    def start_record(self, attempt: AttemptPaths) -> StartedJob:
        return from_json(StartedJob, json.loads(attempt.job_start.read_text()))

    def assert_nothing_left(self, *hosts: str) -> None:
        self.wait(lambda: not self.slurm.jobs(), lambda: "\n".join(self.slurm.jobs()), 60.0)
        super().assert_nothing_left(*hosts)


def started(campaign: JobCampaign, plan: dict[str, Any], ranks: int = 1) -> Started:
    """A campaign whose ranks take steps."""
    running = campaign.start(plan)
    campaign.wait_for_steps(running, ranks)
    return running


def ended(campaign: JobCampaign, running: Started, code: int | None, timeout_s: float = 90.0) -> str:
    campaign.wait(lambda: not running.running, lambda: running.output, timeout_s)
    assert running.wait(1.0) == code or code is None, running.output
    return running.output
