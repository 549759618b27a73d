"""NVML itself cannot be had without a GPU: a module of the same names stands in for the binding."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.machine.fingerprint import fingerprint
from seatrial.machine.gpu_readings import NoGpus, open_gpus
from seatrial.machine.gpus import Driver, Gpu, chosen, driver_cuda, read_driver, visible_gpus
from seatrial.machine.provenance import gather


class FakeNvmlError(Exception):
    pass


def _refuse(*_: Any) -> Any:
    raise FakeNvmlError("not supported")


def _fake_nvml(names: list[str], **changes: Any) -> SimpleNamespace:
    functions = {
        "NVMLError": FakeNvmlError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: len(names),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: names[handle],
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}{handle}aa",
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
        "nvmlSystemGetDriverVersion": lambda: "570.10",
    }
    return SimpleNamespace(**{**functions, **changes})


def _install(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_every_fact_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, _fake_nvml(["H200"]))
    expected = Gpu(index=0, uuid="GPU-00aa", name="H200", compute_capability="9.0", power_limit_w=700.0, pcie_gen_max=5)
    assert read_driver() == Driver(gpus=(expected,), version="570.10")


def test_clocks_and_the_limit_nobody_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = {
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: 700_000 + handle,
        "nvmlSystemGetCudaDriverVersion": lambda: 12080,
    }
    _install(monkeypatch, _fake_nvml(["H200", "H200"], **told))
    found = gather(tmp_path, [], program=("/bin/ls",))
    assert found.gpu_clocks == "0:1980/3201;1:1980/3201"
    assert found.gpu_power_default_w == "700.00;700.00"
    assert found.cuda == "12.8", "the driver's, where no torch says one"


def test_driver_without_clocks_leaves_the_column_readable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, _fake_nvml(["H200"]))
    found = gather(tmp_path, [], program=("/bin/ls",))
    assert (found.gpu_clocks, found.gpu_power_default_w, found.cuda) == ("", "", "")


def test_no_driver_means_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, _fake_nvml(["H200"], nvmlInit=_refuse))
    assert read_driver() == Driver(problem="NVML does not start: not supported")
    assert driver_cuda() == ""


def test_no_binding_means_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, None)
    assert read_driver().gpus == ()


def test_a_start_that_failed_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def fail() -> None:
        starts.append(1)
        _refuse()

    _install(monkeypatch, _fake_nvml(["H200"], nvmlInit=fail))
    assert read_driver() == read_driver() and open_gpus((), {}, 1) == NoGpus("NVML does not start: not supported", expected=False)
    assert len(starts) == 1


def test_what_a_driver_cannot_tell_is_none_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = _fake_nvml(["GB10"], nvmlDeviceGetEnforcedPowerLimit=_refuse, nvmlDeviceGetCudaComputeCapability=_refuse)
    del fake.nvmlDeviceGetMaxPcieLinkGeneration
    _install(monkeypatch, fake)
    (gpu,) = read_driver().gpus
    assert (gpu.name, gpu.compute_capability, gpu.power_limit_w, gpu.pcie_gen_max) == ("GB10", "", None, None)


def test_devices_by_index_and_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, _fake_nvml(["A", "B", "C"]))
    assert [gpu.name for gpu in chosen(read_driver().gpus, ["2", "GPU-00"])] == ["C", "A"]
    assert chosen(read_driver().gpus, ["7"]) == ()


@pytest.mark.parametrize(("limit", "seen"), [("1", ["B"]), ("", []), ("-1", []), ("1,0", ["B", "A"]), ("0,0", ["A"]), ("1,7,0", ["B"])])
def test_callers_visible_devices_count_when_the_run_names_none(monkeypatch: pytest.MonkeyPatch, limit: str, seen: list[str]) -> None:
    _install(monkeypatch, _fake_nvml(["A", "B"]))
    assert [gpu.name for gpu in visible_gpus(read_driver().gpus, (), {"CUDA_VISIBLE_DEVICES": limit})] == seen
    assert [gpu.name for gpu in visible_gpus(read_driver().gpus, ("0",), {"CUDA_VISIBLE_DEVICES": limit})] == ["A"]


def test_seed_columns_of_like_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, _fake_nvml(["H200", "H200"]))
    found = gather(tmp_path, ["0", "1"])
    assert found.gpu_name == "H200"
    assert found.gpu_cc == "0:9.0;1:9.0"
    assert found.gpu_uuid_list == "GPU-00aa;GPU-11aa"
    assert found.gpu_power_limit_w == "700.00;700.00"
    assert found.pcie_gen == "5"


def test_unlike_gpus_are_all_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, _fake_nvml(["H200", "V100"]))
    assert gather(tmp_path, []).gpu_name == "H200;V100"


def test_power_cap_changes_the_fingerprint_and_serial_number_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = _fake_nvml(["H200"])
    _install(monkeypatch, fake)
    first = gather(tmp_path, [])
    fake.nvmlDeviceGetUUID = lambda handle: "GPU-other"
    assert gather(tmp_path, []).fingerprint == first.fingerprint
    fake.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 350_000
    assert gather(tmp_path, []).fingerprint != first.fingerprint
    assert fingerprint(first) == first.fingerprint


def test_like_cards_in_other_slots_or_numbers_are_one_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, _fake_nvml(["H200", "H200", "V100"]))
    one, other, both = (gather(tmp_path, devices) for devices in (["0"], ["1"], ["0", "1"]))
    assert one.gpu_cc == "0:9.0" and other.gpu_cc == "1:9.0", "the columns keep the seeds' text"
    assert one.fingerprint == other.fingerprint == both.fingerprint
    assert gather(tmp_path, ["0", "2"]).fingerprint not in (one.fingerprint, gather(tmp_path, ["2"]).fingerprint)


def test_unlike_power_cap_of_one_card_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, _fake_nvml(["H200", "H200"], nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000 - 350_000 * handle))
    assert gather(tmp_path, ["0", "1"]).fingerprint == gather(tmp_path, ["1", "0"]).fingerprint != gather(tmp_path, ["0"]).fingerprint


def test_visible_devices_of_the_run_count_before_the_callers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, _fake_nvml(["A", "B"]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert gather(tmp_path, []).gpu_name == "A"
    assert gather(tmp_path, [], env={"CUDA_VISIBLE_DEVICES": "1"}).gpu_name == "B"
    assert gather(tmp_path, [], env={}).gpu_name == "A;B"
