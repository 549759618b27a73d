"""GPUs in odd states, fed to the judgement; the states themselves are read through NVML (tests of machine/ and the gpu lane)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.machine import gpus as machine_gpus
from seatrial.machine.gpus import HUNG_DRIVER, Driver, Gpu, GpuProcess, GpuState
from seatrial.machine.nvml import Nvml
from seatrial.preflight import gpus
from seatrial.preflight.check_definition import Need
from seatrial.records.caution import Check
from tests.unit.preflight.needs import by_name, make_need, make_run

SOUND = GpuState(
    index=0, uuid="GPU-aa", name="H200", util_gpu_pct=0, mem_used_mib=4, mem_total_mib=143771, power_limit_w=700.0, power_default_w=700.0,
    ecc_uncorrected=0, persistence=True, performance_state=0, pcie_link_gen=5, pcie_gen_max=5, pcie_link_width=16, pcie_width_max=16,
    mig=False, compute_mode="default",
)  # fmt: skip
SECOND = replace(SOUND, index=1, uuid="GPU-bb")


def gpu(index: int) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}a", name="H200", compute_capability="9.0")


def judged(states: Sequence[GpuState], need: Need | None = None, here: Sequence[GpuState] | None = None) -> dict[str, Check]:
    return by_name(gpus.judge_states(states, here or states, need or make_need()))


def failed(state: GpuState) -> dict[str, str]:
    """Name → what was found, of the checks that are not ok."""
    return {check.name: check.found for check in judged([state]).values() if not check.ok}


def test_sound_gpus_are_all_ok() -> None:
    found = judged([SOUND, SECOND])
    assert [check.name for check in found.values() if not check.ok] == []
    assert found["GPUs idle"].found == "idle"


@pytest.mark.parametrize(
    ("change", "name", "found"),
    [
        ({"processes": (GpuProcess(pid=812, name="python", memory_mib=40000),)}, "GPUs idle", "GPU 0: python (pid 812, 40000 MiB)"),
        ({"processes": (GpuProcess(pid=9),)}, "GPUs idle", "GPU 0: a process (pid 9 on the host)"),
        ({"mem_used_mib": 5000}, "GPUs idle", "GPU 0: 5000 MiB in use by processes this container does not show"),
        ({"util_gpu_pct": 97}, "GPUs idle", "GPU 0: 97 % busy"),
        ({"power_limit_w": 500.0}, "GPU power cap", "GPU 0: 500 W of 700 W"),
        ({"throttle_reasons": "sw_power_cap+hw_thermal_slowdown"}, "GPU throttling", "GPU 0: hardware thermal"),
        ({"ecc_uncorrected": 3}, "GPU memory errors", "GPU 0: 3 uncorrected ECC errors"),
        ({"rows_pending": True}, "GPU memory errors", "GPU 0: a repair of memory waits for a reset"),
        ({"compute_mode": "prohibited"}, "GPU compute mode", "GPU 0: compute is prohibited"),
        ({"mig": True}, "MIG", "GPU 0: MIG is on"),
    ],
)
def test_each_trouble_is_found(change: dict[str, object], name: str, found: str) -> None:
    assert failed(replace(SOUND, **change)) == {name: found}  # type: ignore[arg-type]


def test_a_driver_that_reports_nothing_is_no_trouble() -> None:
    assert failed(GpuState(index=0)) == {}


def test_free_gpus_are_offered() -> None:
    busy = replace(SOUND, processes=(GpuProcess(pid=7, name="python"),))
    check = judged([busy], here=[busy, SECOND])["GPUs idle"]
    assert check.fix.endswith("place.include; free now: 1") and not check.refuses


def test_power_fix_is_a_command() -> None:
    capped = [replace(SOUND, power_limit_w=500.0), replace(SECOND, power_limit_w=500.0)]
    assert judged(capped)["GPU power cap"].fix == "sudo nvidia-smi -i 0,1 -pl 700, unless the cap is meant"


def test_a_link_at_rest_is_not_a_slow_link() -> None:
    low = {"pcie_link_gen": 1, "pcie_link_width": 8}
    assert failed(replace(SOUND, **low)) == {}  # type: ignore[arg-type]
    assert failed(replace(SOUND, **low, util_gpu_pct=99, performance_state=8))["GPUs idle"]  # type: ignore[arg-type]
    busy = failed(replace(SOUND, **low, util_gpu_pct=99))  # type: ignore[arg-type]
    assert busy["PCIe link"] == "GPU 0: generation 1 of 5, 8 lanes of 16"


def test_exclusive_mode_refuses_a_gpu_that_is_held_or_shared(tmp_path: Path) -> None:
    exclusive = replace(SOUND, compute_mode="exclusive process")
    assert judged([exclusive])["GPU compute mode"].ok
    held = judged([replace(exclusive, processes=(GpuProcess(pid=7, name="python"),))])["GPU compute mode"]
    assert (held.ok, held.refuses) == (False, True)
    shared = make_need(make_run(tmp_path, bundled="tiny_lm", devices=("0",), ranks=2))
    assert not judged([exclusive], shared)["GPU compute mode"].ok
    server = replace(exclusive, processes=(GpuProcess(pid=7, name="nvidia-cuda-mps"),))
    assert judged([server])["GPU compute mode"].ok, "the server that shares an exclusive GPU is no stranger"


def test_unlike_gpus_need_an_order(tmp_path: Path) -> None:
    states = [SOUND, replace(SECOND, name="A100")]
    assert not judged(states)["GPU order"].ok
    ordered = make_need(make_run(tmp_path, script="t.py", env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}))
    assert judged(states, ordered)["GPU order"].ok
    assert "GPU order" not in judged([SOUND, SECOND])


def test_many_troubles_stay_readable() -> None:
    states = [replace(SOUND, index=index, ecc_uncorrected=1) for index in range(16)]
    assert judged(states)["GPU memory errors"].found.endswith(" and 12 more")


def test_gpus_that_are_not_there(tmp_path: Path) -> None:
    here = [gpu(0), gpu(1)]
    assert gpus.check_count(make_need(make_run(tmp_path, bundled="dummy", devices=("0", "GPU-1a", "MIG-5"))), here).ok
    check = gpus.check_count(make_need(make_run(tmp_path, bundled="dummy", devices=("1", "2"))), here)
    assert (check.ok, check.refuses, check.found) == (False, True, "2 found (0, 1); requested: 1, 2")
    assert not gpus.check_count(make_need(make_run(tmp_path, bundled="dummy", devices=("GPU-zz",))), here).ok


def test_device_cuda_needs_a_gpu_for_each_rank(tmp_path: Path) -> None:
    def seen(ranks: int, base_env: dict[str, str]) -> bool:
        need = make_need(make_run(tmp_path, bundled="tiny_lm", ranks=ranks, settings={"device": "cuda"}), base_env=base_env)
        return by_name(gpus.check_visible(need, [gpu(0), gpu(1)]))["GPUs for tiny_lm"].ok

    assert seen(2, {}) and not seen(3, {})
    for ranks, limit in ((2, "1"), (1, ""), (1, "-1"), (1, "7"), (2, "0,7"), (2, "0,0")):
        assert not seen(ranks, {"CUDA_VISIBLE_DEVICES": limit}), limit
    assert seen(2, {"CUDA_VISIBLE_DEVICES": "1,GPU-0a"})
    assert seen(1, {"CUDA_VISIBLE_DEVICES": "MIG-5"}), "instances are left to CUDA"


def test_a_cpu_plan_does_not_care_for_gpus(tmp_path: Path) -> None:
    here = (gpu(0), gpu(1))
    on_cpu = make_run(tmp_path, bundled="tiny_lm", settings={"device": "cpu"})
    assert gpus.watched_gpus(make_need(on_cpu, make_run(tmp_path, bundled="dummy")), here) == ()
    assert len(gpus.watched_gpus(make_need(make_run(tmp_path, script="train.py")), here)) == 2
    assert len(gpus.watched_gpus(make_need(make_run(tmp_path, bundled="tiny_lm", devices=("0",))), here)) == 1
    assert len(gpus.watched_gpus(make_need(), here)) == 2


def test_no_driver_is_no_fault_and_a_broken_one_is() -> None:
    none, broken = Driver(problem="no GPU driver", no_driver=True), Driver(problem="NVML does not start: Driver/library version mismatch")
    assert gpus.knows_all_gpus(none, device_file=False) and gpus.check_driver(none, make_need(), certain=True).ok
    assert not gpus.knows_all_gpus(broken, device_file=True)
    check = gpus.check_driver(broken, make_need(), certain=False)
    assert not check.ok and "mismatch" in check.found and not check.refuses


def test_without_nvml_in_a_gpu_container_nothing_is_refused(tmp_path: Path) -> None:
    """A container may have CUDA and not NVML (capabilities `compute` without `utility`)."""
    none = Driver(problem="no GPU driver", no_driver=True)
    assert not gpus.knows_all_gpus(none, device_file=True)
    assert gpus.check_driver(none, make_need(), certain=False).found == "device files are here, but NVML's library is not"
    check = gpus.check_count(make_need(make_run(tmp_path, bundled="tiny_lm", devices=("0",))), [], certain=False)
    assert (check.ok, check.refuses) == (False, False)


def test_a_driver_that_hangs_refuses_what_asks_for_gpus_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "read_driver", lambda: HUNG_DRIVER)
    script, asking = make_run(tmp_path, script="t.py"), make_run(tmp_path, bundled="tiny_lm", devices=("0",))
    for need, refuses in ((make_need(), False), (make_need(script), False), (make_need(script, asking), True)):
        (check,) = gpus.check_gpus(need)
        assert (check.name, check.ok, check.refuses, check.found) == ("GPU driver", False, refuses, "the driver does not answer")


def test_a_driver_that_hangs_while_its_gpus_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "read_driver", lambda: Driver(gpus=(gpu(0),), version="570.10"))
    monkeypatch.setattr(gpus, "read_gpu_states", lambda here: None)
    (check,) = gpus.check_gpus(make_need())
    assert (check.name, check.ok) == ("GPU driver", False)


def test_the_gpus_are_read_once_however_many_runs_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    monkeypatch.setattr(gpus, "read_driver", lambda: (reads.append("driver"), Driver(gpus=(gpu(0), gpu(1)), version="570.10"))[1])
    monkeypatch.setattr(gpus, "read_gpu_states", lambda here: (reads.append("states"), (SOUND, SECOND))[1])
    assert all(check.ok for check in gpus.check_gpus(make_need(*[make_run(tmp_path, script="t.py")] * 1000)))
    assert reads == ["driver", "states"]


class Library:
    """A binding whose GPU answers some questions and not others."""

    class NVMLError(Exception):
        pass

    class NVMLLibraryMismatchError(Exception):
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> object:
        if version:
            raise self.NVMLError
        return type("Memory", (), {"used": 3 << 30, "total": 80 << 30, "free": 77 << 30})

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x4 | 0x40

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        return (0, 1, 1, 0)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: int) -> object:
        raise self.NVMLLibraryMismatchError("use a versioned function")

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: int) -> list[object]:
        return [type("Process", (), {"pid": 0, "usedGpuMemory": 5 << 20})]

    def nvmlDeviceGetComputeMode(self, handle: int) -> int:
        return 3


def test_states_are_read_as_far_as_the_driver_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_gpus, "call_nvml", lambda query: query(Nvml(library=Library())))
    assert machine_gpus.read_gpu_states([gpu(0)]) == (
        GpuState(
            index=0, uuid="GPU-0a", name="H200", processes=(GpuProcess(pid=0, memory_mib=5),), mem_used_mib=3072, mem_total_mib=81920,
            mem_free_mib=78848, throttle_reasons="sw_power_cap+hw_thermal_slowdown", rows_pending=True, rows_failed=False,
            compute_mode="exclusive process",
        ),
    )  # fmt: skip
