"""The jobs of the fine-tuning procedure, submitted as they are: the original's #SBATCH lines on nodes with 64 CPUs and 8 GPUs.

Its shared folder, /mnt/sharedfs/nebius-demoday-test, is a temporary one that every host mounts there. The documented variables make the
training small: the tiny model, generated data, a rank or two on each node.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seatrial.records.outcome import Outcome
from tests.cluster.running import inside
from tests.docs.pages import ROOT, parse
from tests.runbooks.blocks import NO_SEEDS, SEEDS
from tests.slurm.campaigns import ONE_NODE, JobCampaign
from tests.slurm.controller import SlurmCluster
from tests.waiting import wait_until

SHARED = "/mnt/sharedfs/nebius-demoday-test"
SMALL = {"MODEL": "tiny", "DATASET": "generated", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
SEED = next(iter(sorted(SEEDS.glob("003_*.txt"))), None)
TIMEOUT_S = 240.0
COMPLETED = "COMPLETED"


@dataclass(frozen=True)
class Site:
    """The cluster, and the procedure's folder on its file server."""

    slurm: SlurmCluster
    folder: Path

    def submit(self, script: str, variables: dict[str, str], *options: str, fails: bool = False) -> tuple[str, str, str]:
        """A job to its end: its number, its output and its errors."""
        command = ["sbatch", "--parsable", *options, script]
        job = self.slurm.hosts.run("head", command, cwd=SHARED, env=variables, check=True).stdout.strip()
        state = self.wait(job)
        output, errors = (self.log(job, suffix) for suffix in ("out", "err"))
        assert (state != COMPLETED) == fails, f"{state}\n{output[-4000:]}\n{errors[-6000:]}"
        return job, output, errors

    def wait(self, job: str) -> str:
        """How it ended. `sbatch --wait` would look for that at ever longer intervals."""

        def ended() -> str:
            time.sleep(0.2)
            state = self.slurm.state(job)
            return "" if state in ("PENDING", "RUNNING", "COMPLETING") else state

        return wait_until(ended, f"job {job}", TIMEOUT_S)

    def log(self, job: str, suffix: str) -> str:
        return "".join(path.read_text() for path in (self.folder / "slurm-logs").glob(f"*-{job}.{suffix}"))

    def results(self, run: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of a run: its flags and its metrics."""
        folder = self.folder / "results" / "training" / run
        args, metrics = (json.loads((folder / f"{name}.json").read_text()) for name in ("run_args", "metrics"))
        return args, metrics


@pytest.fixture(scope="module")
def site(slurm_cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("sharedfs")
    shutil.copytree(ROOT / "runbooks" / "sft" / "training", folder / "training")
    (folder / "slurm-logs").mkdir()
    (folder / ".venv").symlink_to(sys.prefix)
    # A file system of its own: /mnt belongs to this machine.
    mount = f"mount -t tmpfs tmpfs /mnt; mkdir -p {SHARED}; mount --bind {folder} {SHARED}"
    for host in slurm_cluster.hosts.names:
        inside(slurm_cluster.hosts.state, host, ["sh", "-ec", mount])
    return Site(slurm_cluster, folder)


def assert_trained(site: Site, run: str, world_size: int, **expected: object) -> None:
    args, metrics = site.results(run)
    assert (args["run_name"], args["model"], args["max_steps"], args["seq_len"]) == (run, "tiny", 10, 512)
    tokens = {"approx_tokens_per_rank": 10 * 512, "world_size": world_size, "steps": 10, "samples_disjoint": True}
    for name, value in {**tokens, "model": "tiny", "dataset": "generated", "use_lora": True, **expected}.items():
        assert metrics[name] == value, f"{name} is {metrics[name]}"
    assert metrics["wall_time_s"] > 0 and metrics["startup_s"] > 0 and metrics["tokens_per_s"] > 0


def test_the_job_on_one_node(site: Site) -> None:
    job, output, _ = site.submit("training/slurm/train_ddp_1node.sbatch", {**SMALL, "NPROC_PER_NODE": "2"})
    assert (site.folder / "slurm-logs" / f"train_ddp_1node-{job}.out").is_file()
    assert (site.folder / "slurm-logs" / f"train_ddp_1node-{job}.err").is_file()
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7" in output and "no nvidia-smi: no GPU here" in output
    assert_trained(site, "sft_ddp_1node_smoke", 2, gradient_checkpointing=True)


def test_the_job_on_two_nodes(site: Site) -> None:
    job, output, _ = site.submit("training/slurm/train_ddp_2node.sbatch", {**SMALL, "NPROC_PER_NODE": "1"})
    assert (site.folder / "slurm-logs" / f"train_ddp_2node_lora-{job}.out").is_file()
    assert (site.folder / "slurm-logs" / f"train_ddp_2node_lora-{job}.err").is_file()
    head, port = site.slurm.hosts.address("node1"), 20000 + int(job)
    assert re.findall(r"^RDZV_ENDPOINT (.*)$", output, re.MULTILINE) == [f"{head}:{port}"] * 2
    assert set(re.findall(r"^host (.*)$", output, re.MULTILINE)) == {"node1", "node2"}
    assert_trained(site, "sft_ddp_2node_lora_smoke", 2, gradient_checkpointing=False)


def slurm_blocks() -> list[str]:
    """The page's blocks that are run here."""
    return [block.text for block in parse((ROOT / "runbooks" / "sft" / "README.md").read_text()).blocks if block.why_not_run]


def test_the_pages_line_for_another_cluster_with_the_shared_root_elsewhere(site: Site, tmp_path: Path) -> None:
    """`training/` is where sbatch is typed, and nothing of it below SHARED_ROOT."""
    (block,) = [text for text in slurm_blocks() if "--chdir" in text]
    (tmp_path / ".venv").symlink_to(sys.prefix)
    variables = {**SMALL, "NPROC_PER_NODE": "1", "SHARED_ROOT": str(tmp_path)}
    command = ["bash", "-ec", block.replace("sbatch ", "sbatch --parsable ")]
    job = site.slurm.hosts.run("head", command, cwd=SHARED, env=variables, check=True).stdout.strip()
    state = site.wait(job)
    logs = "".join(path.read_text() for path in (tmp_path / "slurm-logs").iterdir())
    assert state == COMPLETED, logs[-4000:]
    assert (tmp_path / "results" / "training" / "sft_ddp_1node_smoke" / "metrics.json").is_file()


def test_every_block_of_the_page_for_slurm_is_run_here() -> None:
    commands = [
        line.split("training/")[-1] for text in slurm_blocks() for line in text.splitlines() if line.startswith(("sbatch", "seatrial"))
    ]
    assert commands == [
        "slurm/train_ddp_1node.sbatch",
        "slurm/train_ddp_1node.sbatch",
        "slurm/train_ddp_2node.sbatch",
        "seatrial doctor ../../plans/sft/scaling.yaml && seatrial run ../../plans/sft/scaling.yaml",
    ]


# One CPU rank a node with the tiny model, once each: the rest is scaling.yaml's own.
MADE_SMALL = (
    "settings.model=tiny", "settings.dataset=generated", "settings.subset_size=64", "settings.seq_len=64", "settings.device=cpu",
    "settings.precision=fp32", "place.gpus_per_node=1", "repeats=1", "steps=12", "env.OMP_NUM_THREADS='1'",
)  # fmt: skip


def test_scaling_from_one_node_to_two(campaign: JobCampaign) -> None:
    (block,) = [text for text in slurm_blocks() if "scaling.yaml" in text]
    options = " ".join(f"--set {change}" for change in (*MADE_SMALL, f"settings.tok_cache_dir={campaign.folder}/tokenized"))
    command = block.replace("../../plans", str(ROOT / "plans")).replace("scaling.yaml", f"scaling.yaml {options}")
    command = f"{command.strip()} --out {campaign.folder}/out"
    done = campaign.hosts.run("head", ["bash", "-ec", command], cwd=campaign.folder, env=SMALL, timeout=TIMEOUT_S)
    text = done.stdout + done.stderr
    # One repeat proves nothing about the efficiency: the verdict is not judged here, its two lines are.
    assert campaign.outcome("nodes1_r1").outcome is Outcome.OK and campaign.outcome("nodes2_r1").outcome is Outcome.OK, text[-4000:]
    findings = json.loads(campaign.out.verdict.read_text())["findings"]
    assert {"scaling_efficiency", "startup_s"} <= {finding["criterion"]["metric"] for finding in findings}, findings
    metrics = json.loads((campaign.attempt("nodes2_r1").folder / "metrics.json").read_text())
    assert metrics["world_size"] == 2 and metrics["samples_disjoint"] is True


REFUSALS = {
    "no weights": ("train_ddp_1node", {"HF_HUB_OFFLINE": "1"}, "MODEL=tiny DATASET=generated"),
    "memory": (
        "train_ddp_2node",
        {**SMALL, "MODEL": "mistral-7b", "GPU": "T4-16GB"},
        "will not fit: 18.3 of 14.5 GiB (T4-16GB)",
    ),
    "no such interface": ("train_ddp_2node", {**SMALL, "NIC": "ib9"}, "node1 has no IPv4 address on 'ib9': set NIC to one of lo 127.0.0.1"),
    "no environment": ("train_ddp_2node", {**SMALL, "VENV": "/nowhere"}, "VENV is /nowhere, and there is no /nowhere/bin/activate"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_a_job_that_cannot_train_ends_before_its_first_rank(site: Site, why: str) -> None:
    script, variables, sentence = REFUSALS[why]
    _, output, errors = site.submit(f"training/slurm/{script}.sbatch", variables, fails=True)
    assert sentence in errors, errors
    assert "torch" not in output + errors


def test_a_plan_without_weights_is_refused_before_a_job_where_nodes_share_the_cache_and_else_in_the_job(campaign: JobCampaign) -> None:
    plan = {
        **ONE_NODE,
        "workload": "sft",
        "settings": {"model": "mistralai/Mistral-7B-v0.1", "dataset": "generated"},
        "launcher": "torchrun",
        "env": {"HF_HOME": str(campaign.folder / "hf"), "HF_HUB_OFFLINE": "1"},
    }
    sentence = "model 'mistralai/Mistral-7B-v0.1' must be downloaded, and HF_HUB_OFFLINE is set"
    (campaign.folder / "site.yaml").write_text(f"name: test\nshared: {campaign.folder}\n")
    text = campaign.run(plan, code=2)
    assert "refused before anything was started" in text and sentence in text and not campaign.out.runs()
    # Without a shared root, on an ordinary file system, only the node can tell.
    (campaign.folder / "site.yaml").unlink()
    campaign.run(plan, code=2)
    outcome = campaign.outcome("base_r1")
    assert outcome.detail.startswith(f"refused before a rank was started: {sentence}")
    assert (outcome.signature, outcome.host) == ("trainer_refused", campaign.start_record(campaign.attempt()).nodes[0])
    assert not campaign.attempt().launcher_log.exists()


def original_job() -> str:
    """The original's own lines for two nodes in one script, with one rank a node, as 8 of them need 8 GPUs."""
    assert SEED is not None
    blocks = [block.text for block in parse(SEED.read_text()).blocks if block.language == "bash"]
    network, address, launch = (next(text for text in blocks if word in text) for word in ("GLOO_USE_IPV6", "RDZV_ENDPOINT", "--node_rank"))
    job = (ROOT / "runbooks" / "sft" / "training" / "slurm" / "train_ddp_2node.sbatch").read_text()
    options = [line for line in job.splitlines() if line.startswith("#SBATCH")]
    return "\n".join(
        ["#!/bin/bash", *options, "set -euo pipefail", network, address, launch.replace("--nproc_per_node=8", "--nproc_per_node=1")]
    )


@pytest.mark.skipif(SEED is None, reason=NO_SEEDS)
def test_the_originals_own_lines_for_two_nodes(site: Site) -> None:
    (site.folder / "original.sbatch").write_text(original_job())
    shutil.rmtree(site.folder / "results", ignore_errors=True)
    site.submit("original.sbatch", SMALL)
    assert_trained(site, "sft_ddp_2node_lora_smoke", 2, gradient_checkpointing=False)
