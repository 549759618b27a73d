"""GPUs: listing them, which are visible, their state, a driver that hangs, what DeepSpeed is given."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.core.timeouts import CallTimeout, has_hung_call
from seatrial.machine import gpus, nvml
from seatrial.machine.gpus import (
    HUNG_DRIVER,
    Driver,
    Gpu,
    deepspeed_gpu_indices,
    driver_cuda_version,
    read_driver,
    runs_on_cpu,
    visible_gpus,
)
from seatrial.machine.nvml import Nvml, call_nvml
from seatrial.machine.provenance import compute_fingerprint, gather_provenance
from seatrial.machine.telemetry import NoGpus, open_gpu_telemetry
from tests.stubs.answers import answer
from tests.stubs.nvml import environment, needs_compiler, told_by
from tests.unit.launch.factory import make_spec
from tests.waiting import wait_until


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


def test_columns_of_the_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    functions = {
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: 700_000 + handle,
        "nvmlSystemGetCudaDriverVersion": lambda: 12080,
    }
    _install(monkeypatch, _fake_nvml(["H200", "H200"], **functions))
    found = gather_provenance(tmp_path, ["0", "1"], program=("/bin/ls",))
    assert (found.gpu_name, found.gpu_cc, found.gpu_uuid_list) == ("H200", "0:9.0;1:9.0", "GPU-00aa;GPU-11aa")
    assert (found.gpu_power_limit_w, found.pcie_gen, found.gpu_clocks) == ("700.00;700.00", "5", "0:1980/3201;1:1980/3201")
    assert (found.gpu_power_default_w, found.cuda) == ("700.00;700.00", "12.8"), "the driver's CUDA, without a torch"


def test_columns_of_unlike_gpus_and_of_an_old_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, _fake_nvml(["H200", "V100"]))
    found = gather_provenance(tmp_path, [], program=("/bin/ls",))
    assert (found.gpu_name, found.gpu_clocks, found.gpu_power_default_w, found.cuda) == ("H200;V100", "", "", "")


@pytest.mark.parametrize("fake", [None, _fake_nvml(["H200"], nvmlInit=_refuse)])
def test_without_binding_or_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    _install(monkeypatch, fake)
    assert read_driver().gpus == () and read_driver().problem and driver_cuda_version() == ""


def test_a_start_that_failed_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []

    def fail() -> None:
        starts.append(1)
        _refuse()

    _install(monkeypatch, _fake_nvml(["H200"], nvmlInit=fail))
    assert read_driver() == read_driver() and open_gpu_telemetry((), {}, 1) == NoGpus("NVML does not start: not supported", expected=False)
    assert len(starts) == 1


def test_what_a_driver_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = _fake_nvml(["GB10"], nvmlDeviceGetEnforcedPowerLimit=_refuse, nvmlDeviceGetCudaComputeCapability=_refuse)
    del fake.nvmlDeviceGetMaxPcieLinkGeneration
    _install(monkeypatch, fake)
    (gpu,) = read_driver().gpus
    assert (gpu.name, gpu.compute_capability, gpu.power_limit_w, gpu.pcie_gen_max) == ("GB10", "", None, None)


@pytest.mark.parametrize(("limit", "seen"), [("1", ["B"]), ("", []), ("-1", []), ("1,0", ["B", "A"]), ("0,0", ["A"]), ("1,7,0", ["B"])])
def test_visible_devices_of_the_caller_count_when_the_run_names_none(limit: str, seen: list[str]) -> None:
    both = [Gpu(index=0, uuid="GPU-00aa", name="A"), Gpu(index=1, uuid="GPU-11aa", name="B")]
    assert [gpu.name for gpu in visible_gpus(both, (), {"CUDA_VISIBLE_DEVICES": limit})] == seen
    assert [gpu.name for gpu in visible_gpus(both, ("1", "GPU-00", "7"), {"CUDA_VISIBLE_DEVICES": limit})] == ["B", "A"]


@pytest.mark.parametrize(
    ("names", "limits_w", "one", "other", "is_same"),
    [
        (["H200", "H200"], [700, 700], ["0"], ["1"], True),
        (["H200", "H200"], [700, 700], ["0"], ["0", "1"], True),
        (["H200", "H200"], [700, 350], ["0", "1"], ["1", "0"], True),
        (["H200", "H200"], [700, 350], ["0"], ["0", "1"], False),
        (["H200", "V100"], [700, 700], ["0"], ["0", "1"], False),
    ],
)
def test_equal_cards_in_other_slots_are_one_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: list[str], limits_w: list[int], one: list[str], other: list[str], is_same: bool
) -> None:
    _install(monkeypatch, _fake_nvml(names, nvmlDeviceGetEnforcedPowerLimit=lambda handle: limits_w[handle] * 1000))
    fingerprints = {gather_provenance(tmp_path, devices).fingerprint for devices in (one, other)}
    assert (len(fingerprints) == 1) is is_same


def test_power_cap_changes_the_fingerprint_and_serial_number_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = _fake_nvml(["H200"])
    _install(monkeypatch, fake)
    first = gather_provenance(tmp_path, [])
    fake.nvmlDeviceGetUUID = lambda handle: "GPU-other"
    assert gather_provenance(tmp_path, []).fingerprint == first.fingerprint
    fake.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 350_000
    assert gather_provenance(tmp_path, []).fingerprint != first.fingerprint
    assert compute_fingerprint(first) == first.fingerprint


def test_visible_devices_of_the_run_count_before_the_callers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, _fake_nvml(["A", "B"]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert gather_provenance(tmp_path, []).gpu_name == "A"
    assert gather_provenance(tmp_path, [], env={"CUDA_VISIBLE_DEVICES": "1"}).gpu_name == "B"
    assert gather_provenance(tmp_path, [], env={}).gpu_name == "A;B"


# Shorter than NVML_TIMEOUT_S, so that the tests are quick.
DRIVER_TIMEOUT_S = 1.0
SET_TIMEOUT = f"from seatrial.machine import nvml; nvml.NVML_TIMEOUT_S = {DRIVER_TIMEOUT_S}"
# Far less than for ever: these machines may be loaded.
TEST_TIMEOUT_S = 60.0
LEAVE = "import os, sys; sys.stdout.flush(); os._exit(0)"


@pytest.fixture
def hung(tmp_path: Path) -> Path:
    answers = tmp_path / "answers.txt"
    answer(answers, ("hang", 1))
    return answers


def test_a_hung_query_is_waited_for_once_and_made_again_after_a_late_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    released, asked = threading.Event(), []
    monkeypatch.setattr(nvml, "start_nvml", Nvml)

    def query(found: Nvml) -> int:
        asked.append(found)
        released.wait(60)
        return len(asked)

    for _ in range(3):
        with pytest.raises(CallTimeout):
            call_nvml(query, timeout_s=0.01)
    assert len(asked) == 1 and has_hung_call()
    released.set()
    wait_until(lambda: not has_hung_call(), "the call returns")
    assert call_nvml(query, timeout_s=60.0) == 2


@needs_compiler
def test_provenance_records_a_hung_driver_and_waits_once(hung: Path) -> None:
    script = f"""
import json, threading
from seatrial.core.timeouts import THREAD
from seatrial.machine import provenance
{SET_TIMEOUT}
first, again = (provenance.gather_provenance(Path("/"), ["0"]) for _ in range(2))
facts = [first.driver_version, first.gpu_name, first.gpu_cc, first.gpu_power_limit_w, first.fingerprint == again.fingerprint]
print(json.dumps([facts, [thread.name for thread in threading.enumerate()].count(THREAD)]))
{LEAVE}
"""
    facts, hung_calls = told_by(script, hung)
    assert facts == ["no answer", "", "", "", True]
    assert hung_calls == 1, "the second time the driver is not asked"


@needs_compiler
def test_preflight_ends_and_refuses_a_run_that_asks_for_gpus(hung: Path, tmp_path: Path) -> None:
    script = f"""
import json
{SET_TIMEOUT}
from seatrial.preflight.run_checks import fast_checks
from seatrial.preflight.check_definition import need_of
from seatrial.records.plan import CampaignPlan
from tests.unit.preflight.needs import make_run
told = []
for devices in ((), ("0",)):
    run = make_run(Path("/"), bundled="dummy", devices=devices)
    found = fast_checks(need_of(CampaignPlan(name="p", output={str(tmp_path)!r}, runs=(run,))))
    told.append([[check.ok, check.refuses, check.found] for check in found if check.name == "GPU driver"])
print(json.dumps(told))
{LEAVE}
"""
    assert told_by(script, hung) == [
        [[False, False, "the driver does not answer"]],
        [[False, True, "the driver does not answer"]],
    ]


@needs_compiler
@pytest.mark.parametrize("options", [("--fast",), ()])
def test_the_doctor_ends(hung: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    code = f"{SET_TIMEOUT}; from seatrial.cli.main import main; main()"
    argv = [sys.executable, "-c", code, "doctor", "--json", *options]
    done = subprocess.run(argv, env=environment(hung), cwd=tmp_path, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, checks["GPU driver"]["status"]) == (0, "warning"), done.stderr


@needs_compiler
def test_an_old_driver_is_queried_by_its_older_functions(tmp_path: Path) -> None:
    answers = tmp_path / "answers.txt"
    answer(answers, ("pid", 2**22 + 1), ("reasons", 0x8), ("count", 2))
    script = """
import json
from seatrial.preflight import gpus
from tests.unit.preflight.needs import make_need
print(json.dumps({check.name: check.found for check in gpus.check_gpus(make_need()) if not check.ok}))
"""
    for old_driver in (True, False):
        found = told_by(script, answers, old_driver=old_driver)
        assert set(found) == {"GPUs idle", "GPU throttling", "PCIe link"}
        assert found["GPU throttling"] == "GPU 0: hardware slowdown; GPU 1: hardware slowdown"
        assert "GPU 0: a process (pid 4194305 on the host, 1 MiB)" in found["GPUs idle"]


FOUR = Driver(gpus=tuple(Gpu(index=index, uuid=f"GPU-{index}a") for index in range(4)))
NONE = Driver(problem="no GPU driver", no_driver=True)


@pytest.fixture(autouse=True)
def no_device_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpus, "DEVICE_FILE", tmp_path / "none")


@pytest.mark.parametrize(
    ("devices", "num_ranks", "variables", "indices"),
    [
        (("2", "3"), 2, {}, ("2", "3")),
        (("2", "3"), 2, {"CUDA_VISIBLE_DEVICES": "0"}, ("2", "3")),
        # A number of GPUs alone would make deepspeed take 0 and 1, which are hidden.
        ((), 2, {"CUDA_VISIBLE_DEVICES": "2,3"}, ("2", "3")),
        ((), 1, {"CUDA_VISIBLE_DEVICES": "10,9"}, ("10",)),
        ((), 2, {"CUDA_VISIBLE_DEVICES": "10,9"}, ("9", "10")),
        ((), 2, {}, ()),
        ((), 2, {"CUDA_VISIBLE_DEVICES": ""}, ()),
        ((), 2, {"CUDA_VISIBLE_DEVICES": "0", "DS_ACCELERATOR": "cpu"}, ()),
        (("0", "1"), 2, {"DS_ACCELERATOR": "cpu"}, ()),
    ],
)
def test_deepspeed_gpus(devices: tuple[str, ...], num_ranks: int, variables: dict[str, str], indices: tuple[str, ...]) -> None:
    assert deepspeed_gpu_indices(devices, num_ranks, variables) == indices


@pytest.mark.parametrize(("visible", "problem"), [("0", "shows 1 GPUs"), ("0,GPU-1a", "GPU-1a"), ("MIG-1,MIG-2", "MIG-1")])
def test_gpus_that_deepspeed_cannot_take_are_refused(visible: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        deepspeed_gpu_indices((), 2, {"CUDA_VISIBLE_DEVICES": visible})


@pytest.mark.parametrize(
    ("choices", "caller", "driver", "no_gpu"),
    [
        ({}, {}, NONE, True),
        ({}, {}, FOUR, False),
        ({}, {"CUDA_VISIBLE_DEVICES": ""}, FOUR, True),
        ({}, {"CUDA_VISIBLE_DEVICES": "-1"}, FOUR, True),
        ({}, {"CUDA_VISIBLE_DEVICES": "MIG-1"}, FOUR, False),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, {"CUDA_VISIBLE_DEVICES": ""}, FOUR, False),
        ({"settings": {"device": "cpu"}}, {}, FOUR, True),
        ({"settings": {"device": "cuda"}}, {}, NONE, False),
        ({"settings": {"device": "auto"}}, {}, NONE, True),
        ({"devices": ("0",)}, {}, NONE, False),
        # Unknown: left to DeepSpeed.
        ({}, {}, HUNG_DRIVER, False),
    ],
)
def test_runs_on_cpu(choices: dict[str, object], caller: dict[str, str], driver: Driver, no_gpu: bool) -> None:
    assert runs_on_cpu(make_spec("/w", **choices), caller, driver) is no_gpu  # type: ignore[arg-type]
