"""Jobs that end badly: nothing is lost, and nothing is left."""

from __future__ import annotations

from pathlib import Path

from seatrial.records.outcome import Cause, Outcome
from tests.slurm.campaigns import LONG, ONE_NODE, SOME_SECONDS, JobCampaign, ended, started


def test_a_job_cancelled_from_outside(campaign: JobCampaign) -> None:
    running = started(campaign, {**LONG, "place": {**LONG["place"], "nodes": 2}}, ranks=2)
    campaign.slurm.run("scancel", campaign.job())
    text = ended(campaign, running, code=3)
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.JOB_CANCELLED)
    assert f"Slurm job {campaign.job()} was cancelled: 1 of 1 runs left" in text


def test_a_requeued_job_is_the_next_attempt(campaign: JobCampaign) -> None:
    running = started(campaign, SOME_SECONDS)
    job = campaign.job()
    campaign.slurm.run("scontrol", "requeue", job)
    ended(campaign, running, code=0, timeout_s=120.0)
    first, second = campaign.outcome(), campaign.outcome(number=2)
    assert (first.outcome, first.cause, second.outcome) == (Outcome.INTERRUPTED, Cause.JOB_REQUEUED, Outcome.OK)
    assert campaign.job(number=2) == job and campaign.start_record(campaign.attempt(number=2)).restarts == 1


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
    text = campaign.run({**LONG, "place": {**LONG["place"], "time": "1", "warn_s": 20}}, code=3)
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.JOB_TIME_LIMIT)
    assert "1 of 1 runs left" in text and not campaign.attempt(number=2).folder.exists()


def test_a_preempted_job_is_run_again(campaign: JobCampaign) -> None:
    running = started(campaign, {**SOME_SECONDS, "place": {**SOME_SECONDS["place"], "nodes": 2}}, ranks=2)
    campaign.slurm.run("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    ended(campaign, running, code=0, timeout_s=150.0)
    assert campaign.outcome().outcome is Outcome.INTERRUPTED and campaign.outcome(number=2).outcome is Outcome.OK


def test_a_node_that_goes_down(campaign: JobCampaign) -> None:
    # Longer than Slurm takes to notice.
    running = started(campaign, {**SOME_SECONDS, "steps": 300, "place": {**SOME_SECONDS["place"], "nodes": 2}}, ranks=2)
    campaign.hosts.poweroff("node2")
    campaign.wait(lambda: campaign.attempt().outcome.exists() or "node2" in campaign.slurm.run("sinfo", "-R"), lambda: running.output)
    campaign.slurm.boot("node2")
    ended(campaign, running, code=0, timeout_s=200.0)
    number = len(campaign.out.runs()[0].attempts())
    assert number > 1 and campaign.outcome(number=number).outcome is Outcome.OK
