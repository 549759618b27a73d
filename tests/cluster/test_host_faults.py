"""Faults of hosts during a run: cause, advice, exit code, and no process left."""

from __future__ import annotations

import json
from pathlib import Path

from seatrial.records.outcome import Cause, Fault, Outcome, RunOutcome
from seatrial.records.signatures.registry import signature
from tests.cluster.campaigns import DUMMY, LONG, Campaign

INCONCLUSIVE = 3
WRITES = """\
import time

for step in range(200):
    with open("/mnt/scratch", "a") as scratch:
        scratch.write("x" * 4096)
    print(step, flush=True)
    time.sleep(0.05)
"""


def assert_advised(outcome: RunOutcome, *keywords: str) -> None:
    """The advice is that of the signature, and contains these keywords."""
    assert outcome.action == signature(outcome.signature).action.replace("launcher.log", f"nodes/{outcome.host}/launcher.log")
    assert [keyword for keyword in keywords if keyword not in outcome.action] == []


def test_a_link_that_is_cut_in_the_middle_of_a_step(campaign: Campaign) -> None:
    started = campaign.start(LONG)
    campaign.wait_for_steps(started, ranks=2)
    campaign.hosts.cut("node2")
    assert started.wait(120) == INCONCLUSIVE, started.output
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.cause, outcome.signature) == (Outcome.FAILED, Cause.HOST_LOST, "node_silent"), outcome
    assert outcome.fault is Fault.INFRASTRUCTURE and outcome.host == "node2"
    assert "node2 was lost" in started.output
    assert_advised(outcome, "network", "seatrial doctor", "again")


def test_a_host_that_goes_down(campaign: Campaign) -> None:
    started = campaign.start(LONG)
    campaign.wait_for_steps(started, ranks=2)
    campaign.hosts.halt("node2")
    assert started.wait(120) == INCONCLUSIVE, started.output
    outcome = campaign.outcome()
    assert (outcome.cause, outcome.signature, outcome.host) == (Cause.HOST_LOST, "node_gone", "node2"), outcome
    assert_advised(outcome, "ssh HOST uptime", "again")


def test_the_head_s_power_lost_leaves_no_rank_on_any_host(campaign: Campaign) -> None:
    started = campaign.start(LONG)
    campaign.wait_for_steps(started, ranks=2)
    campaign.hosts.poweroff("head")
    campaign.assert_nothing_left("node1", "node2")


def test_a_disk_that_is_full_on_one_host(campaign: Campaign, tmp_path: Path) -> None:
    campaign.hosts.disk("node2", "/mnt", size="1m")
    campaign.hosts.fill("node2", "/mnt")
    (tmp_path / "writes.py").write_text(WRITES)
    plan = {**DUMMY, "workload": {"script": "writes.py", "reads": "none"}, "settings": {}, "steps": None}
    campaign.run({key: value for key, value in plan.items() if value is not None}, code=INCONCLUSIVE)
    outcome = campaign.outcome()
    assert (outcome.cause, outcome.host) == (Cause.DISK_FULL, "node2"), outcome
    assert_advised(outcome, "again")


def test_a_clock_an_hour_ahead_changes_no_figure(campaign: Campaign) -> None:
    skew_s = 3600
    campaign.hosts.skew("node2", skew_s)
    text = campaign.run(DUMMY)
    assert "node2" in text and "clock" in text
    offset_s = campaign.nodes().nodes[1].clock_offset_s
    assert offset_s is not None and abs(offset_s - skew_s) < 60
    first, second = (json.loads(path.read_text().splitlines()[0])["t"] for path in campaign.attempt().all_events())
    assert abs(second - first - skew_s) < 60, "the clocks of the ranks differ too"
    run = campaign.summary()["runs"][0]
    assert 0 < run["startup_sec"] < 60, run
    assert any(caution["kind"] == "clock_skew" and "node2" in caution["text"] for caution in campaign.summary()["cautions"])


def test_a_rank_that_hangs_on_another_host(campaign: Campaign) -> None:
    """Stacks of both hosts are collected, and the host of the hanging rank is named."""
    settings = {"step_ms": 20, "hang_at_step": 20, "hang_rank": 1}
    limits = {"start_s": 60, "run_s": 120, "soft_s": 2, "term_s": 2, "stall": {"floor_s": 5, "factor": 2}}
    campaign.run({**DUMMY, "settings": settings, "limits": limits}, code=2)
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.rank, outcome.host) == (Outcome.STALLED, 1, "node2"), outcome
    assert "hang_in_python" in outcome.frame and "on node2" in outcome.detail
    assert {path.name for path in campaign.attempt().stacks.iterdir()} >= {"rank0.txt", "rank1.txt"}
