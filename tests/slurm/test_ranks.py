"""The ranks of a job: they meet where all nodes say, and form the world that was planned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from seatrial.records.outcome import Cause, Outcome
from tests.slurm.campaigns import ONE_NODE, JobCampaign

TWO_NODES: dict[str, Any] = {**ONE_NODE, "place": {**ONE_NODE["place"], "nodes": 2, "interface": "eth0"}}


@contextmanager
def renamed_interface(campaign: JobCampaign, host: str, name: str) -> Iterator[None]:
    """Its eth0 has another name, and the same address."""

    def rename(old: str, new: str) -> None:
        command = f"ip link set {old} down && ip link set {old} name {new} && ip link set {new} up"
        campaign.hosts.run(host, ["sh", "-c", command], check=True)

    rename("eth0", name)
    try:
        yield
    finally:
        rename(name, "eth0")


def test_a_node_whose_interface_has_another_name_starts_no_rank_on_any(campaign: JobCampaign) -> None:
    with renamed_interface(campaign, "node2", "wan0"):
        campaign.run(TWO_NODES, code=None)
        # By a rule that both meet, they do.
        campaign.run({**TWO_NODES, "place": {**TWO_NODES["place"], "interface": "^lo"}}, "--out", "elsewhere")
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.cause, outcome.host) == (Outcome.FAILED, Cause.NCCL_TRANSPORT, "node2")
    seen = f"it has lo 127.0.0.1 ::1, wan0 {campaign.hosts.address('node2')}"
    assert f"node2 has no interface eth0 with an address; {seen}: no rank was started" in outcome.detail
    assert outcome.detail in campaign.attempt().job_log.read_text()
    assert not campaign.attempt().all_events() and not campaign.attempt().launcher_log.exists()
    (log,) = campaign.folder.glob("elsewhere/*/attempt-1/job.log")
    assert f"NIC wan0 {campaign.hosts.address('node2')}" in log.read_text()


SEPARATE = """
import time
import torch.distributed as dist
from seatrial.probe import Probe

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
with Probe() as probe:
    for _ in range(1000):
        with probe.step(samples=1):
            time.sleep(0.05)
"""


def test_nodes_that_train_alone_are_a_failure_and_no_slow_run(campaign: JobCampaign) -> None:
    (campaign.folder / "train.py").write_text(SEPARATE)
    plan = {key: value for key, value in TWO_NODES.items() if key not in ("settings", "steps")}
    campaign.run({**plan, "workload": {"script": "train.py"}, "launcher": "torchrun", "limits": {"start_s": 200, "run_s": 250}}, code=2)
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.cause) == (Outcome.FAILED, Cause.WORLD_TOO_SMALL)
    assert "has 1 of 2 planned ranks: 2 processes formed a world each" in outcome.detail


WITHOUT_PROBE = """
import os, sys, time
from pathlib import Path

if sys.argv[1] == "together":
    import torch.distributed as dist

    dist.init_process_group("gloo")
elif sys.argv[1] == "worlds of one":
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
own = Path(os.environ["SEATRIAL_RUN_DIR"])


def connections_seen():
    return sum('"local"' in path.read_text() for path in own.rglob("observed_ranks.json"))


until = time.monotonic() + 60
step = 0
# Until the agents of both nodes have looked.
while step < 20 or (sys.argv[1] == "together" and connections_seen() < 2 and time.monotonic() < until):
    time.sleep(0.05)
    step += 1
    print(f"step: {step} loss: {1 / step:.3f}", flush=True)
"""


@pytest.mark.parametrize("how", ["together", "worlds of one"])
def test_whether_nodes_trained_together_without_the_probe(campaign: JobCampaign, how: str) -> None:
    """Connections between ranks of the two nodes show it; where there are none it is unknown, and the verdict says so."""
    (campaign.folder / "train.py").write_text(WITHOUT_PROBE)
    plan = {key: value for key, value in TWO_NODES.items() if key not in ("settings", "steps")}
    limits = {"start_s": 200, "run_s": 250}
    text = campaign.run({**plan, "workload": {"script": "train.py", "args": [how]}, "launcher": "torchrun", "limits": limits})
    assert ("No evidence that the 2 ranks formed one process group" in " ".join(text.split())) == (how != "together"), text
    statements = json.loads(campaign.out.verdict.read_text())["statements"]
    assert ("process_group" in [one["kind"] for one in statements]) == (how != "together")
