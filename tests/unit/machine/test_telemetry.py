"""Rows of GPU and host telemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from seatrial.machine.gpus import Gpu
from seatrial.machine.nvml import throttle_names
from seatrial.machine.telemetry import GpuTelemetry, HostTelemetry, NoGpus, open_gpu_telemetry
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS
from tests.stubs.answers import answer
from tests.stubs.nvml import needs_compiler, told_by

BY_THE_SAMPLER = {"timestamp", "epoch_sec", "sample_ms", "gap_s"}
OPEN = """
import json, os
from seatrial.machine.telemetry import open_gpu_telemetry
telemetry = open_gpu_telemetry((), dict(os.environ), os.getpid())
"""


@needs_compiler
def test_a_complete_driver_fills_every_column(answers: Path) -> None:
    answer(answers, ("util", 97), ("power_mw", 690_120), ("energy_mj", 5_000), ("reasons", 0x4 | 0x1), ("used_mib", 2048))
    (row,) = told_by(f"{OPEN}print(json.dumps(list(telemetry.sample())))", answers)
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
def test_an_old_driver_leaves_cells_empty_and_older_functions_are_used(answers: Path) -> None:
    answer(answers, ("reasons", 0x8), ("pid", 1))
    first, second, notes = told_by(
        f"{OPEN}print(json.dumps([*telemetry.sample(), *telemetry.sample(), telemetry.notes()]))", answers, old_driver=True
    )
    assert first["energy_j"] is None and "energy_j" not in second
    assert first["mem_used_mib"] == 1024 + 512, "the first version counts what the driver keeps for itself"
    assert (first["throttle_reasons"], first["process_count"]) == ("hw_slowdown", 1)
    assert notes == [], "a column that the driver lacks needs no note: the account lists it as missing"


@needs_compiler
def test_expensive_queries_are_made_on_some_samples_and_of_one_gpu_at_a_time(answers: Path) -> None:
    answer(answers, ("count", 3))
    script = f"""{OPEN}
samples = [list(telemetry.sample()) for _ in range(11)] + [list(telemetry.sample(last=True))]
print(json.dumps([[[row["gpu_index"] for row in rows if name in row] for rows in samples] for name in ("energy_j", "pcie_rx_kib_per_s")]))
"""
    energy, pcie = told_by(script, answers)
    assert energy == [[0, 1, 2], [2], [1], [0], [2], [1], [0], [2], [1], [0], [2], [0, 1, 2]], "a counter is read first and last"
    assert pcie == [[0], [], [], [2], [1], [0], [], [], [2], [1], [0], []], "the last sample must not delay the end of a run"


@needs_compiler
def test_a_lost_gpu_has_no_rows_until_it_is_back_and_the_other_goes_on(answers: Path) -> None:
    script = f"""{OPEN}
answer(ANSWERS, ("count", 2))
telemetry = open_gpu_telemetry((), {{}}, os.getpid())
indices = [[row["gpu_index"] for row in telemetry.sample()]]
answer(ANSWERS, ("count", 2), ("error", 15), ("error_gpu", 1))
indices += [[row["gpu_index"] for row in telemetry.sample()] for _ in range(7)]
answer(ANSWERS, ("count", 2))
indices += [[row["gpu_index"] for row in telemetry.sample()] for _ in range(5)]
print(json.dumps([indices, telemetry.notes()]))
"""
    indices, (note,) = told_by(script, answers)
    assert indices[0] == [0, 1]
    assert indices[1:11] == [[0]] * 10, "a lost GPU is tried on one sample in five"
    assert indices[11:] == [[0, 1]] * 2
    assert note.startswith("GPU 1 gave no answer at ") and "(GPU is lost; tried 2 times) and answered again at " in note


@needs_compiler
def test_a_query_that_fails_for_a_while_costs_its_cell_and_is_noted_once(answers: Path) -> None:
    script = f"""{OPEN}
answer(ANSWERS, ("refuse_power", 999))
powers = [row["power_w"] for _ in range(3) for row in telemetry.sample()]
answer(ANSWERS, ("power_mw", 100))
powers += [row["power_w"] for row in telemetry.sample()]
print(json.dumps([powers, telemetry.notes()]))
"""
    powers, notes = told_by(script, answers)
    assert powers == [None, None, None, 0.1]
    assert notes == ["GPU 0: power_w could not be read 3 times (Unknown Error)"]


@needs_compiler
def test_foreign_processes_are_counted(answers: Path) -> None:
    script = f"""{OPEN}
import subprocess
own = subprocess.Popen(["sleep", "60"])
answer(ANSWERS, ("pid", own.pid), ("pid", os.getppid()))
mixed = list(telemetry.sample())
answer(ANSWERS, ("pid", own.pid), ("pid", 2**22 + 1))
unknown = list(telemetry.sample())
own.kill(); own.wait()
print(json.dumps([[row["process_count"], row["foreign_process_count"]] for row in mixed + unknown]))
"""
    assert told_by(script, answers) == [[2, 1], [2, None]]


@needs_compiler
def test_only_the_gpus_of_the_run_are_sampled(answers: Path) -> None:
    answer(answers, ("count", 3))
    script = f"""{OPEN}
seen = [[row["gpu_index"] for row in open_gpu_telemetry(devices, env, 1).sample()] for devices, env in
        [((), {{}}), (("2", "0"), {{}}), ((), {{"CUDA_VISIBLE_DEVICES": "GPU-stub-1"}})]]
none = [vars(open_gpu_telemetry((), {{"CUDA_VISIBLE_DEVICES": text}}, 1)) for text in ("", "-1", "7", "MIG-1")]
print(json.dumps([seen, none]))
"""
    seen, none = told_by(script, answers)
    assert seen == [[0, 1, 2], [2, 0], [1]]
    assert none[:2] == [{"note": "no GPU", "expected": True}] * 2
    assert none[2:] == [{"note": f"the driver lists none of the run's GPUs ({name})", "expected": False} for name in ("7", "MIG-1")]


class BindingError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def _binding(code: int) -> Any:
    def init() -> None:
        raise BindingError(code)

    return SimpleNamespace(NVMLError=BindingError, nvmlInit=init)


@pytest.mark.parametrize(("code", "expected"), [(12, True), (9, True), (18, False), (None, False)])
def test_no_driver_is_expected_and_a_broken_one_or_no_binding_is_not(
    monkeypatch: pytest.MonkeyPatch, code: int | None, expected: bool
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None if code is None else _binding(code))
    found = open_gpu_telemetry((), {}, 1)
    assert isinstance(found, NoGpus) and found.expected is expected and (found.note == "no GPU") is expected


@pytest.mark.parametrize(
    ("bits", "names"),
    [(0x0, ""), (0x1, ""), (0x5, "sw_power_cap"), (0x48, "hw_slowdown+hw_thermal_slowdown"), (0x1004, "sw_power_cap+0x1000")],
)
def test_throttle_reasons_by_name(bits: int, names: str) -> None:
    assert throttle_names(bits) == names


def test_pids_of_another_namespace_are_not_counted(tmp_path: Path) -> None:
    """In a container the driver may report the host's pids, which here may be other processes."""
    namespace = tmp_path / "pid"
    namespace.symlink_to("pid:[4026532999]")
    library = SimpleNamespace(
        NVMLError=BindingError,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPowerUsage=lambda handle: 1000,
        nvmlDeviceGetComputeRunningProcesses_v3=lambda handle: [SimpleNamespace(pid=1)],
    )
    gpu = Gpu(index=0)
    (row,) = GpuTelemetry(library, [gpu], root=2**22, namespace=namespace).sample()
    assert (row["power_w"], row["process_count"], row["foreign_process_count"]) == (1.0, 1, None)
    assert row["temp_c"] is None


class Host:
    """A host made of files."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys, self.now = folder / "proc", folder / "sys", 100.0
        (self.proc / "net").mkdir(parents=True)
        for device in ("block/sda", "class/net/eth0"):
            (self.sys / device / "device").mkdir(parents=True)
        for virtual in ("block/loop0", "block/dm-0", "class/net/lo", "class/net/docker0"):
            (self.sys / virtual).mkdir(parents=True)
        self.write("loadavg", "1.50 2.25 3.00 2/300 4711\n")
        self.write("meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nSwapTotal: 50 kB\nSwapFree: 40 kB\n")
        self.cpu(0, 0, 0, 0, 0, 0, 0, 0)
        self.disk(sda=(0, 0), loop0=(0, 0))
        self.net(lo=(0, 0), eth0=(0, 0))

    def write(self, name: str, text: str) -> None:
        (self.proc / name).write_text(text)

    def cpu(self, *ticks: int) -> None:
        self.write("stat", f"cpu  {' '.join(map(str, ticks))} 0 0\ncpu0 1 2 3\nintr 1\n")

    def disk(self, **sectors: tuple[int, int]) -> None:
        rows = [f"   8  0 {name} 1 2 {read} 4 5 6 {written} 8 9 10 11" for name, (read, written) in sectors.items()]
        self.write("diskstats", "\n".join(rows) + "\n")

    def net(self, **counted: tuple[int, int]) -> None:
        rows = [f"{name:>6}: {rx} 0 0 0 0 0 0 0 {tx} 0 0 0 0 0 0 0" for name, (rx, tx) in counted.items()]
        self.write("net/dev", "Inter-|   Receive\n face |bytes\n" + "\n".join(rows) + "\n")

    def telemetry(self) -> HostTelemetry:
        return HostTelemetry(1, proc=self.proc, sys=self.sys, shm=self.proc, monotonic=lambda: self.now)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_first_row_has_levels_and_no_shares(host: Host) -> None:
    row = host.telemetry().sample()
    expected = {
        "load1": 1.5, "load5": 2.25, "load15": 3.0, "mem_total_kib": 1000, "mem_available_kib": 400, "mem_used_kib": 600,
        "swap_total_kib": 50, "swap_free_kib": 40, "train_proc_count": 0,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert not [name for name in row if name.endswith(("_pct", "_per_s"))]


@pytest.mark.parametrize(
    ("before", "after", "shares"),
    [
        ((0,) * 8, (30, 10, 8, 100, 20, 1, 1, 30), (20.0, 5.0, 50.0, 10.0, 15.0)),
        # A counter that runs backwards gives no negative share.
        ((0, 0, 0, 100, 50, 0, 0, 0), (50, 0, 0, 150, 49, 0, 0, 0), (50.0, 0.0, 50.0, 0.0, 0.0)),
    ],
)
def test_shares_are_since_the_previous_sample(
    host: Host, before: tuple[int, ...], after: tuple[int, ...], shares: tuple[float, ...]
) -> None:
    telemetry = host.telemetry()
    host.cpu(*before)
    telemetry.sample()
    host.now += 2.0
    host.cpu(*after)
    row = telemetry.sample()
    assert tuple(row[f"cpu_{name}_pct"] for name in ("user", "system", "idle", "iowait", "steal")) == shares


def test_rates_count_real_devices_once(host: Host) -> None:
    (host.sys / "block/sdb/device").mkdir(parents=True)
    telemetry = host.telemetry()
    host.disk(sda=(10, 20), loop0=(0, 0), **{"dm-0": (0, 0), "sda1": (0, 0)})
    host.net(lo=(0, 0), eth0=(1024, 0), docker0=(0, 0))
    telemetry.sample()
    host.now += 2.0
    # sdb is new: it has no rate yet.
    host.disk(sda=(10 + 400, 20 + 40), sdb=(10**9, 0), loop0=(999, 999), **{"dm-0": (400, 40), "sda1": (400, 40)})
    host.net(lo=(9999, 9999), eth0=(1024 + 4096, 2048), docker0=(5000, 5000))
    row = telemetry.sample()
    rates = {name: value for name, value in row.items() if name.endswith("_per_s")}
    assert rates == {"disk_read_kib_per_s": 100.0, "disk_write_kib_per_s": 10.0, "net_rx_kib_per_s": 2.0, "net_tx_kib_per_s": 1.0}


def test_the_only_device_of_a_container_counts_although_it_is_virtual(host: Host) -> None:
    (host.sys / "class/net/eth0/device").rmdir()
    telemetry = host.telemetry()
    telemetry.sample()
    host.now += 1.0
    host.net(lo=(9999, 9999), eth0=(1024, 2048))
    row = telemetry.sample()
    assert (row["net_rx_kib_per_s"], row["net_tx_kib_per_s"]) == (1.0, 2.0)


def test_two_samples_at_once_give_no_shares_and_spoil_none(host: Host) -> None:
    telemetry = host.telemetry()
    telemetry.sample()
    host.now += 0.01
    host.cpu(1, 0, 0, 0, 0, 0, 0, 0)
    assert "cpu_user_pct" not in telemetry.sample()
    host.now += 2.0
    host.cpu(50, 0, 0, 50, 0, 0, 0, 0)
    assert telemetry.sample()["cpu_user_pct"] == 50.0


@pytest.mark.parametrize(
    ("missing", "column"),
    [
        ("loadavg", "load1"),
        ("meminfo", "mem_total_kib"),
        ("stat", "cpu_user_pct"),
        ("diskstats", "disk_read_kib_per_s"),
        ("net/dev", "net_rx_kib_per_s"),
    ],
)
def test_what_the_kernel_lacks_is_left_out(host: Host, missing: str, column: str) -> None:
    telemetry = host.telemetry()
    telemetry.sample()
    host.now += 2.0
    host.cpu(50, 0, 0, 50, 0, 0, 0, 0)
    (host.proc / missing).unlink()
    row = telemetry.sample()
    assert column not in row and len(row) > 10


def test_no_proc_and_no_shared_memory_leave_an_empty_row(tmp_path: Path) -> None:
    assert HostTelemetry(1, proc=tmp_path / "no", sys=tmp_path / "no", shm=tmp_path / "no").sample() == {}


def test_this_host_fills_every_column() -> None:
    now = [0.0]
    telemetry = HostTelemetry(os.getpid(), monotonic=lambda: now[0])
    telemetry.sample()
    spinning = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", spinning], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        now[0] = 1.0
        row = telemetry.sample()
        rss_kib = psutil.Process(child.pid).memory_info().rss // 1024
        child.kill()
    unfilled = set(HOST_COLUMNS) - set(row) - BY_THE_SAMPLER
    # A container may hide its disks.
    assert unfilled <= {"disk_read_kib_per_s", "disk_write_kib_per_s"}
    # The kernel reports user and system time in ticks of 10 ms, each rounded down.
    assert row["tree_cpu_pct"] >= 18.0, "0.2 s of one core within one second of the clock"
    assert row["train_rss_kib"] >= rss_kib - 4096 and row["train_proc_count"] >= 1
    assert 0 <= row["cpu_user_pct"] <= 100
