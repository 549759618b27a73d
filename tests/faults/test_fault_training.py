"""Trainings whose ranks are killed and that go on from their last complete checkpoint, under every engine."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from seatrial.core.paths import RunPaths
from tests.end_to_end.test_training_goes_on import KILLED_AFTER_CHECKPOINT, losses
from tests.faults.campaigns import only_attempt, outcome
from tests.harness import LIGHT_DEEPSPEED, Harness

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed"),
]


TINY = f"""
name: tiny
workload: tiny_lm
settings: {{d_model: 16, n_layers: 1, n_heads: 2, seq_len: 16, vocab_size: 16, checkpoint_every: 5, device: cpu}}
launcher: torchrun
place: {{kind: local, ranks: 2}}
env: {{PYTHONPATH: {KILLED_AFTER_CHECKPOINT}}}
steps: 40
telemetry: {{gpu_s: null, host_s: null}}
output: out
"""


# Each start of DeepSpeed costs ten seconds: with the others only the steps that were taken twice are compared.
COMPARED = (("ddp", 0), ("deepspeed", 1))


def plan(engine: str, zero_stage: int, speech: Path) -> str:
    return f"""
name: training
workload: contrastive
settings:
  engine: {engine}
  zero_stage: {zero_stage}
  device: cpu
  precision: fp32
  micro_batch: 2
  dataset_root: {speech}
  dataset_manifest_path: {speech}/manifest.tsv
  fixed_slice_s: 1.0
  num_workers: 0
  warmup_steps: 2
  checkpoint_every_steps: 4
  checkpoint_keep: 2
launcher: {"torchrun" if engine == "ddp" else engine}
place: {{kind: local, ranks: 2}}
steps: 16
env: {{OMP_NUM_THREADS: 1, PYTHONPATH: "{KILLED_AFTER_CHECKPOINT}:{LIGHT_DEEPSPEED}"}}
telemetry: {{gpu_s: null, host_s: null}}
limits: {{soft_s: 3, term_s: 3}}
output: out
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("engine", "zero_stage"), [("ddp", 0), ("deepspeed", 1), ("deepspeed", 3)])
def test_a_killed_training_goes_on_from_its_last_whole_checkpoint(harness: Harness, speech: Path, engine: str, zero_stage: int) -> None:
    """On two ranks, so that each stage has shards of its own to save. Every stage resumes in tests/workloads/common/test_engines.py."""
    training = str(harness.plan(plan(engine, zero_stage, speech)))
    harness.run("run", training, code=None)
    killed = only_attempt(harness)
    assert outcome(harness)["outcome"] == "failed"
    text = harness.run("run", training)
    ended = outcome(harness, 2)
    first_step = ended["resumed_at"]
    assert f"resumes from attempt 1 (checkpoints/ckpt_iter_{first_step - 1}, step {first_step - 1})" in text
    # Of a rank that was killed, the last lines may be missing: its checkpoint is one that it had reached.
    reached = max(first_step - 1, *losses(harness, 1), *(json.loads(line)["step"] or 0 for line in read_lines(killed.heartbeat(0))))
    assert (ended["outcome"], ended["lost_steps"]) == ("ok", reached + 1 - first_step)
    resumed = losses(harness, 2)
    assert resumed.items() >= {step: loss for step, loss in losses(harness, 1).items() if step >= first_step}.items()
    if zero_stage == 1:
        skips_a_truncated_checkpoint(harness, training)
    if (engine, zero_stage) in COMPARED:
        harness.run("run", training, "--again")
        undisturbed = losses(harness, len(only_run(harness).attempts()))
        assert len(undisturbed) == 16
        assert resumed == {step: loss for step, loss in undisturbed.items() if step >= first_step}


def skips_a_truncated_checkpoint(harness: Harness, training: str) -> None:
    """The last checkpoint of attempt 2 is truncated, as by a disk that lost its cache: the one before is taken, with the same losses."""
    last = only_attempt(harness, 2)
    broken = next(path for path in sorted((last.checkpoints / "ckpt_iter_15").iterdir()) if path.suffix == ".pt")
    os.truncate(broken, 10)
    last.outcome.write_text(json.dumps({**outcome(harness, 2), "outcome": "interrupted"}))
    text = harness.run("run", training)
    assert "skipped attempt 2's ckpt_iter_15" in text and outcome(harness, 3)["resumed_at"] == 13
    again = losses(harness, 3)
    assert again == {step: loss for step, loss in losses(harness, 2).items() if step in again}


def only_run(harness: Harness) -> RunPaths:
    (run,) = harness.out.runs()
    return run


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_ddp_training_that_was_killed_ends_with_the_losses_of_one_that_was_not(harness: Harness) -> None:
    plan = str(harness.plan(TINY))
    harness.run("run", plan, code=None)
    assert outcome(harness, 1)["outcome"] == "failed"
    harness.run("run", plan)
    resumed_at = outcome(harness, 2)["resumed_at"]
    assert resumed_at >= 6
    harness.run("run", plan, "--again")
    for rank in (0, 1):
        undisturbed, resumed = losses(harness, 3, rank), losses(harness, 2, rank)
        assert resumed == {step: loss for step, loss in undisturbed.items() if step >= resumed_at}
