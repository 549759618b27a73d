"""Other launchers than torchrun within a job, and agents in a container."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.campaigns import ONE_NODE, JobCampaign

SCRIPT: dict[str, Any] = {key: value for key, value in ONE_NODE.items() if key not in ("settings", "steps")}

# One step of the real engine, over gloo; the extension for shared memory would be compiled first.
ENGINE = """
import argparse
import deepspeed
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
parser.parse_args()
deepspeed.init_distributed(dist_backend="gloo", verbose=False)
model = torch.nn.Linear(4, 1)
config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 0}}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
for step in range(12):
    loss = engine(torch.ones(2, 4)).sum()
    engine.backward(loss)
    engine.step()
    print(f"step: {step} loss: {loss.item():.4f}", flush=True)
print(f"rank {torch.distributed.get_rank()} of {torch.distributed.get_world_size()} is done", flush=True)
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_deepspeed_one_runner_a_node_without_ssh(campaign: JobCampaign, nodes: int) -> None:
    pytest.importorskip("deepspeed")
    (campaign.folder / "train.py").write_text(ENGINE)
    place = {**ONE_NODE["place"], "nodes": nodes, "ranks": 2, "interface": "eth0"}
    limits = {"start_s": 200, "run_s": 250}
    plan = {**SCRIPT, "workload": {"script": "train.py"}, "launcher": "deepspeed", "place": place, "limits": limits}
    campaign.run({**plan, "env": {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}})
    attempt = campaign.attempt()
    names = ("node1", "node2")[:nodes]
    for rank, name in enumerate(names):
        assert f"--no_ssh --node_rank {rank}" in attempt.node(name).command.read_text()
    texts = [path.read_text() for path in sorted(attempt.folder.rglob("ranks/**/*")) if path.is_file()]
    assert all(any(f"rank {rank} of 2 is done" in text for text in texts) for rank in (0, 1)), texts


def test_a_command_runs_on_the_only_node_and_not_on_two(campaign: JobCampaign) -> None:
    command = {"script": "bash", "args": ["-c", "for i in $(seq 12); do echo step: $i loss: 1.0; sleep 0.05; done; hostname"]}
    plan = {**SCRIPT, "workload": command, "launcher": "command"}
    campaign.run(plan)
    assert campaign.log().splitlines()[-1] in ("node1", "node2")
    text = campaign.run({**plan, "place": {**ONE_NODE["place"], "nodes": 2}}, code=1)
    assert "'command' starts one program on one host" in text and not campaign.attempt(number=2).folder.exists()


CONTAINER = """
name: lab
container: {image: "registry#lab/torch:1", mounts: ["/data:/data:ro"]}
"""
# Stands in for the plugin, which is in no package here: it takes pyxis's options and starts the task without an image.
SRUN = """#!/bin/bash
if [ "$1" = --help ]; then echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"; exit; fi
kept=()
for argument in "$@"; do
  case "$argument" in --container-*) echo "$(hostname) $argument" >> "SEEN" ;; *) kept+=("$argument") ;; esac
done
exec /usr/bin/srun "${kept[@]}"
"""


def test_every_nodes_agent_is_started_in_the_sites_container(campaign: JobCampaign) -> None:
    (campaign.folder / "site.yaml").write_text(CONTAINER)
    plan = {**ONE_NODE, "place": {**ONE_NODE["place"], "nodes": 2}}
    text = campaign.run(plan, code=2)
    assert "srun has no --container-image" in text and not campaign.out.runs()
    seen, programs = campaign.folder / "seen", campaign.folder / "programs"
    programs.mkdir()
    (programs / "srun").write_text(SRUN.replace("SEEN", str(seen)))
    (programs / "srun").chmod(0o755)
    path = f"PATH={programs}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = campaign.hosts.run("head", ["env", path, "seatrial", "run", campaign.write(plan)], cwd=campaign.folder, timeout=120.0)
    assert done.returncode == 0, done.stdout + done.stderr
    options = seen.read_text().splitlines()
    assert sum("--container-image=registry#lab/torch:1" in line for line in options) == 2
    out, own = campaign.out.folder, campaign.folder
    assert f"--container-mounts={out}:{out},{own}:{own},/data:/data:ro" in seen.read_text()
    assert campaign.nodes().via == "srun"
    assert json.loads(campaign.attempt().spec.read_text())["place"]["slurm"]["container"]["image"] == "registry#lab/torch:1"
