"""Settings that a bundled workload itself refuses on this host."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from seatrial.machine.gpus import HUNG_DRIVER, Driver, Gpu
from seatrial.preflight import software
from seatrial.records.caution import Check
from seatrial.records.plan import RunSpec
from tests.unit.preflight.needs import by_name, make_need, make_run

NONE = Driver(problem="no GPU driver", no_driver=True)
TWO = Driver(gpus=(Gpu(index=0), Gpu(index=1)))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """fp16 needs a GPU; a folder must be there."""

    calls: ClassVar[list[tuple[str, int]]] = []
    dtype: str = "auto"
    tree: str = "."

    def host_problems(self, *, num_gpus: int, cwd: Path) -> list[tuple[str, str]]:
        Settings.calls.append((self.dtype, num_gpus))
        if self.dtype == "broken":
            raise OSError("a host so odd")
        problems = [("dtype", "fp16 needs a GPU and there is none: use bf16 or fp32.")] if self.dtype == "fp16" and not num_gpus else []
        return problems + ([] if (cwd / self.tree).is_dir() else [("tree", f"{self.tree} is not there: prepare it")])


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("seatrial_workloads.stub.settings")
    module.Settings = Settings  # type: ignore[attr-defined]
    for name, found in (("seatrial_workloads.stub", ModuleType("seatrial_workloads.stub")), ("seatrial_workloads.stub.settings", module)):
        monkeypatch.setitem(sys.modules, name, found)
    monkeypatch.setattr(software, "DEVICE_FILE", tmp_path / "none")
    Settings.calls.clear()


def checked(
    *runs: RunSpec, driver: Driver = NONE, monkeypatch: pytest.MonkeyPatch, caller: dict[str, str] | None = None
) -> dict[str, Check]:
    monkeypatch.setattr(software, "read_driver", lambda: driver)
    return by_name(software.check_workload_settings(make_need(*runs, caller=caller)))


def run(cwd: Path, dtype: str = "auto", **more: object) -> RunSpec:
    return make_run(cwd, bundled="stub", settings={"dtype": dtype, **more})


def test_what_cannot_work_here_is_refused_by_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(run(tmp_path, "fp16", tree="data"), monkeypatch=monkeypatch)
    assert list(found) == ["setting dtype", "setting tree"]
    check = found["setting dtype"]
    assert (check.ok, check.refuses) == (False, True)
    assert check.found == "fp16 needs a GPU and there is none: use bf16 or fp32"
    assert check.fix == "change dtype in `settings` or its axis, or run where it can be had"


@pytest.mark.parametrize(("caller", "num_gpus"), [({}, 2), ({"CUDA_VISIBLE_DEVICES": "1"}, 1), ({"CUDA_VISIBLE_DEVICES": ""}, 0)])
def test_it_is_asked_with_the_gpus_its_ranks_see(
    caller: dict[str, str], num_gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked(run(tmp_path), driver=TWO, monkeypatch=monkeypatch, caller=caller)
    assert Settings.calls == [("auto", num_gpus)]


def test_each_set_of_settings_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(*(run(tmp_path, dtype) for dtype in ("fp16", "bf16", "fp16")), monkeypatch=monkeypatch)
    assert sorted(Settings.calls) == [("bf16", 0), ("fp16", 0)] and list(found) == ["setting dtype"]


def test_workloads_without_the_hook_and_scripts_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(make_run(tmp_path, script="t.py"), make_run(tmp_path, bundled="dummy"), monkeypatch=monkeypatch) == {}


def test_of_gpus_that_nobody_can_count_it_is_only_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = checked(run(tmp_path, "fp16"), driver=HUNG_DRIVER, monkeypatch=monkeypatch)["setting dtype"]
    assert (check.ok, check.refuses) == (False, False)
