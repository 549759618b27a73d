"""A harness that goes away and comes back, and what stops its jobs."""

from __future__ import annotations

import signal

import pytest

from seatrial.records.outcome import Cause, Outcome
from tests.slurm.campaigns import LONG, SOME_SECONDS, JobCampaign, ended, started

# Enough for a harness to be killed and for two more to find the job running.
PICKED_UP = {**SOME_SECONDS, "steps": 300}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_harness_that_goes_away_and_another_that_picks_up(campaign: JobCampaign, number: int) -> None:
    running = started(campaign, PICKED_UP)
    job = campaign.job()
    running.signal(number)
    campaign.wait(lambda: not running.running, lambda: running.output)
    assert campaign.slurm.state(job) == "RUNNING"
    if number == signal.SIGKILL:
        text = campaign.run({**PICKED_UP, "steps": 301}, code=None)
        assert f"Slurm job {job} is running for base_r1 of the previous plan (attempt 1)" in " ".join(text.split()), text
    campaign.run(PICKED_UP)
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


def test_a_second_harness_or_job_on_the_same_folder_is_refused(campaign: JobCampaign) -> None:
    running = started(campaign, LONG)
    script = str(campaign.attempt().job_script)
    by_hand = campaign.hosts.run("head", ["sbatch", "--wait", "--parsable", script], timeout=60.0)
    assert by_hand.returncode != 0 and f"job {campaign.job()} runs {campaign.attempt().folder}" in campaign.attempt().job_log.read_text()
    assert "is in use by" in campaign.run(LONG, code=None)
    assert len(campaign.slurm.jobs()) == 1 and not campaign.attempt(number=2).folder.exists()
    running.signal(signal.SIGINT)
    ended(campaign, running, code=130)


def test_a_stop_without_a_harness_ends_the_jobs_that_the_folder_names(campaign: JobCampaign) -> None:
    plan = {**LONG, "repeats": 2, "place": {**LONG["place"], "nodes": 2, "jobs": 2}}
    running = started(campaign, plan, ranks=2)
    campaign.wait(lambda: len(campaign.slurm.jobs()) == 2, lambda: running.output)
    shown = campaign.hosts.run("node2", ["seatrial", "watch", campaign.out.folder, "--once"], check=True).stdout
    assert "base_r1" in shown, shown
    running.kill()
    shown = campaign.hosts.run("node2", ["seatrial", "watch", campaign.out.folder, "--once"], check=True).stdout
    assert "base_r1: step " in shown and f"base_r2: not started yet · job {campaign.job('base_r2')}, which no harness follows" in shown, (
        shown
    )
    text = campaign.hosts.run("node2", ["seatrial", "stop", campaign.out.folder], check=True).stdout
    assert f"asked Slurm job {campaign.job('base_r1')} to stop" in text and f"cancelled Slurm job {campaign.job('base_r2')}" in text
    campaign.wait(lambda: campaign.attempt("base_r1").outcome.exists(), lambda: text)
    for run in ("base_r1", "base_r2"):
        outcome = campaign.outcome(run)
        assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.USER)
