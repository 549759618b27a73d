"""Both samplers of a run, from what the order asks for to telemetry.json."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.files import read_json
from seatrial.observe import telemetry
from seatrial.observe.sampler import Nothing
from seatrial.observe.telemetry import GpuSource, HostSource, Telemetry, open_gpu_source, start_telemetry
from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import TelemetrySpec
from seatrial.records.telemetry import SamplerAccount
from tests.unit.agent.runs import order_for


class FakeSampler:
    """Counts what is asked of it."""

    def __init__(self, stuck: bool = False) -> None:
        self.stops, self.patience_s, self.stuck = 0, -1.0, stuck

    def stop(self) -> None:
        self.stops += 1

    def account(self, patience_s: float) -> SamplerAccount:
        self.patience_s = patience_s
        return SamplerAccount(interval_s=1.0)


def _telemetry(folder: Path, gpu: FakeSampler | None, host: FakeSampler | None) -> Telemetry:
    return Telemetry(AttemptPaths(folder), gpu, host)  # type: ignore[arg-type]


def test_both_are_asked_to_stop_once_and_waited_for_within_one_patience(tmp_path: Path) -> None:
    gpu, host = FakeSampler(), FakeSampler()
    one = _telemetry(tmp_path, gpu, host)
    one.stop()
    one.finish()
    assert (gpu.stops, host.stops) == (1, 1) and 0.0 <= gpu.patience_s <= host.patience_s <= telemetry.FINISH_S
    told = read_json(AttemptPaths(tmp_path).telemetry)
    assert told is not None and told["gpu"] is not None and told["host"] is not None


def test_what_was_not_asked_for_has_no_account(tmp_path: Path) -> None:
    _telemetry(tmp_path, None, FakeSampler()).finish()
    told = read_json(AttemptPaths(tmp_path).telemetry)
    assert told is not None and told.get("gpu") is None and told["host"] is not None


def test_one_that_hangs_is_told_of(tmp_path: Path) -> None:
    assert _telemetry(tmp_path, FakeSampler(stuck=True), FakeSampler()).stuck
    assert not _telemetry(tmp_path, None, FakeSampler()).stuck and not _telemetry(tmp_path, None, None).stuck


def test_a_disk_that_takes_nothing_is_an_error_of_the_callers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        _telemetry(tmp_path / "file", None, None).finish()


@pytest.mark.parametrize(("own", "into"), [("", "run/attempt-1"), ("run/attempt-1/nodes/n1", "run/attempt-1/nodes/n1")])
def test_rows_go_to_the_folder_that_is_the_nodes_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, into: str) -> None:
    made: list[tuple[Path, float, str]] = []

    def sampler(source: Any, path: Path, columns: Any, interval_s: float, asked: str) -> SimpleNamespace:
        made.append((path, interval_s, asked))
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr(telemetry, "Sampler", sampler)
    order = replace(order_for(tmp_path, ""), own_folder=str(tmp_path / own) if own else "", telemetry=TelemetrySpec(gpu_s=2.0, host_s=5.0))
    start_telemetry(order, {})
    paths = AttemptPaths(tmp_path / into)
    assert made == [(paths.gpu_telemetry, 2.0, "the driver"), (paths.host_telemetry, 5.0, "the kernel")]


def test_nothing_is_sampled_that_nobody_asked_for(tmp_path: Path) -> None:
    one = start_telemetry(order_for(tmp_path, ""), {})
    one.finish()
    assert not list((tmp_path / "run" / "attempt-1").glob("*_telemetry.csv"))


def test_without_a_driver_there_is_nothing_to_look_at_and_that_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "NVML_LIBRARY", "libno-such-driver.so.1")
    found = open_gpu_source((), {}, 1)
    assert isinstance(found, Nothing) and found.expected and found.note == "no GPU"


def test_sources_pass_on_what_the_readings_give() -> None:
    gpu: Any = SimpleNamespace(look=lambda last: iter([{"last": last}]), notes=lambda: ["one GPU is lost"])
    host: Any = SimpleNamespace(look=lambda: {"load1": 1.0})
    assert list(GpuSource(gpu).look(last=True)) == [{"last": True}] and GpuSource(gpu).notes() == ["one GPU is lost"]
    assert list(HostSource(host).look(last=False)) == [{"load1": 1.0}] and HostSource(host).notes() == []
