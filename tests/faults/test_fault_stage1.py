"""Stage 1 under the real deepspeed launcher: a sweep that is killed in the middle and resumed."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path

import pytest

from tests.csv_files import rows_of
from tests.faults.campaigns import outcomes, send, started_ranks
from tests.harness import LIGHT_DEEPSPEED, Harness
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed"),
]

SWEEP = f"""
name: stage1
workload: contrastive
settings:
  engine: deepspeed
  device: cpu
  dataset_root: SPEECH
  dataset_manifest_path: SPEECH/manifest.tsv
  fixed_slice_s: 1.0
  num_workers: 0
launcher: deepspeed
place: {{kind: local, ranks: 2}}
axes: {{zero_stage: [1], micro_batch: [2, 4]}}
order: nested
repeats: 1
steps: 30
env: {{OMP_NUM_THREADS: 1, PYTHONPATH: "{LIGHT_DEEPSPEED}"}}
telemetry: {{gpu_s: null, host_s: null}}
limits: {{soft_s: 3, term_s: 3}}
output: out
"""


@pytest.mark.timeout(600)
def test_a_deepspeed_sweep_killed_in_the_middle_goes_on(harness: Harness, speech: Path) -> None:
    plan = str(harness.plan(SWEEP.replace("SPEECH", str(speech))))
    killed = harness.start("run", plan)
    wait_until(lambda: any(harness.out.folder.glob("*/attempt-1/outcome.json")), "the first run ends", 300)
    started_ranks(harness, 2)
    send(killed.pid, signal.SIGKILL)
    wait_until(lambda: not harness.left_behind(), "every process of it ends", 60)
    killed.wait(60)
    harness.run("run", plan)
    ended = outcomes(harness)
    assert len([key for key, (outcome, _) in ended.items() if outcome == "ok"]) == 2
    assert len([key for key in ended if key.endswith("/2")]) == 1, "only the run that was killed is run again"
    assert [row["zero_stage"] for row in rows_of(harness.out.folder / "per_run_metrics.csv")] == ["1"] * 2
