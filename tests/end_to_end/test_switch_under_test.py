"""Old against tuned, where one of the differences is a switch for finding faults: the plan varies it, so the comparison is decided."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness import Harness

SCRIPT = Path(__file__).parent / "scripts/ab_train.py"
# As the A/B of stage 1 has it, in the small.
PLAN = f"""
name: ab
workload:
  script: {SCRIPT}
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


def test_a_switch_that_the_plan_varies_is_compared_and_told(harness: Harness) -> None:
    harness.run("run", str(harness.plan(PLAN)), code=0)
    verdict = json.loads((harness.folder / "out/verdict.json").read_text())
    assert {finding["verdict"] for finding in verdict["findings"]} == {"PASS"}
    told = harness.run("compare", "out:old_like", "out:tuned")
    assert "FASTER" in told and "wall_clock_breakdown" in told
    assert "wall_clock_breakdown=true" in (harness.folder / "out/summary.md").read_text()
