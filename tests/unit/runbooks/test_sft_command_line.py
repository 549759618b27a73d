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
from seatrial.machine.gpus import Driver, Gpu, GpuState
from seatrial_runbooks.sft import command_line
from seatrial_runbooks.sft.command_line import SCRIPTS, check, parser_of, planned_ranks, settings_of
from seatrial_workloads.sft.settings import Settings
from tests.facts import states
from tests.runbooks.blocks import NO_SEEDS, ROOT, SEEDS

TRAINING = ROOT / "runbooks" / "sft" / "training"
MULTINODE = "train_sft_ddp_lora_multinode"
REENTRANT = "--use_lora --gradient_checkpointing True --checkpointing_reentrant True"
TINY = ("--model", "tiny", "--dataset", "generated")
SEVEN_B = ("--model", "mistral-7b", "--dataset", "generated")
SEED = next(iter(sorted(SEEDS.glob("003_*.txt"))), None)


def settings(script: str, *argv: str, env: dict[str, str] | None = None) -> Settings:
    flags = vars(parser_of(SCRIPTS[script], env or {}).parse(argv))
    del flags["check"], flags["ignore_fit"]
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
        (MULTINODE, f"{REENTRANT} --ddp_find_unused_parameters True", "ready only once"),
        ("train_sft_min", "--use_lora", "unknown argument '--use_lora'"),
        ("train_sft_min", "--recipe sead", "argument --recipe: invalid choice: 'sead'"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(script: str, argv: str, message: str) -> None:
    with pytest.raises(SeatrialError, match=re.escape(message)):
        settings(script, *argv.split())


@pytest.mark.parametrize("beside", ["", "--ddp_find_unused_parameters True --ddp_static_graph True"])
def test_re_entrant_checkpointing_is_taken_unless_ddp_looks_for_unused_parameters(beside: str) -> None:
    assert settings(MULTINODE, *f"{REENTRANT} {beside}".split()).checkpointing_reentrant


def test_the_script_for_one_rank_refuses_two(tmp_path: Path) -> None:
    tiny = settings("train_sft_min", *TINY)
    check(tiny, SCRIPTS["train_sft_min"], {}, tmp_path)
    with pytest.raises(SeatrialError, match=r"one rank.* 2.*train_sft_ddp_min\.py"):
        check(tiny, SCRIPTS["train_sft_min"], {"WORLD_SIZE": "2"}, tmp_path)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "read_driver", lambda: Driver(problem="no GPU driver", no_driver=True))


def test_full_fine_tuning_of_7b_under_ddp_on_80_gb_is_refused_with_its_arithmetic(no_gpu: None, tmp_path: Path) -> None:
    """The original's second attempt, without --use_lora."""
    script, env = SCRIPTS[MULTINODE], {"GPU": "H100-80GB", "NPROC_PER_NODE": "8", "SLURM_JOB_NUM_NODES": "2"}
    with pytest.raises(SeatrialError) as refused:
        check(settings(MULTINODE, *SEVEN_B), script, env, tmp_path)
    text = str(refused.value)
    assert text.startswith("weights 27.0 + gradients 27.0 + optimizer 54.0 + communication 27.0 + temporary 27.0 = 161.9 GiB")
    assert "of 79.2 GiB (H100-80GB)" in text and "strategy=fsdp over 16 ranks" in text and "--use_lora" in text
    assert "will not fit" in check(settings(MULTINODE, *SEVEN_B), script, env, tmp_path, ignore_fit=True)
    assert "fits: " in check(settings(MULTINODE, *SEVEN_B, "--use_lora"), script, env, tmp_path)
    assert "memory not checked" in check(settings(MULTINODE, *SEVEN_B), script, {}, tmp_path)
    with pytest.raises(SeatrialError, match="no GPU 'H100-8GB' in the table; did you mean 'H100-80GB'"):
        check(settings(MULTINODE, *TINY), script, {"GPU": "H100-8GB"}, tmp_path)


def test_the_gpu_of_the_node_is_asked_before_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command_line, "read_driver", lambda: Driver(gpus=(Gpu(index=0),)))
    states = (GpuState(index=0, name="NVIDIA A100-SXM4-40GB", mem_total_mib=40_000),)
    monkeypatch.setattr(command_line, "read_gpu_states", lambda gpus: states)
    with pytest.raises(SeatrialError, match=r"of 39\.1 GiB \(NVIDIA A100-SXM4-40GB\)"):
        check(settings(MULTINODE, *SEVEN_B), SCRIPTS[MULTINODE], {"GPU": "B200-192GB"}, tmp_path)


@pytest.mark.parametrize(
    ("script", "env", "ranks"),
    [
        (MULTINODE, {}, 8),
        (MULTINODE, {"NPROC_PER_NODE": "4", "SLURM_JOB_NUM_NODES": "2"}, 8),
        (MULTINODE, {"NPROC_PER_NODE": "gpu"}, 8),
        (MULTINODE, {"WORLD_SIZE": "3", "NPROC_PER_NODE": "4"}, 3),
        ("train_sft_min", {}, 1),
    ],
)
def test_memory_is_that_of_the_ranks_which_will_start(script: str, env: dict[str, str], ranks: int) -> None:
    assert planned_ranks(SCRIPTS[script], env) == ranks


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
    assert states(done.stderr, f"VENV is {tmp_path}/nowhere", f"{tmp_path}/nowhere/bin/activate")


@pytest.mark.skipif(SEED is None, reason=NO_SEEDS)
def test_the_job_on_one_node_asks_for_what_the_original_asks_for() -> None:
    assert SEED is not None
    original = [line for line in SEED.read_text().splitlines() if line.startswith("#SBATCH")]
    job = (TRAINING / "slurm" / "train_ddp_1node.sbatch").read_text().splitlines()
    assert [line for line in job if line.startswith("#SBATCH")] == original and len(original) == 11
