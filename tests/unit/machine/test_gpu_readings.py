"""GPUs through the real binding, against a library that plays a driver."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.machine.gpu_questions import throttle_names
from seatrial.machine.gpu_readings import GpuReadings, NoGpus, open_gpus
from seatrial.machine.gpus import Gpu
from seatrial.records.telemetry import GPU_COLUMNS
from tests.stubs.answers import answer
from tests.stubs.nvml import needs_compiler, told_by

BY_THE_SAMPLER = {"timestamp", "epoch_sec", "sample_ms", "gap_s"}
LOOKS = """
import json, os
from seatrial.machine.gpu_readings import open_gpus
readings = open_gpus((), dict(os.environ), os.getpid())
"""


@needs_compiler
def test_a_driver_that_knows_all_fills_every_column(answers: Path) -> None:
    answer(answers, ("util", 97), ("power_mw", 690_120), ("energy_mj", 5_000), ("reasons", 0x4 | 0x1), ("used_mib", 2048))
    (row,) = told_by(f"{LOOKS}print(json.dumps(list(readings.look())))", answers)
    assert set(row) == set(GPU_COLUMNS) - BY_THE_SAMPLER
    assert row == {
        "gpu_index": 0,
        "gpu_uuid": "GPU-stub-0",
        "gpu_name": "Stub, 80 GiB",
        "temp_c": 61,
        "util_gpu_pct": 97,
        "util_mem_pct": 7,
        "power_w": 690.12,
        "sm_clock_mhz": 1980,
        "mem_clock_mhz": 3201,
        "mem_used_mib": 2048,
        "mem_total_mib": 81920,
        "mem_free_mib": 79360,
        "energy_j": 5.0,
        "power_limit_w": 700.0,
        "throttle_reasons": "sw_power_cap",
        "ecc_corrected": 3,
        "ecc_uncorrected": 0,
        "pcie_link_gen": 4,
        "pcie_link_width": 16,
        "pcie_rx_kib_per_s": 200,
        "pcie_tx_kib_per_s": 100,
        "process_count": 0,
        "foreign_process_count": 0,
    }


@needs_compiler
def test_functions_an_old_driver_lacks_leave_their_cells_empty_and_older_ones_are_asked(answers: Path) -> None:
    answer(answers, ("reasons", 0x8), ("pid", 1))
    first, second, notes = told_by(
        f"{LOOKS}print(json.dumps([*readings.look(), *readings.look(), readings.notes()]))", answers, old_driver=True
    )
    assert first["energy_j"] is None and "energy_j" not in second
    assert first["mem_used_mib"] == 1024 + 512, "the first version counts what the driver keeps for itself"
    assert (first["throttle_reasons"], first["process_count"]) == ("hw_slowdown", 1)
    assert notes == [], "a column that cannot be had is no trouble: the account lists it as missing"


@needs_compiler
def test_slow_questions_are_asked_on_some_looks_and_of_one_gpu_at_a_time(answers: Path) -> None:
    answer(answers, ("count", 3))
    script = f"""{LOOKS}
looks = [list(readings.look()) for _ in range(11)] + [list(readings.look(last=True))]
print(json.dumps([[[row["gpu_index"] for row in rows if name in row] for rows in looks] for name in ("energy_j", "pcie_rx_kib_per_s")]))
"""
    energy, pcie = told_by(script, answers)
    assert energy == [[0, 1, 2], [2], [1], [0], [2], [1], [0], [2], [1], [0], [2], [0, 1, 2]], "a counter's ends are what counts"
    assert pcie == [[0], [], [], [2], [1], [0], [], [], [2], [1], [0], []], "the last look must not hold up the end of a run"


@needs_compiler
def test_one_gpu_tells_its_energy_on_one_look_in_three(answers: Path) -> None:
    rows = told_by(f"{LOOKS}print(json.dumps([row for _ in range(6) for row in readings.look()]))", answers)
    assert ["energy_j" in row for row in rows] == [True, False, False] * 2


@needs_compiler
def test_a_lost_gpu_has_no_rows_until_it_is_back_and_the_other_goes_on(answers: Path) -> None:
    script = f"""{LOOKS}
answer(ANSWERS, ("count", 2))
readings = open_gpus((), {{}}, os.getpid())
indices = [[row["gpu_index"] for row in readings.look()]]
answer(ANSWERS, ("count", 2), ("error", 15), ("error_gpu", 1))
indices += [[row["gpu_index"] for row in readings.look()] for _ in range(7)]
answer(ANSWERS, ("count", 2))
indices += [[row["gpu_index"] for row in readings.look()] for _ in range(5)]
print(json.dumps([indices, readings.notes()]))
"""
    indices, (note,) = told_by(script, answers)
    assert indices[0] == [0, 1]
    assert indices[1:11] == [[0]] * 10, "a lost GPU is tried on one look in five"
    assert indices[11:] == [[0, 1]] * 2
    assert note.startswith("GPU 1 gave no answer at ") and "(GPU is lost; tried 2 times) and answered again at " in note


@needs_compiler
def test_one_question_refused_for_a_while_costs_its_cell_and_is_told_once(answers: Path) -> None:
    script = f"""{LOOKS}
answer(ANSWERS, ("refuse_power", 999))
powers = [row["power_w"] for _ in range(3) for row in readings.look()]
answer(ANSWERS, ("power_mw", 100))
powers += [row["power_w"] for row in readings.look()]
print(json.dumps([powers, readings.notes()]))
"""
    powers, notes = told_by(script, answers)
    assert powers == [None, None, None, 0.1]
    assert notes == ["GPU 0: power_w could not be read 3 times (Unknown Error)"]


@needs_compiler
def test_processes_of_others_are_told_from_the_run_s_own(answers: Path) -> None:
    script = f"""{LOOKS}
import subprocess
own = subprocess.Popen(["sleep", "60"])
answer(ANSWERS, ("pid", own.pid), ("pid", os.getppid()))
mixed = list(readings.look())
answer(ANSWERS, ("pid", own.pid), ("pid", 2**22 + 1))
unknown = list(readings.look())
own.kill(); own.wait()
print(json.dumps([[row["process_count"], row["foreign_process_count"]] for row in mixed + unknown]))
"""
    assert told_by(script, answers) == [[2, 1], [2, None]]


@needs_compiler
def test_only_the_gpus_of_the_run_are_looked_at(answers: Path) -> None:
    answer(answers, ("count", 3))
    script = f"""{LOOKS}
seen = [[row["gpu_index"] for row in open_gpus(devices, env, 1).look()] for devices, env in
        [((), {{}}), (("2", "0"), {{}}), ((), {{"CUDA_VISIBLE_DEVICES": "GPU-stub-1"}})]]
none = [vars(open_gpus((), {{"CUDA_VISIBLE_DEVICES": text}}, 1)) for text in ("", "-1", "7", "MIG-1")]
print(json.dumps([seen, none]))
"""
    seen, none = told_by(script, answers)
    assert seen == [[0, 1, 2], [2, 0], [1]]
    assert none[:2] == [{"note": "no GPU", "expected": True}] * 2
    assert none[2:] == [{"note": f"the run's GPUs ({name}) are none that the driver lists", "expected": False} for name in ("7", "MIG-1")]


class BindingError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def _binding(code: int) -> Any:
    def init() -> None:
        raise BindingError(code)

    return SimpleNamespace(NVMLError=BindingError, nvmlInit=init)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (12, NoGpus("no GPU", expected=True)),
        (9, NoGpus("no GPU", expected=True)),
        (18, NoGpus("NVML does not start: error 18", expected=False)),
    ],
)
def test_no_driver_is_no_trouble_and_a_broken_one_is(monkeypatch: pytest.MonkeyPatch, code: int, expected: NoGpus) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _binding(code))
    assert open_gpus((), {}, 1) == expected


def test_without_the_binding_the_note_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_gpus((), {}, 1) == NoGpus("nvidia-ml-py is not installed: install it to see GPUs", expected=False)


@pytest.mark.parametrize(
    ("bits", "names"),
    [(0x0, ""), (0x1, ""), (0x5, "sw_power_cap"), (0x48, "hw_slowdown+hw_thermal_slowdown"), (0x1004, "sw_power_cap+0x1000")],
)
def test_throttle_reasons_by_name(bits: int, names: str) -> None:
    assert throttle_names(bits) == names


def test_pids_of_another_namespace_are_nobody_s(tmp_path: Path) -> None:
    """In a container the driver may give the host's pids: a number that is here too is then somebody else's."""
    namespace = tmp_path / "pid"
    namespace.symlink_to("pid:[4026532999]")
    library = SimpleNamespace(
        NVMLError=BindingError,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPowerUsage=lambda handle: 1000,
        nvmlDeviceGetComputeRunningProcesses_v3=lambda handle: [SimpleNamespace(pid=1)],
    )
    gpu = Gpu(index=0)
    (row,) = GpuReadings(library, [gpu], root=2**22, namespace=namespace).look()
    assert (row["power_w"], row["process_count"], row["foreign_process_count"]) == (1.0, 1, None)
    assert row["temp_c"] is None
