"""What this host is doing now: load, processors, memory, shared memory, disks, network, and the processes of one run.

In: the pid whose descendants are the run. Out: one row a look, by the columns of host_telemetry.csv. Shares and rates are since the
look before, so the first row has none of them. What the kernel does not tell is not in the row; nothing here raises.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from seatrial.machine.proc_files import KIB, PROC, ProcessLine
from seatrial.machine.process_tree import ProcessTree
from seatrial.machine.shared_memory import SHARED_MEMORY

SYS = Path("/sys")
SECTOR_BYTES = 512
# Counters tick a hundred times a second: a share of fewer ticks than this makes is noise.
SHORTEST_SPAN_S = 0.1
# Fields of /proc/stat's first line; guest time is part of user time already.
CPU_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
MEMORY_COLUMNS = {
    "MemTotal": "mem_total_kib",
    "MemAvailable": "mem_available_kib",
    "SwapTotal": "swap_total_kib",
    "SwapFree": "swap_free_kib",
}

Row = dict[str, Any]
Counters = dict[str, tuple[int, int]]
"""Device → bytes in, bytes out, since it came up."""


class HostReadings:
    """Looks at the host again and again."""

    def __init__(
        self,
        root: int,
        *,
        proc: Path = PROC,
        sys: Path = SYS,
        shm: Path = SHARED_MEMORY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc, self._shm, self._monotonic = proc, shm, monotonic
        self._tree = ProcessTree(root, proc)
        self._cpu = _Shares()
        self._disks = _Rates(_Kind(sys / "block", skip=()))
        self._net = _Rates(_Kind(sys / "class" / "net", skip=("lo",)))
        self._tree_before: dict[int, ProcessLine] | None = None
        self._looked_m: float | None = None

    def look(self) -> Row:
        """One row, without its time stamps."""
        now_m = self._monotonic()
        span_s = None if self._looked_m is None else now_m - self._looked_m
        if span_s is not None and span_s < SHORTEST_SPAN_S:
            return {**self._levels(), **_tree_cells(self._tree.look())}
        self._looked_m = now_m
        processes = self._tree.look()
        return {
            **self._levels(),
            **self._cpu.since_last(_first_line(self._proc / "stat")),
            **_tree_cells(processes),
            **self._tree_share(processes, span_s),
            **_named(("disk_read_kib_per_s", "disk_write_kib_per_s"), self._disks.since_last(_disk_counters(self._proc), span_s)),
            **_named(("net_rx_kib_per_s", "net_tx_kib_per_s"), self._net.since_last(_net_counters(self._proc), span_s)),
        }

    def _levels(self) -> Row:
        return {**_load(self._proc), **_memory(self._proc), **_shared_memory(self._shm)}

    def _tree_share(self, processes: dict[int, ProcessLine] | None, span_s: float | None) -> Row:
        """Processor time of the run since the last look, as percent of one core; what ended in between is not in it."""
        before, self._tree_before = self._tree_before, processes
        if before is None or not processes or not span_s:
            return {}
        used_s = sum(max(0.0, line.cpu_s - (before[pid].cpu_s if pid in before else 0.0)) for pid, line in processes.items())
        return {"tree_cpu_pct": 100 * used_s / span_s}


class _Shares:
    """Percentages of all processors' time between two looks."""

    def __init__(self) -> None:
        self._before: list[int] | None = None

    def since_last(self, line: str) -> Row:
        ticks = _numbers(line.split()[1:])[: len(CPU_FIELDS)]
        before, self._before = self._before, ticks or None
        if not ticks or before is None or len(ticks) != len(before):
            return {}
        # Idle and waiting time are known to run backwards by a tick at times.
        spent = [max(0, now - then) for now, then in zip(ticks, before, strict=True)]
        total = sum(spent)
        if total == 0:
            return {}
        share = {name: 100 * count / total for name, count in zip(CPU_FIELDS, spent, strict=False)}
        cells = {
            "cpu_user_pct": share["user"] + share["nice"],
            "cpu_system_pct": share["system"] + share.get("irq", 0.0) + share.get("softirq", 0.0),
            "cpu_idle_pct": share["idle"],
        }
        return cells | {f"cpu_{name}_pct": share[name] for name in ("iowait", "steal") if name in share}


class _Kind:
    """Which devices count: real ones, so that no byte is counted twice on its way through loops, bridges and volumes."""

    def __init__(self, folder: Path, skip: tuple[str, ...]) -> None:
        self._folder, self._skip = folder, skip
        self._real: dict[str, bool] = {}

    def of(self, names: Iterable[str]) -> list[str]:
        kept = [name for name in names if name not in self._skip]
        for name in kept:
            if name not in self._real:
                self._real[name] = (self._folder / name / "device").exists()
        real = [name for name in kept if self._real[name]]
        # A container shows only a virtual network device, and that one is then all there is.
        return real if real or not self._skip else kept


class _Rates:
    """KiB a second between two looks, over the devices that were there at both."""

    def __init__(self, kind: _Kind) -> None:
        self._kind = kind
        self._before: Counters | None = None

    def since_last(self, counters: Counters | None, span_s: float | None) -> tuple[float, float] | None:
        before, self._before = self._before, counters
        if before is None or counters is None or not span_s:
            return None
        both = [name for name in self._kind.of(counters) if name in before]
        grown = [[max(0, counters[name][way] - before[name][way]) for name in both] for way in (0, 1)]
        return (sum(grown[0]) / KIB / span_s, sum(grown[1]) / KIB / span_s) if both else None


def _named(names: tuple[str, str], values: tuple[float, float] | None) -> Row:
    return {} if values is None else dict(zip(names, values, strict=True))


def _tree_cells(processes: dict[int, ProcessLine] | None) -> Row:
    if processes is None:
        return {}
    if not processes:
        # After the run's last process a memory of 0 would read as a sudden fall.
        return {"train_proc_count": 0}
    lines = processes.values()
    rss_kib = sum(line.rss_kib for line in lines)
    return {
        "rss_kib": rss_kib,
        "train_proc_count": len(processes),
        "train_rss_kib": rss_kib,
        "train_vsz_kib": sum(line.vsz_kib for line in lines),
        "tree_threads": sum(line.threads for line in lines),
    }


def _load(proc: Path) -> Row:
    words = _first_line(proc / "loadavg").split()[:3]
    try:
        return dict(zip(("load1", "load5", "load15"), (float(word) for word in words), strict=False))
    except ValueError:
        return {}


def _memory(proc: Path) -> Row:
    cells: Row = {}
    for line in _text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        column = MEMORY_COLUMNS.get(name)
        if column and (numbers := _numbers(rest.split()[:1])):
            cells[column] = numbers[0]
            if len(cells) == len(MEMORY_COLUMNS):
                break
    if "mem_total_kib" in cells and "mem_available_kib" in cells:
        cells["mem_used_kib"] = cells["mem_total_kib"] - cells["mem_available_kib"]
    return cells


def _shared_memory(shm: Path) -> Row:
    try:
        state = os.statvfs(shm)
    except OSError:
        return {}
    unit = state.f_frsize
    return {"shm_used_kib": (state.f_blocks - state.f_bfree) * unit // KIB, "shm_total_kib": state.f_blocks * unit // KIB}


def _disk_counters(proc: Path) -> Counters | None:
    rows = [line.split() for line in _text(proc / "diskstats").splitlines()]
    found = {row[2]: numbers for row in rows if len(row) > 9 and len(numbers := _numbers([row[5], row[9]])) == 2}
    return {name: (read * SECTOR_BYTES, written * SECTOR_BYTES) for name, (read, written) in found.items()} or None


def _net_counters(proc: Path) -> Counters | None:
    found: Counters = {}
    for line in _text(proc / "net" / "dev").splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and len(words) > 8 and len(numbers := _numbers([words[0], words[8]])) == 2:
            found[name.strip()] = (numbers[0], numbers[1])
    return found or None


def _numbers(words: Iterable[str]) -> list[int]:
    """Whole numbers up to the first word that is none."""
    found = []
    for word in words:
        if not word.isdigit():
            break
        found.append(int(word))
    return found


def _first_line(path: Path) -> str:
    return _text(path).partition("\n")[0]


def _text(path: Path) -> str:
    try:
        with open(path, "rb", buffering=0) as source:
            return source.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
