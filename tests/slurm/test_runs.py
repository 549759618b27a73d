"""Runs as jobs, from the plan to the verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.paths import CampaignPaths
from seatrial.records.outcome import Cause, Outcome
from tests.slurm.campaigns import ONE_NODE, JobCampaign


def test_a_run_is_a_job(campaign: JobCampaign) -> None:
    """In a folder with every character that a shell, sbatch or a pattern of file names would take for its own."""
    campaign.folder = campaign.folder / "a\\b $c [1-2]"
    campaign.folder.mkdir()
    campaign.out = CampaignPaths(campaign.folder / "out")
    text = campaign.run(ONE_NODE)
    assert "PASS" in text
    attempt = campaign.attempt()
    record = campaign.start_record(attempt)
    assert record.job == campaign.job() and record.nodes[0] in campaign.hosts.nodes
    shown = subprocess.run(["shellcheck", str(attempt.job_script)], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout
    campaign.assert_nothing_left()
    # Finished: nothing is submitted again.
    campaign.run(ONE_NODE)
    assert not campaign.attempt(number=2).folder.exists()


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ({"partition": "gpus"}, "'gpus' is unknown; did you mean 'gpu'"),
        ({"nodes": 3}, "3 nodes, and gpu has 2"),
        ({"gpus_per_node": 9}, "9 GPUs a node, and gpu has 8"),
        ({"constraint": "h100"}, "Invalid feature specification"),
    ],
)
def test_what_no_job_can_have_is_refused_before_any_is_submitted(campaign: JobCampaign, place: dict[str, Any], problem: str) -> None:
    text = campaign.run({**ONE_NODE, "place": {**ONE_NODE["place"], **place}}, code=2)
    assert problem in text and not campaign.out.runs()


def test_without_slurm_or_a_shared_folder_nothing_is_submitted(campaign: JobCampaign) -> None:
    path = f"PATH={Path(sys.executable).parent}"
    done = campaign.hosts.run("head", ["env", path, "seatrial", "run", campaign.write(ONE_NODE), "--out", "/dev/shm/out"])
    text = done.stdout + done.stderr
    assert done.returncode == 2 and "sbatch, srun, squeue, scancel, scontrol, sinfo not in PATH" in text
    assert "/dev/shm/out is on /dev/shm, in this host's memory" in text
    sweep = ["seatrial", "sweep", "--each-node", "--partition", "gpus", "--", "python", "train.py"]
    typed = campaign.hosts.run("head", ["env", path, *sweep], cwd=campaign.folder)
    assert typed.returncode == 1 and "sinfo is not in PATH" in typed.stderr
    typed = campaign.hosts.run("head", sweep, cwd=campaign.folder)
    assert typed.returncode == 1 and "the cluster has no such partition; did you mean 'gpu'?" in typed.stderr


def test_a_folder_that_no_node_sees_is_refused_before_any_job(campaign: JobCampaign) -> None:
    """Its file system is an ordinary one: only a node can tell."""
    script = {key: value for key, value in ONE_NODE.items() if key not in ("settings", "steps")}
    (campaign.folder / "train.py").write_text("")
    campaign.hosts.run("head", ["mount", "--bind", campaign.folder, "/mnt"], check=True)
    try:
        text = campaign.run(ONE_NODE, "--out", "/mnt/out", code=2)
        hidden = campaign.run({**script, "workload": {"script": "/mnt/train.py"}}, code=2)
        missing = campaign.run({**script, "workload": {"script": "nowhere.py"}}, code=2)
    finally:
        campaign.hosts.run("head", ["umount", "/mnt"], check=True)
    assert "does not see /mnt/out (" in text and "it is this host's own" in text
    assert "does not have the script /mnt/train.py" in hidden and "script nowhere.py: no such file in" in missing
    assert not list((campaign.folder / "out").glob("*/attempt-*"))


TINY_LM: dict[str, Any] = {
    **ONE_NODE,
    "workload": "tiny_lm",
    "settings": {"device": "cpu"},
    "launcher": "torchrun",
    "steps": 12,
    "limits": {"start_s": 200, "run_s": 250},
}


@pytest.mark.parametrize("nodes", [1, 2])
def test_tiny_lm_by_torchrun_with_gloo(campaign: JobCampaign, nodes: int) -> None:
    place = {**ONE_NODE["place"], "nodes": nodes, "ranks": 2, "gres": "gpu:8", "cpus_per_task": 64, "interface": "eth0"}
    text = campaign.run({**TINY_LM, "place": place})
    assert "PASS" in text
    record = campaign.nodes()
    assert [(node.name, node.ranks) for node in record.nodes] == ([("node1", 1), ("node2", 1)] if nodes == 2 else [("node1", 2)])
    assert record.via == ("srun" if nodes == 2 else "here")
    assert record.master_addr == (campaign.hosts.address("node1") if nodes == 2 else "127.0.0.1")
    assert len(campaign.attempt().all_events()) == 2
    command = campaign.attempt().node("node1").command.read_text()
    assert f"--rdzv-id {campaign.job()} " in command
    if nodes == 2:
        hosts = json.loads(campaign.attempt().provenance.read_text())["hosts"]
        assert [hosts[name]["host"] for name in ("node1", "node2")] == ["node1", "node2"]
        shown = campaign.attempt().job_log.read_text()
        for name in ("node1", "node2"):
            nic = f"rendezvous {record.master_addr}:{record.master_port}, NIC eth0 {campaign.hosts.address(name)}"
            assert f"{name}: 1 ranks from {int(name[-1]) - 1}, {nic}" in shown, shown


SLOW_NODE = """
import os, socket, time
for step in range(30):
    time.sleep(0.15 if socket.gethostname() == "node2" else 0.05)
    print(f"step: {step} loss: 1.0", flush=True)
"""


def test_each_node_of_the_partition_and_which_is_slow(campaign: JobCampaign) -> None:
    (campaign.folder / "train.py").write_text(SLOW_NODE)
    options = ["--each-node", "--partition", "gpu", "--repeats", "2", "--out", "out"]
    argv = ["seatrial", "sweep", *options, "--", "python", "train.py"]
    done = campaign.hosts.run("head", argv, cwd=campaign.folder, timeout=200.0)
    assert done.returncode == 0, done.stdout + done.stderr
    ranked = [group["group"] for group in campaign.summary()["ranking"]["groups"]]
    assert [name.partition("node")[2].strip("-_") for name in ranked] == ["node1", "node2"]
    for run in campaign.out.runs():
        assert campaign.start_record(run.attempt(1)).nodes[0] in run.folder.name
    slow = next(line for line in done.stdout.splitlines() if line.startswith("slow node"))
    assert "node2, 6" in slow and "% slower than node1 (95 %: " in slow
    assert "different conditions" not in done.stdout


SITE = """
name: lab
interface: eth0
env: {NCCL_IB_DISABLE: "1"}
shared: SHARED
activate: ["FROM_THE_SITE=$(hostname)", "export FROM_THE_SITE"]
slurm: {partition: gpu}
"""


def test_the_facts_of_a_site_reach_the_ranks_of_every_node(campaign: JobCampaign) -> None:
    (campaign.folder / "site.yaml").write_text(SITE.replace("SHARED", str(campaign.folder)))
    (campaign.folder / "train.py").write_text("import os\nprint(os.environ['NCCL_IB_DISABLE'], os.environ['FROM_THE_SITE'])\n")
    plan = {key: value for key, value in ONE_NODE.items() if key not in ("settings", "steps", "place")}
    campaign.run({**plan, "workload": {"script": "train.py"}, "place": {"nodes": 2}}, "--place", "slurm")
    for name, log in (("node1", campaign.attempt().launcher_log), ("node2", campaign.attempt().node("node2").launcher_log)):
        assert f"1 {name}" in log.read_text()
    shown = subprocess.run(["shellcheck", str(campaign.attempt().job_script)], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout
    text = campaign.run({**plan, "workload": {"script": "train.py"}}, "--place", "slurm", "--out", "/var/tmp/elsewhere", code=2)
    assert "/var/tmp/elsewhere is not below" in text


@pytest.mark.parametrize("line", ["source /nowhere/bin/activate", 'test "$(hostname)" != node2'])
def test_a_line_of_the_site_that_fails_is_the_cause(campaign: JobCampaign, line: str) -> None:
    """On the first node before anything has begun; on another when its rank is to be started."""
    (campaign.folder / "site.yaml").write_text(f"name: lab\nactivate: ['{line}']\nslurm: {{partition: gpu}}\n")
    campaign.run({**ONE_NODE, "place": {**ONE_NODE["place"], "nodes": 2}}, code=None)
    outcome = campaign.outcome()
    named = f"item 1 of activate in {campaign.folder / 'site.yaml'} failed with exit code 1"
    assert outcome.outcome is Outcome.FAILED and named in outcome.detail, outcome
    if "nowhere" in line:
        assert "/nowhere/bin/activate: No such file or directory" in outcome.detail and outcome.cause is Cause.JOB_FAILED
        assert "/nowhere/bin/activate: No such file or directory" in campaign.attempt().job_log.read_text()
    else:
        assert (outcome.signature, outcome.host) == ("activate_failed", "node2")


def test_doctor_tries_the_cluster_with_small_jobs(campaign: JobCampaign) -> None:
    """With the environment of jobs: HF_HOME is the site's, and RUNS_ROOT is set by its lines."""
    place = {**ONE_NODE["place"], "nodes": 2, "gpus_per_node": 8, "cpus_per_task": 64, "interface": "eth0"}
    plan = campaign.write({**ONE_NODE, "place": place})
    site = f"name: lab\nenv: {{HF_HOME: /dev/shm}}\nactivate: ['export RUNS_ROOT={campaign.folder}']\n"
    (campaign.folder / "site.yaml").write_text(site)
    argv = ["seatrial", "doctor", plan, "--place", "slurm"]
    variables = {"HF_HOME": "/tmp"}
    campaign.hosts.run("node2", ["mount", "-t", "tmpfs", "scratch", "/mnt"], check=True)
    try:
        done = campaign.hosts.run("head", argv, cwd=campaign.folder, env=variables, timeout=120.0)
    finally:
        campaign.hosts.run("node2", ["umount", "/mnt"], check=True)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    for found in ("node1, node2 in", "seen by 2 nodes and here", "8 on each node", "both ran", "is gone", "InfiniBand", "eth0"):
        assert found in text, text
    nics = [f"{name} eth0 {campaign.hosts.address(name)}" for name in ("node1", "node2")]
    assert ", ".join(nics) in text and f"RUNS_ROOT on all nodes  {campaign.folder}, shared by all" in text
    # Each node has a /dev/shm of its own.
    assert "node1: /dev/shm is its own; node2: /dev/shm is its own" in text
    assert "mounts: node1 nothing more, node2 /mnt tmpfs scratch" in text
    found = json.loads((campaign.folder / "discovered_environment.json").read_text())["nodes"]
    assert {"os", "cpu", "memory", "gpus", "driver", "nics", "mounts", "slurm", "python", "packages"} <= found["node1"].keys()
    assert not list(campaign.folder.glob(".seatrial-trial-*"))


def test_doctor_with_a_plan_of_one_node_and_a_site_that_cannot_be_activated(campaign: JobCampaign) -> None:
    """What nodes share is tried on two of them, whatever the plan has."""
    argv = ["seatrial", "doctor", campaign.write(ONE_NODE), "--place", "slurm"]
    done = campaign.hosts.run("head", argv, cwd=campaign.folder, timeout=120.0)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    for found in ("node1, node2 in", "seen by 2 nodes and here", "by the driver node1 0, node2 0"):
        assert found in text, text
    (campaign.folder / "site.yaml").write_text("name: lab\nactivate: ['export A=1', 'source /nowhere/bin/activate']\n")
    done = campaign.hosts.run("head", argv, cwd=campaign.folder, timeout=120.0)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and "item 2 of activate in" in text and "/nowhere/bin/activate: No such file or directory" in text, text
