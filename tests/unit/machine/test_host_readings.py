"""The host's figures, from a /proc written by hand and from the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from seatrial.machine.host_readings import HostReadings
from seatrial.records.telemetry import HOST_COLUMNS

BY_THE_SAMPLER = {"timestamp", "epoch_sec", "sample_ms", "gap_s"}


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

    def readings(self) -> HostReadings:
        return HostReadings(1, proc=self.proc, sys=self.sys, shm=self.proc, monotonic=lambda: self.now)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_levels_stand_in_the_first_row_and_shares_do_not(host: Host) -> None:
    row = host.readings().look()
    expected = {
        "load1": 1.5, "load5": 2.25, "load15": 3.0, "mem_total_kib": 1000, "mem_available_kib": 400, "mem_used_kib": 600,
        "swap_total_kib": 50, "swap_free_kib": 40, "train_proc_count": 0,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert not [name for name in row if name.endswith(("_pct", "_per_s"))]


def test_shares_are_of_the_time_since_the_look_before(host: Host) -> None:
    readings = host.readings()
    readings.look()
    host.now += 2.0
    host.cpu(30, 10, 8, 100, 20, 1, 1, 30)
    row = readings.look()
    shares = {name: value for name, value in row.items() if name.startswith("cpu_")}
    assert shares == {"cpu_user_pct": 20.0, "cpu_system_pct": 5.0, "cpu_idle_pct": 50.0, "cpu_iowait_pct": 10.0, "cpu_steal_pct": 15.0}


def test_a_counter_that_runs_backwards_gives_no_negative_share(host: Host) -> None:
    readings = host.readings()
    host.cpu(0, 0, 0, 100, 50, 0, 0, 0)
    readings.look()
    host.now += 2.0
    host.cpu(50, 0, 0, 150, 49, 0, 0, 0)
    row = readings.look()
    assert (row["cpu_user_pct"], row["cpu_idle_pct"], row["cpu_iowait_pct"]) == (50.0, 50.0, 0.0)


def test_rates_count_real_devices_once(host: Host) -> None:
    readings = host.readings()
    host.disk(sda=(10, 20), loop0=(0, 0), **{"dm-0": (0, 0), "sda1": (0, 0)})
    host.net(lo=(0, 0), eth0=(1024, 0), docker0=(0, 0))
    readings.look()
    host.now += 2.0
    host.disk(sda=(10 + 400, 20 + 40), loop0=(999, 999), **{"dm-0": (400, 40), "sda1": (400, 40)})
    host.net(lo=(9999, 9999), eth0=(1024 + 4096, 2048), docker0=(5000, 5000))
    row = readings.look()
    rates = {name: value for name, value in row.items() if name.endswith("_per_s")}
    assert rates == {"disk_read_kib_per_s": 100.0, "disk_write_kib_per_s": 10.0, "net_rx_kib_per_s": 2.0, "net_tx_kib_per_s": 1.0}


def test_a_container_s_only_device_counts_although_it_is_virtual(host: Host) -> None:
    (host.sys / "class/net/eth0/device").rmdir()
    readings = host.readings()
    readings.look()
    host.now += 1.0
    host.net(lo=(9999, 9999), eth0=(1024, 2048))
    row = readings.look()
    assert (row["net_rx_kib_per_s"], row["net_tx_kib_per_s"]) == (1.0, 2.0)


def test_a_device_that_came_in_between_has_no_rate_yet(host: Host) -> None:
    (host.sys / "block/sdb/device").mkdir(parents=True)
    readings = host.readings()
    readings.look()
    host.now += 1.0
    host.disk(sda=(2, 0), sdb=(10**9, 0))
    assert readings.look()["disk_read_kib_per_s"] == 1.0


def test_two_looks_at_once_give_no_shares_and_spoil_none(host: Host) -> None:
    readings = host.readings()
    readings.look()
    host.now += 0.01
    host.cpu(1, 0, 0, 0, 0, 0, 0, 0)
    assert "cpu_user_pct" not in readings.look()
    host.now += 2.0
    host.cpu(50, 0, 0, 50, 0, 0, 0, 0)
    assert readings.look()["cpu_user_pct"] == 50.0


@pytest.mark.parametrize("missing", ["loadavg", "meminfo", "stat", "diskstats", "net/dev"])
def test_what_the_kernel_lacks_is_left_out_and_the_rest_stays(host: Host, missing: str) -> None:
    readings = host.readings()
    readings.look()
    (host.proc / missing).unlink()
    host.now += 2.0
    host.cpu(50, 0, 0, 50, 0, 0, 0, 0) if missing != "stat" else None
    row = readings.look()
    gone = {"loadavg": "load1", "meminfo": "mem_total_kib", "stat": "cpu_user_pct", "diskstats": "disk_read_kib_per_s"}
    assert gone.get(missing, "net_rx_kib_per_s") not in row
    assert len(row) > 10


@pytest.mark.parametrize("text", ["", "cpu", "cpu a b c", "MemTotal:\nMemAvailable: x kB\n", "a: 1 2\n", "\x00\xff"])
def test_nonsense_never_raises(host: Host, text: str) -> None:
    readings = host.readings()
    for name in ("loadavg", "meminfo", "stat", "diskstats", "net/dev"):
        host.write(name, text)
    readings.look()
    host.now += 2.0
    assert set(readings.look()) <= set(HOST_COLUMNS)


def test_no_proc_and_no_shared_memory_leave_an_empty_row(tmp_path: Path) -> None:
    assert HostReadings(1, proc=tmp_path / "no", sys=tmp_path / "no", shm=tmp_path / "no").look() == {}


def test_this_host_fills_every_column() -> None:
    now = [0.0]
    readings = HostReadings(os.getpid(), monotonic=lambda: now[0])
    readings.look()
    spinning = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", spinning], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        now[0] = 1.0
        row = readings.look()
        rss_kib = psutil.Process(child.pid).memory_info().rss // 1024
        child.kill()
    unfilled = set(HOST_COLUMNS) - set(row) - BY_THE_SAMPLER
    # A container may hide its disks.
    assert unfilled <= {"disk_read_kib_per_s", "disk_write_kib_per_s"}
    # The kernel tells user and system time in ticks of 10 ms, each rounded down.
    assert row["tree_cpu_pct"] >= 18.0, "0.2 s of one core in what the clock says was one second"
    assert row["train_rss_kib"] >= rss_kib - 4096 and row["train_proc_count"] >= 1
    assert 0 <= row["cpu_user_pct"] <= 100
