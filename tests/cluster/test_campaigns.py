"""Whole campaigns on two and three hosts with every launcher and transport: the outcomes, and the files of each host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.records.outcome import Outcome
from tests.cluster.campaigns import DUMMY, Campaign
from tests.cluster.conftest import Build
from tests.cluster.hosts import Hosts
from tests.conftest import MadeOnce
from tests.harness import Harness

pytestmark = pytest.mark.timeout(400)

STAGE1: dict[str, Any] = {
    "name": "stage1-hosts",
    "workload": "contrastive",
    "settings": {
        "device": "cpu",
        "speech_model": "tiny",
        "text_model": "tiny",
        "fixed_slice_s": 1.0,
        "num_workers": 0,
    },
    "steps": 6,
    "env": {"OMP_NUM_THREADS": 1},
    "limits": {"start_s": 200, "run_s": 300},
    "output": "out",
}
CALLER_ENVIRONMENT = {"MY_OWN": "from $HOME's shell", "NCCL_ALGO": "Ring"}


@pytest.fixture
def stage1_plan(made_once: MadeOnce) -> dict[str, Any]:
    """With synthetic speech that all hosts see."""
    speech = made_once("speech", lambda folder: Harness(folder).run("prepare", "librispeech", "--synthetic", "40", "--output-root", "."))
    data = {"dataset_root": str(speech), "dataset_manifest_path": str(speech / "manifest.tsv")}
    return {**STAGE1, "settings": {**STAGE1["settings"], **data}}


def check_runs(campaign: Campaign, groups: list[str], via: str, ranks: int = 2) -> None:
    """Every run ended well on every host, with all its ranks, logs and samples."""
    assert [run.folder.name for run in campaign.out.runs()] == [f"{group}_r1" for group in groups]
    for group in groups:
        attempt, nodes = campaign.attempt(f"{group}_r1"), campaign.nodes(f"{group}_r1")
        assert campaign.outcome(f"{group}_r1").outcome is Outcome.OK
        assert nodes.via == via and [node.returncode for node in nodes.nodes] == [0] * len(nodes.nodes)
        assert all(node.clock_offset_s is not None and abs(node.clock_offset_s) < 5 for node in nodes.nodes)
        assert len(attempt.all_events()) == len(attempt.all_heartbeats()) == ranks
        for node in nodes.nodes[1:]:
            own = attempt.node(node.name)
            assert own.launcher_log.stat().st_size and own.host_telemetry.stat().st_size
    campaign.assert_nothing_left()


def test_stage_1_by_torchrun_and_ssh_on_three_hosts(build: Build, tmp_path: Path, stage1_plan: dict[str, Any]) -> None:
    campaign = Campaign(build(nodes=3), tmp_path)
    place = {"kind": "hostfile", "hostfile": "hostfile", "via": "ssh", "include": "node1@node2@node3:0"}
    axes = {"micro_batch": {"label": "mb", "values": [2]}}
    campaign.run({**stage1_plan, "launcher": "torchrun", "place": place, "axes": axes}, timeout=380)
    check_runs(campaign, ["mb2"], "ssh", ranks=3)


def test_stage_1_by_torchrun_with_one_command_per_node(hosts: Hosts, tmp_path: Path, stage1_plan: dict[str, Any]) -> None:
    campaign = Campaign(hosts, tmp_path)
    axes = {"micro_batch": {"label": "mb", "values": [2]}}
    plan = {**stage1_plan, "launcher": "torchrun", "axes": axes, "place": {"kind": "pernode", "nodes": 2, "ranks": 2}}
    master = ["--master-addr", "node1", "--master-port", "29500"]
    for host in ("node1", "node2"):
        hosts.refuse_ssh(host)
    second = campaign.start(plan, "--node-rank", "1", *master, host="node2")
    first = campaign.start(plan, "--node-rank", "0", *master, host="node1")
    assert first.wait(380) == 0, first.output + second.output
    assert second.wait(60) == 0, second.output
    check_runs(campaign, ["mb2"], "pernode")


def test_three_hosts_with_two_ranks_each_and_one_left_out(build: Build, tmp_path: Path) -> None:
    hosts = build(nodes=3)
    campaign = Campaign(hosts, tmp_path, slots=2)
    campaign.run(DUMMY)
    check_runs(campaign, ["base"], "pdsh", ranks=6)
    campaign.run({**DUMMY, "name": "fewer", "prefix": "fewer", "place": {**DUMMY["place"], "exclude": "node2@node3:0"}})
    nodes = campaign.nodes("fewer_r1").nodes
    assert [(node.name, node.ranks, node.first_rank) for node in nodes] == [("node1", 2, 0), ("node3", 1, 2)]


def test_the_head_may_be_one_of_the_hosts(hosts: Hosts, tmp_path: Path) -> None:
    campaign = Campaign(hosts, tmp_path)
    hosts.hostfile(tmp_path / "hostfile", 1, ["head", "node1"])
    campaign.run(DUMMY)
    check_runs(campaign, ["base"], "ssh")


def test_an_interrupted_campaign_goes_on_where_it_was(hosts: Hosts, tmp_path: Path) -> None:
    campaign = Campaign(hosts, tmp_path)
    plan = {**DUMMY, "settings": {"step_ms": 50}, "steps": 60, "repeats": 2}
    started = campaign.start(plan)
    campaign.wait_for_steps(started, ranks=2)
    started.signal(2)
    assert started.wait(90) == 130, started.output
    campaign.assert_nothing_left()
    campaign.run(plan)
    assert {run.folder.name for run in campaign.out.runs()} == {"base_r1", "base_r2"}


def test_variables_reach_every_rank_whatever_starts_it(hosts: Hosts, tmp_path: Path) -> None:
    campaign = Campaign(hosts, tmp_path)
    (tmp_path / "prints.py").write_text(
        "import os\nprint('MINE', os.environ.get('MY_OWN'), 'PLAN', os.environ.get('FROM_PLAN'), flush=True)\n"
    )
    plan = {**DUMMY, "workload": {"script": "prints.py", "reads": "none"}, "settings": {}, "env": {"FROM_PLAN": "two words"}}
    del plan["steps"]
    for via in ("pdsh", "ssh"):
        path = campaign.write({**plan, "output": f"out-{via}", "place": {**DUMMY["place"], "via": via}})
        done = hosts.run("head", ["seatrial", "run", path], cwd=tmp_path, env=CALLER_ENVIRONMENT, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        attempt = tmp_path / f"out-{via}" / "base_r1" / "attempt-1"
        for log in (attempt / "launcher.log", attempt / "nodes" / "node2" / "launcher.log"):
            assert "MINE from $HOME's shell PLAN two words" in log.read_text()
        for host in ("node1", "node2"):
            stored = json.loads((attempt / "nodes" / host / "environment.json").read_text())["variables"]
            assert {one["name"]: one["value"] for one in stored}["NCCL_ALGO"] == "Ring"


def test_the_command_by_hand_leaves_nothing_when_it_is_stopped(hosts: Hosts, tmp_path: Path) -> None:
    campaign = Campaign(hosts, tmp_path)
    started = campaign.start({**DUMMY, "steps": 100_000, "limits": {"run_s": 600}})
    campaign.wait_for_steps(started, ranks=2)
    started.signal(2)
    assert started.wait(90) == 130, started.output
    by_hand = hosts.start("head", ["bash", campaign.attempt().command])
    nodes = ("node1", "node2")
    campaign.wait(lambda: all(hosts.processes(node, "seatrial_workloads.dummy.train") for node in nodes), lambda: by_hand.output)
    by_hand.signal(2)
    by_hand.wait(60)
    campaign.wait(lambda: not any(hosts.processes(node, "seatrial_workloads.dummy.train") for node in nodes), lambda: by_hand.output, 20)
