"""Samples of the GPUs and the host of a run: one row per sample, with the columns of gpu_telemetry.csv and host_telemetry.csv.

In: the GPUs the run can see, and the pid whose descendants are the run. Out: rows without time stamps. A GPU's cell is None where the
driver does not answer, and a lost GPU has no row. Cells that the kernel does not provide are not in the host's row. Nothing here raises: a
driver's errors are counted and reported by `notes()`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.machine.gpus import CUDA_VISIBLE_DEVICES, Gpu, list_gpus, visible_gpus
from seatrial.machine.nvml import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    PROCESSES,
    RESET_REQUIRED,
    TELEMETRY_QUERIES,
    NvmlQuery,
    error_code,
    nvml_errors,
    start_nvml,
)
from seatrial.machine.orphans import SHARED_MEMORY
from seatrial.machine.processes import KIB, PID_NAMESPACE, PROC, ProcessStat, ProcessTree, in_root_pid_namespace, is_descendant, read_text

# A lost GPU is tried again on every n-th sample.
SAMPLES_BETWEEN_TRIES = 5
# Errors that trying again cannot change.
PERMANENT_ERRORS = (NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION)
LOST_ERRORS = (GPU_IS_LOST, RESET_REQUIRED)
SYS = Path("/sys")
SECTOR_BYTES = 512
# Counters tick a hundred times a second: a share over a shorter interval is noise.
MIN_INTERVAL_S = 0.1
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


@dataclass(frozen=True)
class NoGpus:
    """Why there is no GPU to sample, and whether that is expected."""

    note: str
    expected: bool


@dataclass
class _Device:
    """One GPU, and how it has answered so far."""

    gpu: Gpu
    handle: Any = None
    call_indices: dict[NvmlQuery, int] = field(default_factory=dict)
    """Which call of each query works; past the last, none does."""
    samples_to_skip: int = 0
    times_lost: int = 0
    lost_at: str = ""
    lost_reason: str = ""
    back_at: str = ""
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Column → how often it could not be read, and the first reason."""


class _GpuLost(Exception):
    """This GPU answers nothing now."""


def open_gpu_telemetry(devices: Sequence[str], environment: Mapping[str, str], root: int) -> GpuTelemetry | NoGpus:
    """The GPUs that a run with these devices and this environment sees, ready to be sampled."""
    nvml = start_nvml()
    if nvml.library is None:
        return NoGpus("no GPU" if nvml.no_driver else nvml.problem, expected=nvml.no_driver)
    gpus = visible_gpus(list_gpus(nvml.library), devices, environment)
    if gpus:
        return GpuTelemetry(nvml.library, gpus, root)
    named = ",".join(devices) or environment.get(CUDA_VISIBLE_DEVICES, "")
    if named in ("", "-1"):
        return NoGpus("no GPU", expected=True)
    return NoGpus(f"the driver lists none of the run's GPUs ({named})", expected=False)


class GpuTelemetry:
    """Samples GPUs repeatedly: NVML is started once, with one handle per GPU."""

    def __init__(
        self,
        library: Any,
        gpus: Sequence[Gpu],
        root: int,
        namespace: Path = PID_NAMESPACE,
    ) -> None:
        self._library, self._root = library, root
        self._sees_host_pids = in_root_pid_namespace(namespace)
        self._devices = [_Device(gpu=gpu) for gpu in gpus]
        self._samples = 0

    def sample(self, *, last: bool = False) -> Iterator[Row]:
        """A row for each GPU that answers; the `last` sample leaves out expensive queries that would delay the end of a run."""
        self._samples += 1
        for position, device in enumerate(self._devices):
            if device.samples_to_skip > 0:
                device.samples_to_skip -= 1
                continue
            row = self._read_row(device, [query for query in TELEMETRY_QUERIES if self._is_due(query, position, last=last)])
            if row is not None:
                yield row

    def notes(self) -> list[str]:
        """A sentence for each GPU that did not always answer."""
        return [note for device in self._devices for note in _device_notes(device)]

    def _is_due(self, query: NvmlQuery, position: int, *, last: bool) -> bool:
        if query.every == 1:
            return True
        if last or (query.is_counter and self._samples == 1):
            return query.is_counter
        return (self._samples + position) % max(query.every, len(self._devices)) == 1

    def _read_row(self, device: _Device, queries: Sequence[NvmlQuery]) -> Row | None:
        try:
            if device.handle is None:
                device.handle = self._library.nvmlDeviceGetHandleByIndex(device.gpu.index)
            cells = self._read_cells(device, queries)
        except nvml_errors(self._library, _GpuLost) as error:
            self._lose(device, str(error))
            return None
        if device.times_lost and not device.back_at:
            device.back_at = time.strftime("%H:%M:%S")
        return {"gpu_index": device.gpu.index, "gpu_uuid": device.gpu.uuid, "gpu_name": device.gpu.name, **cells}

    def _read_cells(self, device: _Device, queries: Sequence[NvmlQuery]) -> Row:
        cells: Row = {}
        for query in queries:
            cells.update(query.row(self._query(device, query)))
        if all(value is None for value in cells.values()):
            raise _GpuLost(next((reason for _, reason in device.failures.values()), "no query was answered"))
        return {**cells, **self._count_processes(device)}

    def _query(self, device: _Device, query: NvmlQuery) -> Any | None:
        """The answer of the driver; None without one."""
        while (index := device.call_indices.get(query, 0)) < len(query.calls):
            name, *arguments = query.calls[index]
            try:
                return getattr(self._library, name)(device.handle, *arguments)
            except (AttributeError, TypeError):
                # A binding older than ours lacks the function, or an argument of it.
                device.call_indices[query] = index + 1
            except nvml_errors(self._library) as error:
                if error_code(error) in LOST_ERRORS:
                    raise
                if error_code(error) not in PERMANENT_ERRORS:
                    count, reason = device.failures.get(query.columns[0], (0, str(error)))
                    device.failures[query.columns[0]] = (count + 1, reason)
                    return None
                device.call_indices[query] = index + 1
        return None

    def _count_processes(self, device: _Device) -> Row:
        running = self._query(device, PROCESSES)
        if running is None:
            return {"process_count": None, "foreign_process_count": None}
        own = [is_descendant(process.pid, self._root) for process in running]
        # A pid of another namespace may be a different process here: then only our own are certain.
        known = None not in own if self._sees_host_pids else bool(own) and all(own)
        return {"process_count": len(running), "foreign_process_count": own.count(False) if known else None}

    def _lose(self, device: _Device, reason: str) -> None:
        device.times_lost += 1
        device.back_at = ""
        device.lost_at = device.lost_at or time.strftime("%H:%M:%S")
        device.lost_reason = device.lost_reason or reason
        # After a reset the old handle is invalid.
        device.handle, device.samples_to_skip = None, SAMPLES_BETWEEN_TRIES - 1


def _device_notes(device: _Device) -> Iterable[str]:
    gpu = f"GPU {device.gpu.index}"
    if device.times_lost:
        end = f"answered again at {device.back_at}" if device.back_at else "did not answer again"
        yield f"{gpu} gave no answer at {device.lost_at} ({device.lost_reason}; tried {device.times_lost} times) and {end}"
        return
    # A copy: the sampler's thread may still be running.
    for column, (count, reason) in device.failures.copy().items():
        yield f"{gpu}: {column} could not be read {count} times ({reason})"


class HostTelemetry:
    """Samples load, CPU, memory, shared memory, disks, network, and the processes of one run.

    Shares and rates are since the previous sample, so the first row has none.
    """

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
        self._cpu = _CpuShares()
        self._disks = _Rates(_RealDevices(sys / "block", skip=()))
        self._net = _Rates(_RealDevices(sys / "class" / "net", skip=("lo",)))
        self._tree_before: dict[int, ProcessStat] | None = None
        self._sampled_m: float | None = None

    def sample(self) -> Row:
        """One row."""
        now_m = self._monotonic()
        interval_s = None if self._sampled_m is None else now_m - self._sampled_m
        levels = {**_read_load(self._proc), **_read_memory(self._proc), **_read_shared_memory(self._shm)}
        processes = self._tree.read()
        if interval_s is not None and interval_s < MIN_INTERVAL_S:
            return {**levels, **_tree_cells(processes)}
        self._sampled_m = now_m
        return {
            **levels,
            **self._cpu.since_last(read_text(self._proc / "stat").partition("\n")[0]),
            **_tree_cells(processes),
            **self._tree_share(processes, interval_s),
            **self._disks.since_last(("disk_read_kib_per_s", "disk_write_kib_per_s"), _read_disk_counters(self._proc), interval_s),
            **self._net.since_last(("net_rx_kib_per_s", "net_tx_kib_per_s"), _read_net_counters(self._proc), interval_s),
        }

    def _tree_share(self, processes: dict[int, ProcessStat] | None, interval_s: float | None) -> Row:
        """CPU time of the run since the last sample, in percent of one core; without what ended in between."""
        before, self._tree_before = self._tree_before, processes
        if before is None or not processes or not interval_s:
            return {}
        used_s = sum(max(0.0, found.cpu_s - (before[pid].cpu_s if pid in before else 0.0)) for pid, found in processes.items())
        return {"tree_cpu_pct": 100 * used_s / interval_s}


class _CpuShares:
    """Percentages of all CPUs' time between two samples."""

    def __init__(self) -> None:
        self._before: list[int] | None = None

    def since_last(self, line: str) -> Row:
        ticks = _leading_integers(line.split()[1:])[: len(CPU_FIELDS)]
        before, self._before = self._before, ticks or None
        if not ticks or before is None or len(ticks) != len(before):
            return {}
        # Idle and iowait are known to run backwards by a tick at times.
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


class _RealDevices:
    """Real devices only, so that no byte is counted twice on its way through loops, bridges and volumes."""

    def __init__(self, folder: Path, skip: tuple[str, ...]) -> None:
        self._folder, self._skip = folder, skip
        self._real: dict[str, bool] = {}

    def among(self, names: Iterable[str]) -> list[str]:
        kept = [name for name in names if name not in self._skip]
        for name in kept:
            if name not in self._real:
                self._real[name] = (self._folder / name / "device").exists()
        real = [name for name in kept if self._real[name]]
        # A container shows only a virtual network device, and that one is then all there is.
        return real if real or not self._skip else kept


class _Rates:
    """KiB a second between two samples, over the devices present at both."""

    def __init__(self, devices: _RealDevices) -> None:
        self._devices = devices
        self._before: Counters | None = None

    def since_last(self, columns: tuple[str, str], counters: Counters | None, interval_s: float | None) -> Row:
        before, self._before = self._before, counters
        if before is None or counters is None or not interval_s:
            return {}
        both = [name for name in self._devices.among(counters) if name in before]
        if not both:
            return {}
        grown = [sum(max(0, counters[name][way] - before[name][way]) for name in both) for way in (0, 1)]
        return {column: count / KIB / interval_s for column, count in zip(columns, grown, strict=True)}


def _tree_cells(processes: dict[int, ProcessStat] | None) -> Row:
    if processes is None:
        return {}
    if not processes:
        # After the end of the last process a memory of 0 would look like a sudden drop.
        return {"train_proc_count": 0}
    stats = processes.values()
    rss_kib = sum(found.rss_kib for found in stats)
    return {
        "rss_kib": rss_kib,
        "train_proc_count": len(processes),
        "train_rss_kib": rss_kib,
        "train_vsz_kib": sum(found.vsz_kib for found in stats),
        "tree_threads": sum(found.threads for found in stats),
    }


def _read_load(proc: Path) -> Row:
    fields = read_text(proc / "loadavg").partition("\n")[0].split()[:3]
    try:
        return dict(zip(("load1", "load5", "load15"), map(float, fields), strict=False))
    except ValueError:
        return {}


def _read_memory(proc: Path) -> Row:
    cells: Row = {}
    for line in read_text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        column = MEMORY_COLUMNS.get(name)
        if column and (numbers := _leading_integers(rest.split()[:1])):
            cells[column] = numbers[0]
            if len(cells) == len(MEMORY_COLUMNS):
                break
    if "mem_total_kib" in cells and "mem_available_kib" in cells:
        cells["mem_used_kib"] = cells["mem_total_kib"] - cells["mem_available_kib"]
    return cells


def _read_shared_memory(shm: Path) -> Row:
    try:
        state = os.statvfs(shm)
    except OSError:
        return {}
    unit = state.f_frsize
    return {"shm_used_kib": (state.f_blocks - state.f_bfree) * unit // KIB, "shm_total_kib": state.f_blocks * unit // KIB}


def _read_disk_counters(proc: Path) -> Counters | None:
    rows = [line.split() for line in read_text(proc / "diskstats").splitlines()]
    found = {row[2]: numbers for row in rows if len(row) > 9 and len(numbers := _leading_integers([row[5], row[9]])) == 2}
    return {name: (read * SECTOR_BYTES, written * SECTOR_BYTES) for name, (read, written) in found.items()} or None


def _read_net_counters(proc: Path) -> Counters | None:
    found: Counters = {}
    for line in read_text(proc / "net" / "dev").splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and len(fields) > 8 and len(numbers := _leading_integers([fields[0], fields[8]])) == 2:
            found[name.strip()] = (numbers[0], numbers[1])
    return found or None


def _leading_integers(fields: Iterable[str]) -> list[int]:
    """Integers up to the first field that is none."""
    found = []
    for text in fields:
        if not text.isdigit():
            break
        found.append(int(text))
    return found
