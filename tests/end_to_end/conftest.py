"""The harness in a folder of its own, which must leave no process behind, and one finished campaign that many tests copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MadeOnce
from tests.harness import Harness

SCRIPTS = Path(__file__).parent / "scripts"
FINISHED_PLAN = """
name: smoke
workload: dummy
settings: {step_ms: 4, log_every: 10, warmup_steps: 3}
launcher: python
place: {kind: local, ranks: 2}
axes:
  micro_batch: [4, 8]
repeats: 2
steps: 40
timing: {log_every: 10}
telemetry: {gpu_s: 0.5, host_s: 0.5}
criteria:
  - {metric: failed_runs, at_most: 0}
  - {metric: loss_falls, scope: every_run}
output: out
"""
FINISHED_RUNS = ("mb4_r1", "mb4_r2", "mb8_r1", "mb8_r2")
FINISHED_ENVIRONMENT = {"NCCL_ALGO": "Ring", "HF_TOKEN": "hf_not_for_you_1"}
FINISHED_OUTPUT = "output.txt"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    one = Harness(tmp_path)
    yield one
    one.close()
    assert one.left_behind() == []


@pytest.fixture(scope="session")
def finished_folder(made_once: MadeOnce) -> Path:
    """plan.yaml, out/ and the output of `seatrial run plan.yaml --json`. Read only."""
    return made_once("finished_campaign", _run_campaign)


def _run_campaign(folder: Path) -> None:
    harness = Harness(folder)
    text = harness.run("run", str(harness.plan(FINISHED_PLAN)), "--json", env=FINISHED_ENVIRONMENT)
    (folder / FINISHED_OUTPUT).write_text(text)


@pytest.fixture
def finished(harness: Harness, finished_folder: Path) -> Harness:
    """A harness in a copy of it."""
    shutil.copytree(finished_folder, harness.folder, symlinks=True, dirs_exist_ok=True)
    return harness
