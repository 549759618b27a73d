"""Campaigns compared through the real command line: groups, rows of history, refusals."""

from __future__ import annotations

import json

from seatrial.records.comparison import Relation
from tests.harness import Harness

# Steps long enough that the sleep of a busy machine is small beside them.
PLAN = """
name: compared
workload: dummy
settings: {{log_every: 1, jitter_ratio: 0.02}}
launcher: python
place: {{kind: local, ranks: 1}}
axes: {{step_ms: [24, 12]}}
repeats: 3
steps: 60
telemetry: {{gpu_s: null, host_s: null}}
env: {env}
output: {out}
"""


def last_line(text: str) -> dict[str, object]:
    """The JSON document: the only line that is one."""
    return next(json.loads(line) for line in text.splitlines() if line.startswith("{"))


def test_groups_history_and_debug_settings(harness: Harness) -> None:
    history = {"SEATRIAL_HISTORY": str(harness.folder / "history.jsonl")}
    harness.run("run", str(harness.plan(PLAN.format(out="out", env="{}"))))
    told = last_line(harness.run("compare", "out:sm24.0", "out:sm12.0", "--json", "--margin", "10"))
    (one,) = told["comparisons"]  # type: ignore[misc]
    assert one["relation"] == Relation.FASTER.value and one["method"] == "paired t on logs, 3 pairs"
    assert one["differs"] == ["step_ms (24.0 → 12.0)"]
    assert 1.2 < one["ratio"]["mean"] < 2.5

    harness.run("history", "add", "out", env=history)
    rows = last_line(harness.run("history", "list", "--json", env=history))["rows"]
    slow = next(row["row"] for row in rows if row["group"] == "sm24.0")  # type: ignore[attr-defined]
    harness.run("history", "pin", str(slow), "before", env=history)
    against = harness.run("compare", "history:before", "sm12.0", "--in", "out", env=history)
    assert "sm12.0 against history:before: FASTER" in against


def test_debug_settings_are_not_mixed(harness: Harness) -> None:
    for out, env in (("plain", "{}"), ("traced", "{CUDA_LAUNCH_BLOCKING: '1'}")):
        harness.run("run", str(harness.plan(PLAN.format(out=out, env=env), f"{out}.yaml")), "--only", "sm12.0_r1")
    refused = harness.run("compare", "plain", "traced", code=2)
    assert "CUDA_LAUNCH_BLOCKING=1" in refused and "debug settings" in refused
