"""Every command of the fine-tuning procedure, from the seed and from our own page, on CPU ranks with the tiny model.

A block is rewritten only where a machine without GPUs, Slurm or that file system needs it:

| what | becomes | why |
|---|---|---|
| `/mnt/sharedfs/nebius-demoday-test` | the procedure's folder | no such file system |
| `nvidia-smi -L` | `… || true` in the seed; ours has its own | no GPU |
| `$CUDA_VISIBLE_DEVICES` | empty | Slurm sets it |
| `torchrun` of the seed's script | with a free port | other tests run beside it |
| the seed's `scontrol`, `srun` and the lines around them | run by sbatch, in tests/slurm/test_sft.py | no Slurm |
| `--max_steps 10` | 3 | time |

MODEL, DATASET and SLURM_NTASKS_PER_NODE are what a reader without GPUs, and a job, have set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, parse
from tests.runbooks.blocks import NO_SEEDS, SEEDS

RUNBOOK = ROOT / "runbooks" / "sft"
SHARED = "/mnt/sharedfs/nebius-demoday-test"
TIMEOUT_S = 280
ON_SLURM = re.compile(r"^\s*(?:sbatch|srun|seatrial doctor)\b|\$\(s(?:run|control)\b|\$\(\$?\(?scontrol\b", re.MULTILINE)
REWRITES: tuple[tuple[str, str], ...] = (
    (r"^(nvidia-smi -L)$", r"\1 || true"),
    (r"\$CUDA_VISIBLE_DEVICES", ""),
    (r"^torchrun \\\n  --nproc_per_node=\$SLURM", r"torchrun --standalone \\\n  --nproc_per_node=$SLURM"),
    (r"--max_steps 10", "--max_steps 3"),
)
pytestmark = [pytest.mark.runbooks, pytest.mark.torch]


def rewritten(text: str, folder: Path) -> str:
    for pattern, to in REWRITES:
        text = re.sub(pattern, to, text, flags=re.MULTILINE)
    return text.replace(SHARED, str(folder))


def seed_blocks() -> list[Block]:
    found = sorted(SEEDS.glob("003_*.txt"))
    return [block for file in found for block in parse(file.read_text()).blocks if block.language == "bash"]


def own_blocks() -> list[Block]:
    return [block for block in parse((RUNBOOK / "README.md").read_text()).blocks if block.language == "bash"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The procedure's folder as a user has it in a checkout, with the environment where the original has it."""
    work = tmp_path / "runbooks" / "sft"
    shutil.copytree(RUNBOOK / "training", work / "training", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "plans").symlink_to(ROOT / "plans")
    (work / ".venv").symlink_to(sys.prefix)
    return work


def run(folder: Path, command: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    foreign = ("SEATRIAL_", "PYTEST_", "SLURM_", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    env |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200", **variables}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def metrics(folder: Path, run_name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "results" / "training" / run_name / "metrics.json").read_text())
    return found


@pytest.mark.skipif(not seed_blocks(), reason=NO_SEEDS)
def test_the_seeds_job_and_its_exports_run(folder: Path) -> None:
    """All blocks but those of two nodes, in the order of the document and in one shell, as a reader has them."""
    here = [block.text for block in seed_blocks() if not ON_SLURM.search(block.text)]
    assert (len(seed_blocks()), len(here)) == (7, 5)
    variables = {"MODEL": "tiny", "DATASET": "generated", "SLURM_NTASKS_PER_NODE": "2"}
    done = run(folder, rewritten("\n".join(here), folder), variables)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    found = metrics(folder, "sft_ddp_1node_smoke")
    assert (found["world_size"], found["model"], found["approx_tokens_per_rank"]) == (2, "tiny", 3 * 512)
    assert "NCCL_SOCKET_IFNAME eth0" in done.stdout and "GLOO_SOCKET_IFNAME eth0" in done.stdout


RANKS = {"sft_1gpu_smoke": 1, "sft_ddp_1node_smoke": 2, "sft_ddp_2node_lora_smoke": 2, "sft_fsdp_1node_smoke": 2}
STRATEGIES = {"sft_1gpu_smoke": "none", "sft_fsdp_1node_smoke": "fsdp"}


def own_commands() -> dict[str, str]:
    """The blocks that need no Slurm, by the run or plan they start; one that only reads a run's files goes with that run's."""
    found: dict[str, str] = {}
    for text in (block.text for block in own_blocks()[1:] if not block.why_not_run):
        name = re.search(r"--run_name (\w+)|RUNS_ROOT/(\w+)|plans/sft/([\w-]+)", text)
        # The others export what the network of two nodes needs.
        if name:
            key = next(filter(None, name.groups()))
            found[key] = found.get(key, "") + text
    return found


@pytest.mark.parametrize("name", own_commands())
def test_a_block_of_our_own_page_runs(folder: Path, name: str) -> None:
    """After the page's first block, in the same shell."""
    done = run(folder, rewritten(f"set -e\n{own_blocks()[0].text}\n{own_commands()[name]}", folder), {})
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-6000:]
    assert "train_sft_ddp_min.py can start: model tiny, dataset generated" in output
    if name not in RANKS:
        assert "PASS" in output
        return
    found = metrics(folder, name)
    assert (found["world_size"], found["strategy"]) == (RANKS[name], STRATEGIES.get(name, "ddp"))


def test_every_block_of_our_own_page_runs_here_or_on_slurm() -> None:
    assert {*own_commands()} == {*RANKS, "base-cpu"}
    for block in own_blocks():
        assert bool(block.why_not_run) == bool(ON_SLURM.search(block.text)), block.text
        assert not block.why_not_run or block.shown_by == ["tests/slurm/test_sft.py"]


@pytest.mark.parametrize("script", ["train_sft_min", "train_sft_ddp_lora_multinode"])
def test_without_a_network_and_weights_nothing_starts(folder: Path, script: str) -> None:
    done = run(folder, f"source training/env.sh && torchrun --standalone --nproc_per_node=1 training/src/{script}.py", {})
    assert done.returncode != 0
    assert "use model=tiny" in done.stderr and "MODEL=tiny DATASET=generated" in done.stderr
    assert not (folder / "results").exists()
