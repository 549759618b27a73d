"""From a verdict back to the raw files, through the real command line: a finished campaign, a damaged one, an unfinished one."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.end_to_end.conftest import FINISHED_PLAN
from tests.harness import Harness

CRITERIA = """criteria:
  - {metric: failed_runs, at_most: 0}
  - {metric: samples_per_s, scope: every_run, at_least: 1000000, reason: out of reach on purpose}
  - {metric: speedup_pct, scope: winner, at_least: 20}
output: out
"""


@pytest.fixture
def failed(finished: Harness) -> Harness:
    """The finished campaign, judged by criteria that it does not meet."""
    plan = FINISHED_PLAN.partition("criteria:")[0] + CRITERIA
    text = finished.run("run", str(finished.plan(plan)), "--full", code=2)
    assert "x [2] samples_per_s in every run" in text and "Other findings" in text
    return finished


def test_every_statement_can_be_recomputed_from_the_raw_files(failed: Harness) -> None:
    listed = failed.run("why", "out")
    assert "1-failed_runs-campaign  PASS" in listed and "2-samples_per_s-every_run  FAIL" in listed

    why = failed.run("why", "out", "2")
    for part in ("out of reach on purpose", "per_run_metrics.csv", "window    steps", "events_rank0.jsonl", "computed  samples a second"):
        assert part in why, part
    command = next(line for line in why.splitlines() if "--remake" in line).split("recompute", 1)[1]
    assert "The same, recomputed from the files of 4 runs." in failed.run(*shlex.split(command)[1:])
    assert "baseline: {history: NAME}" in failed.run("why", "out", "3")


def test_a_changed_file_is_found(failed: Harness) -> None:
    outcome = failed.out.run("mb4_r1").attempt(1).outcome
    outcome.write_text(json.dumps(json.loads(outcome.read_text()) | {"outcome": "failed", "cause": "exception"}))
    assert "verdict: recorded PASS, recomputed: FAIL" in failed.run("why", "out", "1", "--remake", code=2)


def test_a_campaign_without_a_verdict_is_traced(finished: Harness) -> None:
    document = json.loads(finished.call("why", "out", "1", "--remake", "--json").splitlines()[-1])
    assert document["same"] is True
    finished.out.verdict.unlink()
    assert "There is no verdict.json to compare with" in finished.call("why", "out", "1", "--remake")
