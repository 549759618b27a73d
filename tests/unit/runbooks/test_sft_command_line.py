"""The fine-tuning scripts' flags: defaults, truth values, refusals, and the settings they stand for. Nothing here imports torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.errors import SeatrialError
from seatrial_runbooks.sft.command_line import SCRIPTS, check, parser_of, settings_of
from seatrial_workloads.sft.settings import Settings
from tests.runbooks.blocks import NO_SEEDS, ROOT, SEEDS

TRAINING = ROOT / "runbooks" / "sft" / "training"
MULTINODE = "train_sft_ddp_lora_multinode"
SEED = next(iter(sorted(SEEDS.glob("003_*.txt"))), None)


def settings(script: str, *argv: str, env: dict[str, str] | None = None) -> Settings:
    flags = vars(parser_of(SCRIPTS[script], env or {}).parse(argv))
    del flags["check"]
    return settings_of(SCRIPTS[script], flags)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("train_sft_min", {"run_name": "sft_1gpu_smoke", "grad_accum": 4, "lr": 2e-5, "use_lora": False}),
        ("train_sft_ddp_min", {"grad_accum": 1, "use_lora": True, "gradient_checkpointing": True, "strategy": "ddp"}),
        (MULTINODE, {"use_lora": False, "gradient_checkpointing": False, "precision": "bf16", "lora_dropout": 0.05}),
        ("train_sft_fsdp_min", {"strategy": "fsdp", "lr": 2e-5, "precision": "bf16", "gradient_checkpointing": False}),
    ],
)
def test_the_defaults_are_the_original_scripts(script: str, expected: dict[str, Any]) -> None:
    made = settings(script)
    common = {"model": "mistralai/Mistral-7B-v0.1", "dataset": "yahma/alpaca-cleaned", "steps": 10, "seq_len": 512, "micro_batch": 1}
    for name, value in {**common, "seed": 42, "subset_size": 2048, "checkpointing_reentrant": False, **expected}.items():
        assert getattr(made, name) == value, name


def test_flags_and_variables_become_settings() -> None:
    flags = "--max_steps 3 --bsz 2 --bf16 False --gradient_checkpointing true --use_lora --lora_r 4 --tok_cache_dir here --seed 0"
    made = settings(MULTINODE, *flags.split(), env={"MODEL": "tiny", "DATASET": "generated"})
    assert (made.steps, made.micro_batch, made.precision, made.gradient_checkpointing) == (3, 2, "fp32", True)
    assert (made.use_lora, made.lora_r, made.tok_cache_dir, made.model, made.dataset, made.seed) == (
        True,
        4,
        "here",
        "tiny",
        "generated",
        0,
    )
    assert settings("train_sft_fsdp_min", "--activation_ckpt").gradient_checkpointing


@pytest.mark.parametrize(
    ("script", "argv", "message"),
    [
        (MULTINODE, "--bf16 Ture", "argument --bf16: 'Ture' is neither True nor False"),
        (MULTINODE, "--gradient_checkpointing 1", "argument --gradient_checkpointing: '1' is neither True nor False"),
        (MULTINODE, "--grad_acum 4", "unknown argument '--grad_acum': did you mean '--grad_accum'?"),
        (MULTINODE, "--max_steps 0", "argument --max_steps: '0' is not a count"),
        (MULTINODE, "--lr fast", "argument --lr: 'fast' is not a number"),
        (MULTINODE, "--lora_dropout 1", "lora_dropout is 1.0; it must be at least 0 and below 1"),
        (MULTINODE, "--run_name a/b", "run_name is 'a/b'; expected the name of one folder"),
        (MULTINODE, "--use_lora --gradient_checkpointing True --checkpointing_reentrant True", "ready only once"),
        ("train_sft_min", "--use_lora", "unknown argument '--use_lora'"),
        ("train_sft_min", "--recipe sead", "argument --recipe: invalid choice: 'sead'"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(script: str, argv: str, message: str) -> None:
    with pytest.raises(SeatrialError, match=re.escape(message)):
        settings(script, *argv.split())


def test_re_entrant_checkpointing_is_taken_beside_a_static_graph() -> None:
    flags = "--use_lora --gradient_checkpointing True --checkpointing_reentrant True --ddp_static_graph True"
    assert settings(MULTINODE, *flags.split()).ddp_static_graph


def test_the_script_for_one_rank_refuses_two(tmp_path: Path) -> None:
    tiny = settings("train_sft_min", "--model", "tiny", "--dataset", "generated")
    check(tiny, SCRIPTS["train_sft_min"], 1, tmp_path)
    with pytest.raises(SeatrialError, match=r"trains on one rank, and there are 2: use train_sft_ddp_min\.py"):
        check(tiny, SCRIPTS["train_sft_min"], 2, tmp_path)


@pytest.mark.parametrize("local_rank", ["0", "1"])
def test_without_a_network_and_weights_one_rank_of_a_node_names_the_tiny_model(local_rank: str, tmp_path: Path) -> None:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "LOCAL_RANK": local_rank, "WORLD_SIZE": "2"}
    script = TRAINING / "src" / f"{MULTINODE}.py"
    done = subprocess.run([sys.executable, script, "--use_lora"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not done.stdout
    assert ("MODEL=tiny DATASET=generated" in done.stderr) == (local_rank == "0")


def test_every_script_has_its_file() -> None:
    assert {path.stem for path in (TRAINING / "src").glob("*.py")} == set(SCRIPTS)


def test_shell_scripts_pass_shellcheck() -> None:
    scripts = [TRAINING / "env.sh", *sorted((TRAINING / "slurm").iterdir())]
    assert len(scripts) == 5
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_environment_that_is_not_there_ends_a_script(tmp_path: Path) -> None:
    variables = {"VENV": str(tmp_path / "nowhere"), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = f"set -e; source {TRAINING / 'env.sh'}; echo went on"
    done = subprocess.run(["bash", "-c", command], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stdout
    assert f"VENV is {tmp_path}/nowhere, and there is no {tmp_path}/nowhere/bin/activate" in done.stderr


@pytest.mark.skipif(SEED is None, reason=NO_SEEDS)
def test_the_job_on_one_node_asks_for_what_the_original_asks_for() -> None:
    assert SEED is not None
    original = [line for line in SEED.read_text().splitlines() if line.startswith("#SBATCH")]
    job = (TRAINING / "slurm" / "train_ddp_1node.sbatch").read_text().splitlines()
    assert [line for line in job if line.startswith("#SBATCH")] == original and len(original) == 11
