"""A training that crashed goes on from its last checkpoint when the same command is typed again. Killed ones are in tests/faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.csv_files import rows_of
from tests.end_to_end.conftest import SCRIPTS
from tests.harness import Harness

INCONCLUSIVE = 3
KILLED_AFTER_CHECKPOINT = SCRIPTS / "killed_after_checkpoint"
SCRIPT = f"""
name: own
workload: {{script: {SCRIPTS / "resuming_job.py"}}}
launcher: python
steps: 12
telemetry: {{gpu_s: null, host_s: null}}
criteria: [{{metric: steps_done, at_least: 12}}, {{metric: loss_falls, scope: every_run}}]
output: out
"""


def outcome(harness: Harness, attempt: int) -> dict[str, Any]:
    (run,) = harness.out.runs()
    read: dict[str, Any] = json.loads(run.attempt(attempt).outcome.read_text())
    return read


def losses(harness: Harness, attempt: int, rank: int = 0) -> dict[int, float]:
    (run,) = harness.out.runs()
    events = map(json.loads, run.attempt(attempt).events(rank).read_text().splitlines())
    return {event["step"]: event["loss"] for event in events if event["kind"] == "step"}


def test_a_script_that_crashed_goes_on_and_the_report_joins_its_attempts(harness: Harness) -> None:
    plan = str(harness.plan(SCRIPT))
    harness.run("run", plan, code=INCONCLUSIVE)
    assert "would resume from attempt 1 (its checkpoints)" in harness.call("plan", "show", plan)
    text = harness.run("run", plan)
    assert "resumes from attempt 1 (its checkpoints)" in text
    first, second = outcome(harness, 1), outcome(harness, 2)
    assert (first["outcome"], second["outcome"], first["hash"]) == ("failed", "ok", second["hash"])
    # Steps 0 to 7 were taken, the checkpoint is of step 6.
    assert (second["resumed_from"], second["resumed_at"], second["lost_steps"]) == (1, 7, 1)
    assert second["downtime_s"] == pytest.approx(second["started_t"] - first["ended_t"], abs=0.01)
    assert list(losses(harness, 2)) == list(range(7, 12))
    (row,) = rows_of(harness.out.per_run_metrics)
    assert (row["attempt"], row["resumed_from"], row["resumed_at"], row["lost_steps"]) == ("2", "1", "7", "1")
    assert float(row["first_loss"]) == pytest.approx(9.0), "of the whole training"
    assert "Trained in 2 attempts: attempt 2 resumed at step 7" in harness.out.summary_md.read_text()
