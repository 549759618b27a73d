"""Telemetry of one run, and which columns this host can fill."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.core.files import read_json
from seatrial.core.paths import AttemptPaths
from seatrial.machine import run_telemetry
from seatrial.machine.run_telemetry import Telemetry, empty_columns, open_gpu_source, start_telemetry
from seatrial.machine.sampler import Unavailable
from seatrial.records.columns import TELEMETRY_FIGURES
from seatrial.records.plan import TelemetrySpec
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, SamplerAccount
from tests.stubs.answers import answer
from tests.stubs.nvml import needs_compiler, told_by
from tests.unit.agent.running import order_for


class FakeSampler:
    """Counts calls."""

    def __init__(self, stuck: bool = False) -> None:
        self.stops, self.wait_s, self.stuck = 0, -1.0, stuck

    def stop(self) -> None:
        self.stops += 1

    def account(self, wait_s: float) -> SamplerAccount:
        self.wait_s = wait_s
        return SamplerAccount(interval_s=1.0)


def _telemetry(folder: Path, gpu: FakeSampler | None, host: FakeSampler | None) -> Telemetry:
    return Telemetry(AttemptPaths(folder), gpu, host)  # type: ignore[arg-type]


def test_both_samplers_stop_once_within_one_timeout(tmp_path: Path) -> None:
    gpu, host = FakeSampler(), FakeSampler()
    one = _telemetry(tmp_path, gpu, host)
    one.stop()
    one.finish()
    assert (gpu.stops, host.stops) == (1, 1) and 0.0 <= gpu.wait_s <= host.wait_s <= run_telemetry.FINISH_S
    found = read_json(AttemptPaths(tmp_path).telemetry)
    assert found is not None and found["gpu"] is not None and found["host"] is not None


def test_a_sampler_that_was_not_requested_has_no_account(tmp_path: Path) -> None:
    _telemetry(tmp_path, None, FakeSampler()).finish()
    found = read_json(AttemptPaths(tmp_path).telemetry)
    assert found is not None and found.get("gpu") is None and found["host"] is not None


def test_a_hung_sampler_is_stuck(tmp_path: Path) -> None:
    assert _telemetry(tmp_path, FakeSampler(stuck=True), FakeSampler()).stuck
    assert not _telemetry(tmp_path, None, FakeSampler()).stuck and not _telemetry(tmp_path, None, None).stuck


def test_a_disk_that_takes_nothing_is_an_error_of_the_callers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        _telemetry(tmp_path / "file", None, None).finish()


@pytest.mark.parametrize(("own", "into"), [("", "run/attempt-1"), ("run/attempt-1/nodes/n1", "run/attempt-1/nodes/n1")])
def test_rows_go_to_the_folder_that_is_the_nodes_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, into: str) -> None:
    created: list[tuple[Path, float, str]] = []

    def sampler(source: Any, path: Path, columns: Any, interval_s: float, source_name: str) -> SimpleNamespace:
        created.append((path, interval_s, source_name))
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr(run_telemetry, "Sampler", sampler)
    order = replace(order_for(tmp_path, ""), own_folder=str(tmp_path / own) if own else "", telemetry=TelemetrySpec(gpu_s=2.0, host_s=5.0))
    start_telemetry(order, {})
    paths = AttemptPaths(tmp_path / into)
    assert created == [(paths.gpu_telemetry, 2.0, "the driver"), (paths.host_telemetry, 5.0, "the kernel")]


def test_nothing_is_sampled_without_a_request(tmp_path: Path) -> None:
    one = start_telemetry(order_for(tmp_path, ""), {})
    one.finish()
    assert not list((tmp_path / "run" / "attempt-1").glob("*_telemetry.csv"))


def test_without_a_driver_there_is_nothing_to_look_at_and_that_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_telemetry, "NVML_LIBRARY", "libno-such-driver.so.1")
    found = open_gpu_source((), {}, 1)
    assert isinstance(found, Unavailable) and found.expected and found.note == "no GPU"


PAGE = (Path(__file__).parents[3] / "docs" / "files.md").read_text()


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("### gpu_telemetry.csv", GPU_COLUMNS),
        ("### host_telemetry.csv", HOST_COLUMNS),
        ("### telemetry.json", tuple(field.name for field in fields(SamplerAccount))),
        ("## per_run_metrics.csv", TELEMETRY_FIGURES),
    ],
)
def test_every_name_is_described_under_its_file(heading: str, names: tuple[str, ...]) -> None:
    section = PAGE.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    assert [name for name in names if f"`{name}`" not in section] == []


TRIAL = "import json; from seatrial.machine.run_telemetry import empty_columns; print(json.dumps(empty_columns(timeout_s={timeout_s})))"


def test_without_a_driver_every_gpu_column_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.machine.run_telemetry.NVML_LIBRARY", "no-such-library.so")
    empty = empty_columns()
    assert empty["gpu_telemetry.csv"] == GPU_COLUMNS
    assert set(empty["host_telemetry.csv"]) <= {"disk_read_kib_per_s", "disk_write_kib_per_s"}, "a container may hide its disks"


@needs_compiler
def test_what_an_old_driver_lacks(tmp_path: Path) -> None:
    found = told_by(TRIAL.format(timeout_s=60), tmp_path / "answers.txt", old_driver=True)
    assert found["gpu_telemetry.csv"] == ["energy_j"]


@needs_compiler
def test_a_driver_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    answers = tmp_path / "answers.txt"
    answer(answers, ("hang", 1))
    leave = "; import os, sys; sys.stdout.flush(); os._exit(0)"
    found = told_by(TRIAL.format(timeout_s=0.5) + leave, answers)
    assert found["gpu_telemetry.csv"] == list(GPU_COLUMNS)
