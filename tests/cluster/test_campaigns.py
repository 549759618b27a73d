"""Whole campaigns on two and three hosts, by every way of starting them: the figures, and what each host left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.records.outcome import Outcome
from tests.cluster.campaigns import DUMMY, Campaign
from tests.cluster.conftest import Build
from tests.cluster.hosts import Hosts

pytestmark = pytest.mark.timeout(400)

STAGE1: dict[str, Any] = {
    "name": "stage1-hosts",
    "workload": "contrastive",
    "settings": {
        "device": "cpu",
        "speech_model": "tiny",
        "text_model": "tiny",
        "dataset_root": "speech",
        "dataset_manifest_path": "speech/manifest.tsv",
        "fixed_slice_s": 1.0,
        "num_workers": 0,
    },
    "steps": 6,
    "env": {"OMP_NUM_THREADS": 1},
    "limits": {"start_s": 200, "run_s": 300},
    "output": "out",
}
OF_CALLER = {"MY_OWN": "from $HOME's shell", "NCCL_ALGO": "Ring"}
ZERO = {"zero_stage": {"label": "z", "values": [0, 1]}}


@pytest.fixture
def stage1(hosts: Hosts, tmp_path: Path) -> Campaign:
    return with_speech(Campaign(hosts, tmp_path))


def with_speech(campaign: Campaign) -> Campaign:
    """A little speech that all hosts see."""
    words = ["seatrial", "prepare", "librispeech", "--synthetic", "40", "--output-root", "speech"]
    campaign.hosts.run("head", words, cwd=campaign.folder, timeout=120, check=True)
    return campaign


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


def test_a_stage_1_sweep_by_deepspeed_and_pdsh(stage1: Campaign) -> None:
    settings = {**STAGE1["settings"], "engine": "deepspeed"}
    place = {"kind": "hostfile", "hostfile": "hostfile", "via": "pdsh"}
    plan = {**STAGE1, "settings": settings, "launcher": "deepspeed", "place": place, "axes": ZERO}
    stage1.run(plan, "--set", "settings.micro_batch=4", timeout=380)
    check_runs(stage1, ["z0", "z1"], "pdsh")


def test_a_stage_1_sweep_by_torchrun_and_ssh_on_three_hosts(build: Build, tmp_path: Path) -> None:
    stage1 = with_speech(Campaign(build(nodes=3), tmp_path))
    place = {"kind": "hostfile", "hostfile": "hostfile", "via": "ssh", "include": "node1@node2@node3:0"}
    axes = {"micro_batch": {"label": "mb", "values": [2, 4]}}
    stage1.run({**STAGE1, "launcher": "torchrun", "place": place, "axes": axes}, timeout=380)
    check_runs(stage1, ["mb2", "mb4"], "ssh", ranks=3)


@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun"])
def test_a_stage_1_sweep_by_one_command_on_each_node(stage1: Campaign, launcher: str) -> None:
    engine = "deepspeed" if launcher == "deepspeed" else "ddp"
    plan = {
        **STAGE1,
        "settings": {**STAGE1["settings"], "engine": engine},
        "launcher": launcher,
        "axes": {"micro_batch": {"label": "mb", "values": [2, 4]}},
        "place": {"kind": "pernode", "nodes": 2, "ranks": 2},
    }
    where = ["--master-addr", "node1", "--master-port", "29500"]
    for host in ("node1", "node2"):
        # No ssh at all: nobody could use it.
        stage1.hosts.refuse_ssh(host)
    share = stage1.start(plan, "--node-rank", "1", *where, host="node2")
    first = stage1.start(plan, "--node-rank", "0", *where, host="node1")
    assert first.wait(380) == 0, first.output + share.output
    assert share.wait(60) == 0, share.output
    check_runs(stage1, ["mb2", "mb4"], "pernode")


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
    (tmp_path / "tells.py").write_text(
        "import os\nprint('MINE', os.environ.get('MY_OWN'), 'PLAN', os.environ.get('OF_PLAN'), flush=True)\n"
    )
    plan = {**DUMMY, "workload": {"script": "tells.py", "reads": "none"}, "settings": {}, "env": {"OF_PLAN": "two words"}}
    del plan["steps"]
    for via in ("pdsh", "ssh"):
        path = campaign.write({**plan, "output": f"out-{via}", "place": {**DUMMY["place"], "via": via}})
        done = hosts.run("head", ["seatrial", "run", path], cwd=tmp_path, env=OF_CALLER, timeout=120)
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
