"""The same campaigns with a real two-rank torch job over gloo, started by the real torchrun."""

from __future__ import annotations

import signal

import pytest

from tests.end_to_end.conftest import SCRIPTS
from tests.harness import Harness
from tests.waiting import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

JOB = f"""
name: torch-job
workload:
  script: {SCRIPTS / "ddp_job.py"}
  args: ["--width", "{{width}}", "--steps", "{{steps}}"]
launcher: torchrun
place: {{kind: local, ranks: 2}}
axes: {{width: [64, 4096]}}
repeats: 1
steps: 30
timing: {{log_every: 10}}
output: out
"""
TINY = """
name: tiny
workload: tiny_lm
settings: {d_model: 32, seq_len: 32, n_layers: 1, num_workers: 0}
launcher: torchrun
place: {kind: local, ranks: RANKS}
axes: {micro_batch: [4]}
repeats: 1
steps: 20
output: out
"""


def test_clean_changed_and_extended(harness: Harness) -> None:
    plan = harness.plan(JOB)
    harness.run("run", str(plan))
    rows = harness.manifest()
    assert {row["outcome"] for row in rows} == {"ok"} and {row["source"] for row in rows} == {"events"}
    attempt = harness.out.run("width64_r1").attempt(1)
    assert len(attempt.all_events()) == 2
    assert list(attempt.rank_logs.rglob("stdout.log"))
    harness.run("run", str(plan), "--set", "steps=31", "--only", "width64")
    rows = harness.manifest()
    assert len(rows) == 3 and [row["current"] for row in rows if row["group"] == "width64"] == ["false", "true"]
    second = JOB.replace("name: torch-job", "name: wider").replace("[64, 4096]", "[128]")
    harness.run("run", str(harness.plan(second, "second.yaml")))
    assert len(harness.manifest()) == 4


def test_crash_of_one_rank_names_the_exception_and_resumes(harness: Harness) -> None:
    crash = JOB.replace('"{steps}"]', '"{steps}", "--crash-at", "{crash}"]').replace("{width: [64, 4096]}", "{width: [64], crash: [5, 99]}")
    text = harness.run("run", str(harness.plan(crash)), code=2)
    outcomes = {row["group"]: (row["outcome"], row["cause"], row["detail"]) for row in harness.manifest()}
    assert outcomes["width64_crash99"][0] == "ok"
    outcome, cause, detail = outcomes["width64_crash5"]
    assert (outcome, cause) == ("failed", "exception") and "rank 1 was told to crash" in detail
    assert "rank 1 was told to crash" in text
    again = harness.run("run", str(harness.plan(crash)), code=2)
    assert again.count("not run again") == 1 and again.count("attempt 2") == 1


def test_hanging_rank_ends_at_the_run_limit(harness: Harness) -> None:
    hang = JOB.replace('"{steps}"]', '"{steps}", "--hang-at", "5"]').replace("[64, 4096]", "[64]") + "limits: {run_s: 20, term_s: 2}\n"
    harness.run("run", str(harness.plan(hang)), code=2)
    (row,) = harness.manifest()
    assert (row["outcome"], row["cause"]) == ("timeout", "run_limit")


def test_interrupt_and_resume(harness: Harness) -> None:
    slow = JOB.replace('"{steps}"]', '"{steps}", "--step-s", "0.1"]').replace("[64, 4096]", "[64]").replace("steps: 30", "steps: 60")
    process = harness.start("run", str(harness.plan(slow)))
    wait_until(lambda: list(harness.out.folder.glob("*/attempt-1/events_rank1.jsonl")), "the job starts")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130 and harness.left_behind() == []
    harness.run("run", str(harness.plan(slow)))
    assert [row["outcome"] for row in harness.manifest()] == ["interrupted", "ok"]


def test_tiny_lm_is_ranked(harness: Harness) -> None:
    harness.run("run", str(harness.plan(TINY.replace("RANKS", "2").replace("[4]", "[4, 16]"))))
    rows = harness.manifest()
    assert {row["precision_mode_effective"] for row in rows} == {"fp32"}
    assert all(float(row["wall_tokens_per_sec"]) > 0 for row in rows)


def test_eight_ranks_work(harness: Harness) -> None:
    harness.run("run", str(harness.plan(TINY.replace("RANKS", "8"))))
    (row,) = harness.manifest()
    assert (row["outcome"], row["world_size"]) == ("ok", "8")
    assert len(harness.out.run("mb4_r1").attempt(1).all_events()) == 8
