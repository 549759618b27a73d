"""Real torch jobs: two ranks over gloo under the real torchrun, and tiny_lm. Hangs, kills and interrupts are in tests/faults."""

from __future__ import annotations

import json
import re
import statistics

import pytest

from tests.end_to_end.conftest import SCRIPTS
from tests.harness import Harness
from tests.workloads.ranks import column, events

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
settings: {device: cpu, seq_len: 64, log_every: 20}
env: {OMP_NUM_THREADS: 1}
launcher: torchrun
place: {kind: local, ranks: 2}
timing: {eta_mode: global_max}
axes: {micro_batch: [8]}
repeats: 1
steps: 60
output: out
"""


def test_crash_of_one_rank_names_the_exception(harness: Harness) -> None:
    text = harness.run("run", str(harness.plan(JOB)), code=2)
    (row,) = harness.manifest()
    assert (row["outcome"], row["cause"]) == ("failed", "exception")
    assert "requested crash of rank 1" in row["detail"] and "requested crash of rank 1" in text


def test_two_ranks_of_tiny_lm_train_together_and_are_measured(harness: Harness) -> None:
    harness.run("run", str(harness.plan(TINY)))
    (row,) = harness.manifest()
    assert row["precision_mode_effective"] == "fp32" and float(row["wall_tokens_per_sec"]) > 0
    attempt = harness.out.run(row["run"]).attempt(1)
    for rank in (0, 1):
        assert column(attempt.folder, "step", rank) == list(range(60))
        losses = column(attempt.folder, "loss", rank)
        assert statistics.mean(losses[-5:]) < 0.6 * losses[0]
        (start,) = events(attempt.folder, "start", rank)
        assert (start["launched_by"], start["world_size"]) == ("torchrun", 2)
        assert len(events(attempt.folder, "stop", rank)) == 1
        assert [span["name"] for span in events(attempt.folder, "span", rank)] == ["process_group", "model", "data", "data"]
    assert column(attempt.folder, "loss", 0) != column(attempt.folder, "loss", 1), "each rank has its own text"
    output = attempt.launcher_log.read_text()
    assert output.count("Step 59: Loss") == 1, "only rank 0 logs it"
    assert "destroy_process_group" not in output
    assert set(re.findall(r"TimingRank step=(\d+) rank=(\d+) ", attempt.train_log.read_text())) == {
        (str(step), rank) for step in (0, 20, 40, 59) for rank in "01"
    }
    assert "TimingETA step=59 remain_steps=0 eta_sec=0.0 eta_hms=00:00:00 mode=global_max" in output


def test_ranks_that_form_a_world_each_are_a_failure_at_their_first_step(harness: Harness) -> None:
    plan = JOB.replace("ddp_job.py", "separate_worlds.py").replace('args: ["--steps", "{steps}", "--crash-at", "5"]', "args: []")
    text = harness.run("run", str(harness.plan(plan)), code=2)
    (row,) = harness.manifest()
    assert (row["outcome"], row["cause"]) == ("failed", "world_too_small")
    assert "the process group (gloo) has 1 of 2 planned ranks: 2 processes formed a world each" in text
    full = harness.run("report", str(harness.out.folder), "--full", code=None)
    assert "Process group: gloo, 1 of 2 planned ranks, by TCP" in full


@pytest.mark.parametrize("args", ["[]", "[alone]"])
def test_whether_ranks_without_the_probe_trained_together(harness: Harness, args: str) -> None:
    """In one group they are connected, which the agent sees; otherwise nothing shows it, and that is said with the verdict."""
    plan = JOB.replace("ddp_job.py", "without_probe.py").replace('["--steps", "{steps}", "--crash-at", "5"]', args)
    text = harness.run("run", str(harness.plan(plan.replace("steps: 30\n", ""))))
    said = "No evidence that the 2 ranks formed one process group"
    assert (said in " ".join(text.split())) == (args == "[alone]"), text
    statements = {one["kind"]: one for one in json.loads(harness.out.verdict.read_text())["statements"]}
    assert ("process_group" in statements) == (args == "[alone]")
    if args == "[alone]":
        assert statements["process_group"]["verdict"] == "INCONCLUSIVE" and said in statements["process_group"]["text"]
