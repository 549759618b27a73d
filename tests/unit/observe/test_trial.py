"""Which columns a host cannot fill, told before a campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.observe.trial import empty_columns
from seatrial.records.telemetry import GPU_COLUMNS
from tests.stubs.answers import answer
from tests.stubs.nvml import needs_compiler, told_by

TRIAL = "import json; from seatrial.observe.trial import empty_columns; print(json.dumps(empty_columns(patience_s={patience})))"


def test_without_a_driver_every_gpu_column_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.observe.telemetry.NVML_LIBRARY", "no-such-library.so")
    empty = empty_columns()
    assert empty["gpu_telemetry.csv"] == GPU_COLUMNS
    assert set(empty["host_telemetry.csv"]) <= {"disk_read_kib_per_s", "disk_write_kib_per_s"}, "a container may hide its disks"


@needs_compiler
def test_what_an_old_driver_lacks(tmp_path: Path) -> None:
    told = told_by(TRIAL.format(patience=60), tmp_path / "answers.txt", old_driver=True)
    assert told["gpu_telemetry.csv"] == ["energy_j"]


@needs_compiler
def test_a_driver_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    answers = tmp_path / "answers.txt"
    answer(answers, ("hang", 1))
    leave = "; import os, sys; sys.stdout.flush(); os._exit(0)"
    told = told_by(TRIAL.format(patience=0.5) + leave, answers)
    assert told["gpu_telemetry.csv"] == list(GPU_COLUMNS)
