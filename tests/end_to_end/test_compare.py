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
    (one,) = json_line(harness.call("compare", "out:old_like", "out:tuned", "--json", "--margin", "10"))["comparisons"]
    assert one["relation"] == Relation.FASTER.value and one["method"] == "paired t on logs, 3 pairs"
    assert sorted(difference.split()[0] for difference in one["differs"]) == ["step_ms", "variant", "wall_clock_breakdown"]
    assert 1.2 < one["ratio"]["mean"] < 2.5

    harness.call("history", "add", "out", env=history)
    rows = json_line(harness.call("history", "list", "--json", env=history))["rows"]
    slow = next(row["row"] for row in rows if row["group"] == "old_like")
    harness.call("history", "pin", str(slow), "before", env=history)
    against = harness.call("compare", "history:before", "tuned", "--in", "out", env=history)
    assert "tuned against history:before: FASTER" in against

    traced = PLAN.replace("output: out", "output: traced\nenv: {CUDA_LAUNCH_BLOCKING: '1'}")
    harness.run("run", str(harness.plan(traced, "traced.yaml")), "--only", "tuned_r1", code=None)
    refused = harness.call("compare", "out:tuned", "traced", code=2)
    assert "CUDA_LAUNCH_BLOCKING=1" in refused and "debug settings" in refused


LENGTHS = """
import sys, time
for step in range(30):
    time.sleep(0.03 if sys.argv[1] == "64" else 0.02)
    print(f"tick {step} cost {3 - step / 30:.3f}", flush=True)
"""


def test_samples_of_unlike_length_have_no_winner(harness: Harness) -> None:
    """By samples/s the shorter block is faster, by tokens/s the longer one: without tokens neither is named."""
    (harness.folder / "loop.py").write_text(LENGTHS)
    pattern = r"tick (?P<step>\d+) cost (?P<loss>[\d.]+)"
    sweep = ("sweep", "-P", "block_size=32,64", "--samples-per-step", "8", "--repeats", "3", "--pattern", pattern, "--out", "out", "--json")
    last = json_line(harness.run(*sweep, "--", "python", "loop.py", "{block_size}"))
    assert (last["metric"], last["winner"], last["recommended"], last["decided"]) == ("samples_per_s", None, None, False)
    assert not harness.out.best_config_json.exists()
    summary = json.loads(harness.out.summary_json.read_text())
    assert "block_size (32 → 64)" in summary["winners"] and "{block_size}" not in json.dumps(summary["cautions"])
    names = [f"out:{row['summary']['group']}" for row in last["ranking"]]
    (one,) = json_line(harness.call("compare", *names, "--json", code=3))["comparisons"]
    assert (one["relation"], one["ratio"], one["loss"]["verdict"]) == (Relation.AMBIGUOUS.value, None, "unknown")
    assert "block_size (32 → 64)" in harness.call("compare", "out", code=2)
