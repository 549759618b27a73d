"""Settings that a bundled workload itself refuses on this host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import psutil
import pytest

from seatrial.machine.gpus import HUNG_DRIVER, Driver, Gpu
from seatrial.machine.host import is_on_all_nodes
from seatrial.preflight import software
from seatrial.records.caution import Check
from seatrial.records.plan import SLURM, ContainerSpec, RunSpec, SlurmSpec
from tests.facts import states
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

    def source_problems(self, *, cwd: Path, env: Mapping[str, str], is_seen: Callable[[Path], bool]) -> list[tuple[str, str]]:
        cache = Path(env["CACHE"]) if "CACHE" in env else cwd
        return [("model", f"{cache} has no weights")] if self.dtype == "weights" and is_seen(cache) else []


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("seatrial_workloads.stub.settings")
    module.Settings = Settings  # type: ignore[attr-defined]
    for name, found in (("seatrial_workloads.stub", ModuleType("seatrial_workloads.stub")), ("seatrial_workloads.stub.settings", module)):
        monkeypatch.setitem(sys.modules, name, found)
    monkeypatch.setattr(software, "DEVICE_FILE", tmp_path / "none")
    Settings.calls.clear()


def checked(
    *runs: RunSpec, driver: Driver = NONE, monkeypatch: pytest.MonkeyPatch, base_env: dict[str, str] | None = None
) -> dict[str, Check]:
    monkeypatch.setattr(software, "read_driver", lambda: driver)
    return by_name(software.check_workload_settings(make_need(*runs, base_env=base_env)))


def run(cwd: Path, dtype: str = "auto", **more: object) -> RunSpec:
    return make_run(cwd, bundled="stub", settings={"dtype": dtype, **more})


def test_what_cannot_work_here_is_refused_by_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(run(tmp_path, "fp16", tree="data"), monkeypatch=monkeypatch)
    assert list(found) == ["setting dtype", "setting tree"]
    check = found["setting dtype"]
    assert (check.ok, check.refuses) == (False, True)
    assert check.found == "fp16 needs a GPU and there is none: use bf16 or fp32"
    assert states(check.fix, "dtype", "`settings`")


@pytest.mark.parametrize(("base_env", "num_gpus"), [({}, 2), ({"CUDA_VISIBLE_DEVICES": "1"}, 1), ({"CUDA_VISIBLE_DEVICES": ""}, 0)])
def test_it_is_asked_with_the_gpus_its_ranks_see(
    base_env: dict[str, str], num_gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked(run(tmp_path), driver=TWO, monkeypatch=monkeypatch, base_env=base_env)
    assert Settings.calls == [("auto", num_gpus)]


def test_each_set_of_settings_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(*(run(tmp_path, dtype) for dtype in ("fp16", "bf16", "fp16")), monkeypatch=monkeypatch)
    assert sorted(Settings.calls) == [("bf16", 0), ("fp16", 0)] and list(found) == ["setting dtype"]


def test_workloads_without_the_hook_and_scripts_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(make_run(tmp_path, script="t.py"), make_run(tmp_path, bundled="dummy"), monkeypatch=monkeypatch) == {}


def test_of_gpus_that_nobody_can_count_it_is_only_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = checked(run(tmp_path, "fp16"), driver=HUNG_DRIVER, monkeypatch=monkeypatch)["setting dtype"]
    assert (check.ok, check.refuses) == (False, False)


def test_what_ranks_read_is_judged_by_the_environment_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(run(tmp_path, "weights"), env={"CACHE": "/cache"})
    assert checked(spec, monkeypatch=monkeypatch, base_env={"CACHE": "/other"})["setting model"].found == "/cache has no weights"


@pytest.mark.parametrize(("shared", "container", "refused"), [("root", None, True), ("other", None, False), ("root", "image", False)])
def test_a_job_is_refused_before_it_is_submitted_where_nodes_see_what_is_seen_here(
    shared: str, container: str | None, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "read_driver", lambda: NONE)
    (tmp_path / "root" / "plan").mkdir(parents=True)
    spec = run(tmp_path / "root" / "plan", "weights")
    slurm = SlurmSpec(container=ContainerSpec(image=container) if container else None)
    job = replace(spec, place=replace(spec.place, kind=SLURM, slurm=slurm))
    need = replace(make_need(), whole_runs=(job,), shared=str(tmp_path / shared))
    checks = list(software.check_workload_settings(need))
    assert [check.refuses for check in checks] == ([True] if refused else [])
    # The job itself looks on its node.
    found = software.problems_on_node(job, {"CACHE": "/cache"})
    assert found == ([] if container else ["/cache has no weights"])


def test_without_a_shared_root_a_networks_file_system_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint="/mnt", fstype="nfs4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: parts)
    assert is_on_all_nodes(Path("/mnt/cache"), "") and not is_on_all_nodes(Path("/root"), "")
    assert not is_on_all_nodes(Path("/mnt/cache"), "/home") and is_on_all_nodes(Path("/home/a"), "/home")
