"""One job that holds its nodes for many runs: it needs no harness, and whatever ends it, the runs that are left get another."""

from __future__ import annotations

import json
import signal
from typing import Any

from seatrial.core.paths import AllocationPaths
from seatrial.records.codec import from_json
from seatrial.records.job import AllocationEnd, AllocationEnding
from seatrial.records.outcome import Cause, Outcome
from tests.slurm.campaigns import ONE_NODE, SOME_SECONDS, JobCampaign, ended, started

HELD: dict[str, Any] = {"kind": "slurm", "partition": "gpu", "time": "5", "allocation": "campaign"}
TWO_RUNS: dict[str, Any] = {**SOME_SECONDS, "steps": 120, "repeats": 2, "place": HELD}


def allocation(campaign: JobCampaign, number: int = 1) -> AllocationPaths:
    return campaign.out.allocation_jobs()[number - 1]


def end_of(campaign: JobCampaign, number: int = 1) -> AllocationEnding:
    return from_json(AllocationEnd, json.loads(allocation(campaign, number).job_end.read_text())).ending


def held_job(campaign: JobCampaign, number: int = 1) -> str:
    return str(json.loads(allocation(campaign, number).job.read_text())["job"])


def causes(campaign: JobCampaign, run: str) -> list[Cause]:
    """Of all attempts of a run, the last of which ended well."""
    outcomes = [campaign.outcome(run, attempt.number) for attempt in campaign.out.run(run).attempts()]
    assert outcomes[-1].outcome is Outcome.OK and all(one.outcome is Outcome.INTERRUPTED for one in outcomes[:-1])
    return [one.cause for one in outcomes[:-1]]


def test_all_runs_in_one_job_on_two_nodes(campaign: JobCampaign) -> None:
    plan = {**ONE_NODE, "repeats": 3, "place": {**HELD, "nodes": 2}}
    text = campaign.run(plan)
    assert "PASS" in text and len(campaign.out.allocation_jobs()) == 1 and end_of(campaign) is AllocationEnding.DONE
    assert {campaign.job(f"base_r{repeat}") for repeat in (1, 2, 3)} == {held_job(campaign)}
    assert [node.name for node in campaign.nodes("base_r2").nodes] == ["node1", "node2"]
    campaign.run(plan)
    assert len(campaign.out.allocation_jobs()) == 1


def test_a_harness_that_is_killed_and_another_that_picks_up(campaign: JobCampaign) -> None:
    running = started(campaign, TWO_RUNS)
    running.signal(signal.SIGKILL)
    campaign.wait(lambda: not running.running, lambda: running.output)
    # The job goes on with the next run by itself.
    campaign.wait(lambda: campaign.attempt("base_r2").job_start.exists(), lambda: "")
    shown = campaign.hosts.run("node2", ["seatrial", "watch", campaign.out.folder, "--once"], check=True).stdout
    assert f"job {held_job(campaign)}, which no harness follows" in shown, shown
    campaign.run(TWO_RUNS)
    assert causes(campaign, "base_r1") == causes(campaign, "base_r2") == [] and len(campaign.out.allocation_jobs()) == 1


def test_cancelled_from_outside_the_rest_is_for_the_next_start(campaign: JobCampaign) -> None:
    running = started(campaign, TWO_RUNS)
    campaign.slurm.run("scancel", held_job(campaign))
    text = ended(campaign, running, code=3)
    assert f"Slurm job {held_job(campaign)} was cancelled: 2 of 2 runs left" in text
    campaign.run(TWO_RUNS)
    assert causes(campaign, "base_r1") == [Cause.JOB_CANCELLED] and causes(campaign, "base_r2") == []
    assert len(campaign.out.allocation_jobs()) == 2


def test_a_requeued_job_goes_on_with_what_is_left(campaign: JobCampaign) -> None:
    running = campaign.start(TWO_RUNS)
    campaign.wait(lambda: len(campaign.out.runs()) == 2 and bool(campaign.attempt("base_r2").all_events()), lambda: running.output)
    campaign.slurm.run("scontrol", "requeue", held_job(campaign))
    ended(campaign, running, code=0, timeout_s=120.0)
    assert causes(campaign, "base_r1") == [] and causes(campaign, "base_r2") == [Cause.JOB_REQUEUED]
    assert len(campaign.out.allocation_jobs()) == 1


def test_warned_of_the_time_limit_the_rest_gets_another_job(campaign: JobCampaign) -> None:
    running = campaign.start(TWO_RUNS)
    campaign.wait(lambda: len(campaign.out.runs()) == 2 and bool(campaign.attempt("base_r2").all_events()), lambda: running.output)
    campaign.slurm.run("scancel", "--signal=USR1", "--batch", held_job(campaign))
    ended(campaign, running, code=0, timeout_s=120.0)
    assert causes(campaign, "base_r2") == [Cause.JOB_TIME_LIMIT] and end_of(campaign) is AllocationEnding.TIME_LIMIT
    assert len(campaign.out.allocation_jobs()) == 2


def test_too_little_time_for_the_next_run(campaign: JobCampaign) -> None:
    """An earlier run of the group that took twenty minutes: after the first run of a job of five there is no time for the second."""
    short = {**TWO_RUNS, "steps": 20}
    campaign.run({**short, "repeats": 1})
    earlier = campaign.attempt("base_r1").outcome
    earlier.write_text(json.dumps({**json.loads(earlier.read_text()), "duration_s": 1200.0}))
    text = campaign.run({**short, "repeats": 3})
    assert [end_of(campaign, number) for number in (2, 3)] == [AllocationEnding.TIME_LEFT, AllocationEnding.DONE], text
    assert f"Slurm job {held_job(campaign, 2)} has" in text and "1 run in a new job" in text
    assert causes(campaign, "base_r2") == causes(campaign, "base_r3") == []


def test_a_stop_from_another_node(campaign: JobCampaign) -> None:
    running = started(campaign, {**TWO_RUNS, "steps": 100_000})
    campaign.hosts.run("node2", ["seatrial", "stop", campaign.out.folder], check=True)
    ended(campaign, running, code=130)
    outcome = campaign.outcome("base_r1")
    assert (outcome.outcome, outcome.cause) == (Outcome.INTERRUPTED, Cause.USER) and not campaign.out.run("base_r2").folder.exists()
    assert end_of(campaign) is AllocationEnding.USER


def test_a_node_that_goes_down(campaign: JobCampaign) -> None:
    running = started(campaign, {**TWO_RUNS, "place": {**HELD, "nodes": 2}}, ranks=2)
    campaign.hosts.poweroff("node2")
    campaign.wait(lambda: "node2" in campaign.slurm.run("sinfo", "-R"), lambda: running.output)
    campaign.slurm.boot("node2")
    text = ended(campaign, running, code=None, timeout_s=200.0)
    last = {run: campaign.outcome(run, len(campaign.out.run(run).attempts())) for run in ("base_r1", "base_r2")}
    assert last["base_r2"].outcome is Outcome.OK
    # By who noticed first, the job was requeued, or the run failed with its host: the platform's fault, which leaves the verdict open.
    requeued = last["base_r1"].outcome is Outcome.OK
    assert requeued or last["base_r1"].cause is Cause.HOST_LOST, text
    assert running.wait(1.0) == (0 if requeued else 3), text


def test_in_an_allocation_of_the_users_own(campaign: JobCampaign) -> None:
    plan = campaign.write({**ONE_NODE, "repeats": 2, "place": {**HELD, "nodes": 2, "allocation": "current"}})
    refused = campaign.hosts.run("head", ["seatrial", "run", plan], cwd=campaign.folder)
    assert refused.returncode == 2 and "SLURM_JOB_ID is not set" in refused.stdout + refused.stderr
    argv = ["salloc", "--nodes=2", "--exclusive", "--time=5", "seatrial", "run", plan]
    done = campaign.hosts.run("head", argv, cwd=campaign.folder, timeout=120.0)
    assert done.returncode == 0 and "PASS" in done.stdout, done.stdout + done.stderr
    assert [node.name for node in campaign.nodes("base_r2").nodes] == ["node1", "node2"] and campaign.nodes("base_r2").via == "srun"


def test_variables_of_the_shell_and_of_a_job_around_it_reach_no_submitted_job(campaign: JobCampaign) -> None:
    """What is typed in an allocation of one node submits jobs of two as the plan says, and not as the shell's variables do."""
    variables = {"SBATCH_PARTITION": "urgent", "SBATCH_TIMELIMIT": "1", "SQUEUE_FORMAT": "%i"}
    plan = campaign.write(ONE_NODE)
    done = campaign.hosts.run(
        "head",
        ["salloc", "--nodes=1", "--exclusive", "--time=5", "seatrial", "run", plan],
        cwd=campaign.folder,
        env=variables,
        timeout=120.0,
    )
    assert done.returncode == 0 and "PASS" in done.stdout, done.stdout + done.stderr
    shown = campaign.start_record(campaign.attempt()).variables
    assert (shown["SLURM_JOB_PARTITION"], shown["SLURM_JOB_ID"]) == ("gpu", campaign.job())
    assert not [name for name in shown if name.startswith("SBATCH_")]
