"""Campaigns compared through the real command line: groups, rows of history, a varied debug switch, refusals."""

from __future__ import annotations

import json
from typing import Any

from seatrial.records.comparison import Relation
from tests.end_to_end.conftest import SCRIPTS
from tests.harness import Harness

# The A/B of stage 1 in small. One of its differences is a debug switch: the plan varies it, so the comparison is decided all the same.
# Steps are long enough that the sleep of a busy machine is small beside them.
PLAN = f"""
name: ab
workload:
  script: {SCRIPTS / "ab_train.py"}
  args: [--step_ms, "{{step_ms}}", --wall_clock_breakdown, "{{wall_clock_breakdown}}"]
axes:
  variant:
    bundles:
      old_like: {{step_ms: 24, wall_clock_breakdown: true}}
      tuned: {{step_ms: 12, wall_clock_breakdown: false}}
repeats: 3
telemetry: {{gpu_s: null, host_s: null}}
criteria:
  - {{ready: stage1_speedup_4090, baseline: old_like}}
output: out
"""


def json_line(text: str) -> dict[str, Any]:
    """The only line that is a JSON document."""
    return next(json.loads(line) for line in text.splitlines() if line.startswith("{"))


def test_groups_history_and_debug_settings(harness: Harness) -> None:
    history = {"SEATRIAL_HISTORY": str(harness.folder / "history.jsonl")}
    harness.run("run", str(harness.plan(PLAN)))
    findings = json.loads(harness.out.verdict.read_text())["findings"]
    assert {finding["verdict"] for finding in findings} == {"PASS"}
    assert "wall_clock_breakdown=true" in harness.out.summary_md.read_text()
    (one,) = json_line(harness.run("compare", "out:old_like", "out:tuned", "--json", "--margin", "10"))["comparisons"]
    assert one["relation"] == Relation.FASTER.value and one["method"] == "paired t on logs, 3 pairs"
    assert sorted(difference.split()[0] for difference in one["differs"]) == ["step_ms", "variant", "wall_clock_breakdown"]
    assert 1.2 < one["ratio"]["mean"] < 2.5

    harness.run("history", "add", "out", env=history)
    rows = json_line(harness.run("history", "list", "--json", env=history))["rows"]
    slow = next(row["row"] for row in rows if row["group"] == "old_like")
    harness.run("history", "pin", str(slow), "before", env=history)
    against = harness.run("compare", "history:before", "tuned", "--in", "out", env=history)
    assert "tuned against history:before: FASTER" in against

    traced = PLAN.replace("output: out", "output: traced\nenv: {CUDA_LAUNCH_BLOCKING: '1'}")
    harness.run("run", str(harness.plan(traced, "traced.yaml")), "--only", "tuned_r1", code=None)
    refused = harness.run("compare", "out:tuned", "traced", code=2)
    assert "CUDA_LAUNCH_BLOCKING=1" in refused and "debug settings" in refused
