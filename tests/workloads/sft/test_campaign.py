"""Fine-tuning as a plan: two ranks under the real torchrun, measured by real tokens."""

from __future__ import annotations

import json

import pytest

from tests.harness import Harness
from tests.workloads.ranks import column

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.runbooks]
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

PLAN = """
name: sft
workload: sft
settings: {device: cpu, seq_len: 96, subset_size: 128, micro_batch: 2, tok_cache_dir: tokenized}
env: {OMP_NUM_THREADS: 1}
launcher: torchrun
place: {kind: local, ranks: 2}
axes: {packing: [true]}
repeats: 1
steps: 6
output: out
"""


def test_two_ranks_of_a_plan_are_measured_in_real_tokens(tmp_path):
    harness = Harness(tmp_path)
    harness.run("run", str(harness.plan(PLAN)))
    harness.close()
    assert harness.left_behind() == []
    (row,) = harness.manifest()
    assert row["outcome"] == "ok" and float(row["wall_tokens_per_sec"]) > 0
    folder = harness.out.run(row["run"]).attempt(1).folder
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["world_size"] == 2 and metrics["samples_disjoint"] is True
    assert json.loads((folder / "run_args.json").read_text())["packing"] is True
    for rank in (0, 1):
        assert column(folder, "step", rank) == list(range(6)) and None not in column(folder, "loss", rank)
    steady = sum(sum(column(folder, "tokens", rank)[-metrics["steady_steps"] :]) for rank in (0, 1))
    assert steady == metrics["steady_real_tokens"]


def test_a_setting_that_cannot_work_is_refused_before_a_run(tmp_path):
    harness = Harness(tmp_path)
    text = harness.run("run", str(harness.plan(PLAN)), "--set", "settings.model=tinny", code=2)
    harness.close()
    assert "did you mean 'tiny'" in text and not list(tmp_path.rglob("metrics.json"))
