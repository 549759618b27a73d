"""Trainings of a few steps on a GPU under every engine, stage and number format, graphs and all; and one that goes on after one."""

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
WORDS = ["ddp:0:bf16", *(f"deepspeed:{stage}:bf16" for stage in range(4)), "ddp:0:fp16", "deepspeed:0:fp16", "deepspeed:1:fp16"]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from seatrial_workloads.librispeech.synthetic import make_tree

    manifest = make_tree(tmp_path_factory.mktemp("speech") / "LibriSpeech", 60, seed=3, mean_s=4.0)
    return {**QUICK, "dataset_root": str(manifest.parent), "dataset_manifest_path": str(manifest)}


def train(folder: Path, settings: dict[str, Any], *words: str) -> Finished:
    finished = run_module(["tests.workloads.contrastive.engines_in_turn", str(folder), json.dumps(settings), *words])
    assert finished.returncodes == [0], finished.stderr[0][-3000:]
    return finished


@pytest.fixture(scope="module")
def trained(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, in one process."""
    folder = tmp_path_factory.mktemp("trained")
    train(folder, settings, *WORDS)
    return folder


def losses(folder: Path, word: str) -> list[float]:
    return column(folder / word.replace(":", "-"), "loss")


@pytest.mark.parametrize("word", WORDS)
def test_every_engine_trains_alike(word: str, trained: Path) -> None:
    found, expected = losses(trained, word), losses(trained, "ddp:0:bf16")
    assert len(found) == QUICK["steps"]
    assert all(map(math.isfinite, found))
    # Dropout is another one wherever the tower is not a graph; 16 bits round.
    assert statistics.fmean(found) == pytest.approx(statistics.fmean(expected), rel=0.08)


@pytest.mark.parametrize("word", WORDS)
def test_what_was_used_is_told(word: str, trained: Path) -> None:
    folder = trained / word.replace(":", "-")
    told = {event["setting"]: (event["effective"], event["reason"]) for event in events(folder, "effective")}
    assert told["precision"][0] == word.split(":")[2]
    assert told["tower_graph"][0] is (":0:" in word), told["tower_graph"]
    assert told["front_end"][0] is not word.startswith("deepspeed:3")
    assert told["attn_impl"][0] == ("eager" if word.endswith("fp16") else "sdpa")


@pytest.mark.parametrize("word", ["ddp:0:bf16", "deepspeed:1:bf16"])
def test_training_goes_on_after_a_checkpoint(word: str, trained: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    train(tmp_path, {**settings, "resume_from": str(trained / word.replace(":", "-") / "checkpoints" / "ckpt_iter_11")}, word)
    assert losses(tmp_path, word) == pytest.approx(losses(trained, word)[12:], rel=0.05)
