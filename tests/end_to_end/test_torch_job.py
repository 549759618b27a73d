"""Real torch jobs: two ranks over gloo under the real torchrun, and tiny_lm. Hangs, kills and interrupts are in tests/faults."""

from __future__ import annotations

import pytest

from tests.end_to_end.conftest import SCRIPTS
from tests.harness import Harness

pytestmark = [pytest.mark.torch, pytest.mark.slow]

JOB = f"""
name: torch-job
workload:
  script: {SCRIPTS / "ddp_job.py"}
  args: ["--steps", "{{steps}}", "--crash-at", "5"]
launcher: torchrun
place: {{kind: local, ranks: 2}}
repeats: 1
steps: 30
output: out
"""
TINY = """
name: tiny
workload: tiny_lm
settings: {d_model: 32, seq_len: 32, n_layers: 1, num_workers: 0}
launcher: python
place: {kind: local, ranks: 1}
axes: {micro_batch: [4]}
repeats: 1
steps: 20
output: out
"""


def test_crash_of_one_rank_names_the_exception(harness: Harness) -> None:
    text = harness.run("run", str(harness.plan(JOB)), code=2)
    (row,) = harness.manifest()
    assert (row["outcome"], row["cause"]) == ("failed", "exception")
    assert "requested crash of rank 1" in row["detail"] and "requested crash of rank 1" in text


def test_tiny_lm_is_measured(harness: Harness) -> None:
    harness.run("run", str(harness.plan(TINY)))
    (row,) = harness.manifest()
    assert row["precision_mode_effective"] == "fp32" and float(row["wall_tokens_per_sec"]) > 0
