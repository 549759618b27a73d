"""A Slurm that soon forgets its jobs: with accounting they are found there, without it their own files tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.records.outcome import Cause, Outcome
from tests.slurm.campaigns import LONG, ONE_NODE, JobCampaign
from tests.slurm.conftest import require_slurm
from tests.slurm.controller import SlurmCluster, slurm
from tests.waiting import wait_until


@pytest.fixture(params=[True, False], ids=["accounting", "none"])
def forgetful(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_root: Path) -> Iterator[SlurmCluster]:
    require_slurm()
    folder = tmp_path_factory.mktemp("slurm")
    with slurm(folder, nodes=1, shared=[shared_root], settings={"MinJobAge": "2"}, accounting=request.param) as cluster:
        yield cluster


def test_jobs_that_ended_while_no_harness_looked(forgetful: SlurmCluster, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    campaign = JobCampaign(forgetful, tmp_path)
    running = campaign.start(LONG)
    campaign.wait_for_steps(running, ranks=1)
    running.kill()
    job = campaign.job()
    forgetful.run("scancel", job)
    wait_until(lambda: forgetful.state(job) == "", "Slurm forgets the job")
    campaign.run({**ONE_NODE, "steps": LONG["steps"], "limits": LONG["limits"]}, code=3)
    outcome = campaign.outcome()
    known = "accounting" in request.node.name
    assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.JOB_CANCELLED if known else Cause.JOB_LOST)
    campaign.assert_nothing_left()
