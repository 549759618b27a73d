"""A real time limit: Slurm ends the job at it, since its ranks did not follow the warning, and the training goes on in the next job."""

from __future__ import annotations

from pathlib import Path

from seatrial.records.outcome import Cause, Outcome
from tests.slurm.campaigns import ONE_NODE, JobCampaign


def test_a_job_that_is_ended_at_its_time_limit_goes_on_from_its_checkpoint(campaign: JobCampaign) -> None:
    plan = {key: value for key, value in ONE_NODE.items() if key not in ("settings", "steps")}
    script = {"script": str(Path(__file__).with_name("resuming.py"))}
    # Its ranks have longer to halt than the job has: a minute, which Slurm checks every thirty seconds.
    limits = {"start_s": 60, "run_s": 600, "soft_s": 600}
    place = {**ONE_NODE["place"], "time": "1", "warn_s": 20}
    campaign.run({**plan, "workload": script, "env": {"NEVER_HALTS": "1"}, "limits": limits, "place": place})
    first, second = campaign.outcome(), campaign.outcome(number=2)
    assert (first.outcome, first.cause) == (Outcome.INTERRUPTED, Cause.JOB_TIME_LIMIT) and "reached its time limit" in first.detail
    assert (second.outcome, second.resumed_from) == (Outcome.OK, 1) and second.resumed_at
    assert campaign.job(number=2) != campaign.job()
