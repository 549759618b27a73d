"""Jobs that end badly, harnesses that go away, and a controller that does not answer: nothing is lost, and nothing is left."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.records.outcome import Cause, Outcome
from tests.cluster.running import Started
from tests.slurm.campaigns import LONG, ONE_NODE, JobCampaign
from tests.slurm.controller import SlurmCluster

# Enough for the harness to be killed, and short enough to wait for.
SOME_SECONDS: dict[str, Any] = {**ONE_NODE, "steps": 300, "settings": {"step_ms": 50}}


@pytest.fixture
def campaign(slurm_cluster: SlurmCluster, tmp_path: Path) -> Iterator[JobCampaign]:
    campaign = JobCampaign(slurm_cluster, tmp_path)
    try:
        yield campaign
        campaign.assert_nothing_left()
    finally:
        # A test that failed must not keep the nodes from the next.
        campaign.slurm.run("scancel", "--user=root", check=False)


def started(campaign: JobCampaign, plan: dict[str, Any], ranks: int = 1) -> Started:
    """A campaign whose ranks take steps."""
    running = campaign.start(plan)
    campaign.wait_for_steps(running, ranks)
    return running


def ended(campaign: JobCampaign, running: Started, code: int, timeout_s: float = 90.0) -> str:
    campaign.wait(lambda: not running.running, lambda: running.output, timeout_s)
    assert running.wait(1.0) == code, running.output
    return running.output


def test_a_job_cancelled_from_outside(campaign: JobCampaign) -> None:
    running = started(campaign, {**LONG, "place": {**LONG["place"], "nodes": 2}}, ranks=2)
    campaign.slurm.run("scancel", campaign.job())
    text = ended(campaign, running, code=3)
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.JOB_CANCELLED)
    assert f"Slurm job {campaign.job()} was cancelled: 1 of 1 runs left" in text


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_harness_that_goes_away_and_another_that_picks_up(campaign: JobCampaign, number: int) -> None:
    running = started(campaign, SOME_SECONDS)
    job = campaign.job()
    running.signal(number)
    campaign.wait(lambda: not running.running, lambda: running.output)
    assert campaign.slurm.state(job) == "RUNNING"
    campaign.run(SOME_SECONDS)
    assert campaign.outcome().outcome is Outcome.OK and campaign.job() == job
    assert not campaign.attempt(number=2).folder.exists()


@pytest.mark.parametrize("how", ["Ctrl-C", "stop on another node"])
def test_a_stop_halts_the_ranks_and_ends_the_job(campaign: JobCampaign, how: str) -> None:
    running = started(campaign, LONG)
    if how == "Ctrl-C":
        running.signal(signal.SIGINT)
    else:
        campaign.hosts.run("node2", ["seatrial", "stop", campaign.out.folder], check=True)
        campaign.hosts.run("node2", ["seatrial", "logs", campaign.out.folder / "base_r1"], check=True)
    ended(campaign, running, code=130)
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.USER)


def test_a_second_harness_on_the_same_folder_is_refused(campaign: JobCampaign) -> None:
    running = started(campaign, LONG)
    assert "is in use by" in campaign.run(LONG, code=None)
    assert len(campaign.slurm.jobs()) == 1 and not campaign.attempt(number=2).folder.exists()
    running.signal(signal.SIGINT)
    ended(campaign, running, code=130)


def test_a_requeued_job_is_the_next_attempt(campaign: JobCampaign) -> None:
    running = started(campaign, SOME_SECONDS)
    job = campaign.job()
    campaign.slurm.run("scontrol", "requeue", job)
    ended(campaign, running, code=0, timeout_s=120.0)
    first, second = campaign.outcome(), campaign.outcome(number=2)
    assert (first.outcome, first.cause, second.outcome) == (Outcome.INTERRUPTED, Cause.JOB_REQUEUED, Outcome.OK)
    assert campaign.job(number=2) == job and campaign.start_record(campaign.attempt(number=2)).restarts == 1


def test_a_controller_that_is_away_for_a_while(campaign: JobCampaign) -> None:
    running = started(campaign, SOME_SECONDS)
    campaign.slurm.stop_controller()
    # The time it is away is what is tested.
    time.sleep(20)
    campaign.slurm.start_controller()
    ended(campaign, running, code=0, timeout_s=120.0)
    assert campaign.outcome().outcome is Outcome.OK and not campaign.attempt(number=2).folder.exists()


def test_a_full_queue_until_the_deadline(campaign: JobCampaign) -> None:
    campaign.slurm.run("sbatch", "--nodes=2", "--exclusive", "--output=/dev/null", "--job-name=other", "--wrap=sleep 600")
    try:
        text = campaign.run({**ONE_NODE, "place": {**ONE_NODE["place"], "queue_s": "4s"}}, code=3)
        outcome = campaign.outcome()
        assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.JOB_QUEUE_DEADLINE)
        assert "was still waiting after 4 s, and was cancelled: 1 of 1 runs left" in text
    finally:
        campaign.slurm.run("scancel", "--name=other")


def test_a_training_that_is_warned_of_its_time_limit_goes_on_in_the_next_job(campaign: JobCampaign) -> None:
    script = {"script": str(Path(__file__).with_name("resuming.py"))}
    plan = {key: value for key, value in ONE_NODE.items() if key not in ("settings", "steps")}
    running = started(campaign, {**plan, "workload": script})
    job = campaign.job()
    # What --signal=B:USR1@N sends before the limit, which Slurm checks every thirty seconds only.
    campaign.slurm.run("scancel", "--signal=USR1", "--batch", job)
    ended(campaign, running, code=0, timeout_s=120.0)
    first, second = campaign.outcome(), campaign.outcome(number=2)
    assert (first.outcome, first.cause) == (Outcome.INTERRUPTED, Cause.JOB_TIME_LIMIT)
    assert (second.outcome, second.resumed_from, second.lost_steps) == (Outcome.OK, 1, 0)
    assert campaign.job(number=2) != job


def test_a_job_that_slurm_warns_by_itself_and_that_cannot_go_on(campaign: JobCampaign) -> None:
    text = campaign.run({**LONG, "place": {**LONG["place"], "time": "1", "warn_s": 30}}, code=3)
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.JOB_TIME_LIMIT)
    assert "1 of 1 runs left" in text and not campaign.attempt(number=2).folder.exists()


def test_a_preempted_job_is_run_again(campaign: JobCampaign) -> None:
    running = started(campaign, {**SOME_SECONDS, "place": {**SOME_SECONDS["place"], "nodes": 2}}, ranks=2)
    campaign.slurm.run("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    ended(campaign, running, code=0, timeout_s=150.0)
    assert campaign.outcome().outcome is Outcome.INTERRUPTED and campaign.outcome(number=2).outcome is Outcome.OK


def test_two_jobs_in_flight_on_different_nodes(campaign: JobCampaign) -> None:
    campaign.run({**SOME_SECONDS, "repeats": 3, "place": {**SOME_SECONDS["place"], "jobs": 2}})
    records = sorted((campaign.start_record(run.attempt(1)) for run in campaign.out.runs()), key=lambda record: record.started_t)
    first, second, _ = records
    assert {first.nodes, second.nodes} == {("node1",), ("node2",)}
    assert second.started_t < campaign.outcome("base_r1").ended_t, "the second was started while the first ran"


def test_a_node_that_goes_down(campaign: JobCampaign) -> None:
    running = started(campaign, {**SOME_SECONDS, "place": {**SOME_SECONDS["place"], "nodes": 2}}, ranks=2)
    campaign.hosts.poweroff("node2")
    campaign.wait(lambda: campaign.attempt().outcome.exists() or "node2" in campaign.slurm.run("sinfo", "-R"), lambda: running.output)
    campaign.slurm.boot("node2")
    ended(campaign, running, code=0, timeout_s=200.0)
    number = len(campaign.out.runs()[0].attempts())
    assert number > 1 and campaign.outcome(number=number).outcome is Outcome.OK
