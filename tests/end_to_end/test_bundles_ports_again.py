"""Bundles, a port that must be had, and running finished runs again, through the real command line."""

from __future__ import annotations

import json
import signal
import socket

from tests.csv_files import rows_of
from tests.harness import Harness
from tests.original_campaign import write_original_campaign
from tests.waiting import wait_until

AB = """
name: ab
workload: dummy
settings: {step_ms: 4}
place: {kind: local, ranks: 2}
axes:
  variant: {bundles: {old_like: {micro_batch: 4, log_every: 5}, tuned: {micro_batch: 8, log_every: 10}}}
repeats: 2
order: rounds
steps: 40
output: out
"""


def test_bundles_are_groups_in_rounds_with_a_baseline(harness: Harness) -> None:
    text = harness.run("run", str(harness.plan(AB)))

    assert [text.index(f"{run}: started") for run in ("old_like_r1", "tuned_r1", "old_like_r2", "tuned_r2")] == sorted(
        text.index(f"{run}: started") for run in ("old_like_r1", "tuned_r1", "old_like_r2", "tuned_r2")
    )
    rows = {row["group"]: row for row in rows_of(harness.out.group_summary)}
    assert (rows["old_like"]["micro_batch"], rows["tuned"]["micro_batch"]) == ("4", "8")
    assert float(rows["old_like"]["speedup_vs_baseline"]) == 1.0 and float(rows["tuned"]["speedup_vs_baseline"]) > 0
    assert rows["tuned"]["axis_variant"] == "tuned"
    overrides = harness.out.best_overrides.read_text()
    assert "axes.variant" not in overrides and "# variant tuned is a bundle of the plan: `--only tuned`" in overrides


def test_a_taken_port_ends_the_run_and_names_the_next_free_one(harness: Harness) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        plan = harness.plan(AB.replace("ranks: 2", f"ranks: 2, port: {port}").replace("repeats: 2", "repeats: 1"))
        # Whoever holds the port, it is not the groups: that asks for a re-run and is no FAIL.
        text = harness.run("run", str(plan), code=3)

    assert f"port {port} is in use" in text and "the next free one is" in text
    outcome = json.loads(harness.out.run("old_like_r1").attempt(1).outcome.read_text())
    assert (outcome["outcome"], outcome["cause"]) == ("failed", "port_in_use")
    # Freed meanwhile, it is had, and every run uses it.
    harness.run("run", str(plan))
    assert {row["port"] for row in harness.manifest() if row["status"] == "success"} == {str(port)}


def test_again_runs_finished_runs_anew(harness: Harness) -> None:
    plan = str(harness.plan(AB.replace("repeats: 2", "repeats: 1")))
    harness.run("run", plan)
    assert "finished before" in harness.run("run", plan)

    text = harness.run("run", plan, "--again")

    assert "finished before" not in text and "attempt 2" in text
    assert [(row["group"], row["attempt"]) for row in harness.manifest()] == [
        ("old_like", "1"),
        ("old_like", "2"),
        ("tuned", "1"),
        ("tuned", "2"),
    ]


def test_a_failed_run_anew_is_run_by_the_next_command(harness: Harness) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
    text = AB.replace("ranks: 2", f"ranks: 2, port: {port}").replace("repeats: 2", "repeats: 1")
    plan = str(harness.plan(text))
    harness.run("run", plan)
    with socket.create_server(("0.0.0.0", port)):
        harness.run("run", plan, "--again", code=3)

    assert "finished before" not in harness.run("run", plan)
    assert harness.verdict() == "PASS"


def test_a_folder_of_the_original_scripts_is_not_written_into(harness: Harness) -> None:
    write_original_campaign(harness.folder / "out")
    before = {path: path.read_bytes() for path in sorted((harness.folder / "out").rglob("*")) if path.is_file()}

    text = harness.run("run", str(harness.plan(AB)), code=1)

    assert "was written by the original stage-1 scripts and stays as it is" in text
    assert {path: path.read_bytes() for path in sorted((harness.folder / "out").rglob("*")) if path.is_file()} == before


def test_an_attempt_that_was_broken_off_does_not_hide_the_one_that_counts(harness: Harness) -> None:
    plan = str(harness.plan(AB.replace("repeats: 2", "repeats: 1").replace("steps: 40", "steps: 400").replace("step_ms: 4", "step_ms: 10")))
    harness.run("run", plan, "--only", "tuned")
    process = harness.start("run", plan, "--only", "tuned", "--again")
    wait_until(lambda: harness.out.run("tuned_r1").attempt(2).all_heartbeats(), "the second attempt begins")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    linked = (harness.out.run("tuned_r1").folder / "events_rank0.jsonl").resolve()
    assert linked.parent.name == "attempt-1"
