"""From a verdict back to the raw files, through the real command line: a finished campaign, a copy, an unfinished one."""

from __future__ import annotations

import json
import shlex
import shutil

from tests.harness import Harness

PLAN = """
name: why
workload: dummy
settings: {step_ms: 4, log_every: 10, warmup_steps: 3}
launcher: python
place: {kind: local, ranks: 2}
axes:
  micro_batch: [4, 8]
repeats: 2
steps: 40
timing: {log_every: 10}
criteria:
  - {metric: failed_runs, at_most: 0}
  - {metric: samples_per_s, scope: every_run, at_least: 1000000, reason: out of reach on purpose}
  - {metric: speedup_pct, scope: winner, at_least: 20}
output: out
"""


def test_every_statement_can_be_made_again_from_the_raw_files(harness: Harness) -> None:
    text = harness.run("run", str(harness.plan(PLAN)), code=2)
    assert "x [2] samples_per_s in every run" in text and "Also found" in text
    listed = harness.run("why", "out")
    assert "1-failed_runs-campaign  PASS" in listed and "2-samples_per_s-every_run  FAIL" in listed

    why = harness.run("why", "out", "2")
    for part in (
        "because   out of reach on purpose",
        "per_run_metrics.csv",
        "window    steps",
        "events_rank0.jsonl",
        "computed  samples a second",
    ):
        assert part in why, part
    command = next(line for line in why.splitlines() if "--remake" in line).split("remake", 1)[1]
    assert "The same, made again from the files of 4 runs." in harness.run(*shlex.split(command)[1:])
    assert "baseline: {history: NAME}" in harness.run("why", "out", "3")


def test_a_copy_is_traced_too_and_a_changed_file_is_found(harness: Harness) -> None:
    harness.run("run", str(harness.plan(PLAN)), code=2)
    shutil.copytree(harness.out.folder, harness.folder / "copy", symlinks=True)
    shutil.rmtree(harness.out.folder)
    assert "The same" in harness.run("why", "copy", "2", "--remake")

    outcome = harness.folder / "copy/mb4_r1/attempt-1/outcome.json"
    changed = json.loads(outcome.read_text()) | {"outcome": "failed", "cause": "exception"}
    outcome.write_text(json.dumps(changed))
    text = harness.run("why", "copy", "1", "--remake", code=2)
    assert "verdict: said PASS, the files give FAIL" in text


def test_an_unfinished_campaign_can_be_asked(harness: Harness) -> None:
    harness.run("run", str(harness.plan(PLAN)), "--only", "mb4", code=None)
    told = json.loads(harness.run("why", "out", "1", "--remake", "--json").splitlines()[-1])
    assert told["verdict"] == "INCONCLUSIVE" or told["same"] is True
    harness.out.verdict.unlink()
    assert "There is no verdict.json to compare with" in harness.run("why", "out", "1", "--remake")
