"""Bundles of settings as groups, and a port that the plan fixes, through the real command line."""

from __future__ import annotations

import json
import socket

from tests.csv_files import rows_of
from tests.harness import Harness

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
# So that some windows do not contain step 0.
timing: {timing_window: 10}
output: out
"""


def test_bundles_are_groups_in_rounds_with_a_baseline(harness: Harness) -> None:
    text = harness.run("run", str(harness.plan(AB)))

    starts = [text.index(f"{run}: started") for run in ("old_like_r1", "tuned_r1", "old_like_r2", "tuned_r2")]
    assert starts == sorted(starts)
    rows = {row["group"]: row for row in rows_of(harness.out.group_summary)}
    assert (rows["old_like"]["micro_batch"], rows["tuned"]["micro_batch"]) == ("4", "8")
    assert float(rows["old_like"]["speedup_vs_baseline"]) == 1.0 and float(rows["tuned"]["speedup_vs_baseline"]) > 0
    assert rows["tuned"]["axis_variant"] == "tuned"
    overrides = harness.out.best_overrides.read_text()
    assert "axes.variant" not in overrides and "`--only tuned`" in overrides


def test_a_port_in_use_fails_the_run_and_the_next_command_runs_it_again(harness: Harness) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        command = ("run", str(harness.plan(AB.replace("ranks: 2", f"ranks: 2, port: {port}"))), "--only", "tuned_r1")
        # A port held by somebody else is no fault of the group: INCONCLUSIVE, not FAIL.
        text = harness.run(*command, code=3)

    assert f"port {port} is in use" in text and "the next free one is" in text
    outcome = json.loads(harness.out.run("tuned_r1").attempt(1).outcome.read_text())
    assert (outcome["outcome"], outcome["cause"]) == ("failed", "port_in_use")
    harness.run(*command)
    assert [row["port"] for row in harness.manifest() if row["status"] == "success"] == [str(port)]

    with socket.create_server(("0.0.0.0", port)):
        harness.run(*command, "--again", code=3)
    assert "already finished" not in harness.run(*command)
    assert harness.verdict() == "PASS"
