"""Short trainings on a GPU with every engine, stage and number format, and resuming."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("deepspeed")
pytest.importorskip("soundfile")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")]

from tests.workloads.ranks import Finished, column, events, run_module  # noqa: E402

QUICK = {
    "device": "cuda",
    "micro_batch": 8,
    "steps": 24,
    "fixed_slice_s": 1.0,
    "lr": 1e-3,
    "warmup_steps": 2,
    "num_workers": 2,
    "torch_adam": True,
    "checkpoint_every_steps": 11,
    "checkpoint_keep": 4,
}
# Engine, ZeRO stage, precision, mixed precision. Weights first: DeepSpeed remembers autocast for every later engine of the process.
RUNS = [
    "ddp:0:bf16:auto",
    *(f"deepspeed:{stage}:bf16:weights" for stage in range(4)),
    "deepspeed:0:fp16:weights",
    "deepspeed:1:fp16:weights",
    "ddp:0:fp16:auto",
    *(f"deepspeed:{stage}:bf16:autocast" for stage in range(4)),
    "deepspeed:0:fp16:autocast",
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from seatrial_workloads.librispeech.synthetic import write_tree

    manifest = write_tree(tmp_path_factory.mktemp("speech") / "LibriSpeech", 60, seed=3, mean_s=4.0)
    return {**QUICK, "dataset_root": str(manifest.parent), "dataset_manifest_path": str(manifest)}


def train(folder: Path, settings: dict[str, Any], *runs: str) -> Finished:
    finished = run_module(["tests.workloads.contrastive.engines_in_turn", str(folder), json.dumps(settings), *runs])
    assert finished.returncodes == [0], finished.stderr[0][-3000:]
    return finished


@pytest.fixture(scope="module")
def trained(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs, in one process."""
    folder = tmp_path_factory.mktemp("trained")
    train(folder, settings, *RUNS)
    return folder


def losses(folder: Path, run: str) -> list[float]:
    return column(folder / run.replace(":", "-"), "loss")


@pytest.mark.parametrize("run", RUNS)
def test_every_engine_has_similar_losses(run: str, trained: Path) -> None:
    found, expected = losses(trained, run), losses(trained, "ddp:0:bf16:auto")
    assert len(found) == QUICK["steps"]
    assert all(map(math.isfinite, found))
    # Dropout differs where the tower is not a graph, and 16 bits round.
    assert statistics.fmean(found) == pytest.approx(statistics.fmean(expected), rel=0.08)


@pytest.mark.parametrize("run", RUNS)
def test_effective_settings_are_recorded(run: str, trained: Path) -> None:
    effective = {event["setting"]: event["effective"] for event in events(trained / run.replace(":", "-"), "effective")}
    _, stage, precision, mixed = run.split(":")
    assert effective["precision"] == precision
    assert effective["mixed_precision"] == ("autocast" if mixed == "auto" else mixed)
    assert effective["tower_graph"] is effective["front_end"] is (stage != "3")
    assert effective["attn_impl"] == ("eager" if precision == "fp16" else "sdpa")
    without_text_graph = stage == "3" or precision == "fp16"
    assert effective["fast_paths"] == (
        "none"
        if stage == "3"
        else "front_end,positions,tower_graph"
        if without_text_graph
        else "front_end,positions,text_graph,tower_graph"
    )


@pytest.mark.parametrize("run", ["ddp:0:bf16:auto", "deepspeed:0:fp16:weights", "deepspeed:1:bf16:weights", "deepspeed:1:bf16:autocast"])
def test_training_resumes_from_a_checkpoint(run: str, trained: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    train(tmp_path, {**settings, "resume_from": str(trained / run.replace(":", "-") / "checkpoints" / "ckpt_iter_11")}, run)
    assert losses(tmp_path, run) == pytest.approx(losses(trained, run)[12:], rel=0.05)
