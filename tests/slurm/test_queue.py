"""A queue that is full, jobs in flight together, and a controller that does not answer."""

from __future__ import annotations

import signal
import time

from seatrial.records.outcome import Cause, Outcome
from tests.slurm.campaigns import LONG, ONE_NODE, SOME_SECONDS, JobCampaign, ended, started


def test_a_full_queue_until_the_deadline(campaign: JobCampaign) -> None:
    campaign.slurm.run("sbatch", "--nodes=2", "--exclusive", "--output=/dev/null", "--job-name=other", "--wrap=sleep 600")
    try:
        text = campaign.run({**ONE_NODE, "place": {**ONE_NODE["place"], "queue_s": "4s"}}, code=3)
        outcome = campaign.outcome()
        assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.JOB_QUEUE_DEADLINE)
        assert "was still waiting after 4 s, and was cancelled: 1 of 1 runs left" in text
    finally:
        campaign.slurm.run("scancel", "--name=other")


def test_a_job_that_waits_again_is_shown_as_waiting(campaign: JobCampaign) -> None:
    """Pinned to a node that somebody else gets meanwhile, it has neither a step nor a time to go, and its own deadline."""
    place = {**LONG["place"], "nodelist": "node1", "queue_s": "12s"}
    running = campaign.start({**LONG, "place": place}, "--heartbeat", "2")
    campaign.wait_for_steps(running, 1)
    campaign.slurm.run(
        "sbatch", "--nodelist=node1", "--exclusive", "--nice=-1000", "--output=/dev/null", "--job-name=other", "--wrap=sleep 600"
    )
    try:
        campaign.slurm.run("scontrol", "requeue", campaign.job())
        text = ended(campaign, running, code=3, timeout_s=120.0)
    finally:
        campaign.slurm.run("scancel", "--name=other")
    assert campaign.outcome().cause is Cause.JOB_QUEUE_DEADLINE, text
    beats = [line for line in text.splitlines() if "heartbeat" in line]
    waited = [line for line in beats if f"job {campaign.job()} pending (" in line]
    assert waited and not any("last_step" in line for line in beats[beats.index(waited[0]) :]), text
    assert text.index("submitted as job") < text.index("base_r1: started")


def test_two_jobs_in_flight_on_different_nodes(campaign: JobCampaign) -> None:
    campaign.run({**SOME_SECONDS, "repeats": 3, "place": {**SOME_SECONDS["place"], "jobs": 2}})
    records = sorted((campaign.start_record(run.attempt(1)) for run in campaign.out.runs()), key=lambda record: record.started_t)
    first, second, _ = records
    assert {first.nodes, second.nodes} == {("node1",), ("node2",)}
    assert second.started_t < campaign.outcome("base_r1").ended_t, "the second was started while the first ran"


def test_a_controller_that_is_away_for_a_while(campaign: JobCampaign) -> None:
    running = started(campaign, SOME_SECONDS)
    campaign.slurm.stop_controller()
    # The time it is away is what is tested: longer than a question to it and what a job that is over is given.
    time.sleep(12)
    campaign.slurm.start_controller()
    ended(campaign, running, code=0, timeout_s=120.0)
    assert campaign.outcome().outcome is Outcome.OK and not campaign.attempt(number=2).folder.exists()


def test_ctrl_c_while_the_controller_is_away(campaign: JobCampaign) -> None:
    """The first asks the job by a file of its own, the second ends the harness, which names it; the next harness picks it up."""
    other = campaign.slurm.run("sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600").strip()
    running = campaign.start(ONE_NODE)
    campaign.wait(lambda: bool(campaign.out.runs()) and campaign.attempt().job.exists(), lambda: running.output)
    job = campaign.job()
    campaign.slurm.stop_controller()
    running.signal(signal.SIGINT)
    campaign.wait(campaign.attempt().job_stop.exists, lambda: running.output)
    assert running.running
    running.signal(signal.SIGINT)
    text = ended(campaign, running, code=130, timeout_s=30.0)
    assert f"Slurm does not answer, and job {job} may go on: `scancel {job}` ends it" in " ".join(text.split()), text
    campaign.slurm.start_controller()
    # Before its nodes have reported, it knows none that a job could have.
    campaign.wait(lambda: campaign.slurm.run("sinfo", "-h", "-o", "%T", check=False).split() == ["allocated"], lambda: "", 60.0)
    again = campaign.start(ONE_NODE)
    campaign.wait(lambda: not campaign.attempt().job_stop.exists(), lambda: again.output)
    campaign.slurm.run("scancel", other)
    ended(campaign, again, code=0)
    assert campaign.job() == job and not campaign.attempt(number=2).folder.exists()
