"""How each GPU is right now, as far as its driver tells: who is on it, its caps and throttles, errors, link and modes.

Read once through NVML; what a driver or a GPU does not answer is None. Judged in gpus.py.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.machine.gpus import Gpu
from seatrial.machine.nvml import start_nvml

BYTES_PER_MIB = 1 << 20
# Bits of the clocks' event reasons that slow a GPU against anybody's wish. A software power cap is normal under load, and idle is idle.
SLOWING = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
PID_NAMESPACE = "/proc/self/ns/pid"
# The kernel's own number for the first one; in any other the driver's pids may be somebody else's numbers.
FIRST_PID_NAMESPACE = "pid:[4026531836]"
_VOLATILE_SINCE_DRIVER_LOAD = 0
_UNCORRECTED = 1


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that holds a context on a GPU."""

    pid: int
    name: str = ""
    """Empty where it is not known: the driver counts pids as the host does, and a container has its own."""
    memory_mib: int | None = None

    def __str__(self) -> str:
        memory = "" if self.memory_mib is None else f", {self.memory_mib} MiB"
        return f"{self.name} (pid {self.pid}{memory})" if self.name else f"a process (pid {self.pid} on the host{memory})"


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU now."""

    index: int
    uuid: str = ""
    name: str = ""
    processes: tuple[GpuProcess, ...] = ()
    util_pct: int | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    slowed_by: tuple[str, ...] = ()
    ecc_uncorrected: int | None = None
    """Since the driver was loaded."""
    rows_pending: bool = False
    """A repair of memory waits for a reset."""
    rows_failed: bool = False
    """A repair of memory could not be made."""
    persistence: bool | None = None
    performance_state: int | None = None
    """0 is fastest, 8 and above is at rest."""
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    mig: bool | None = None
    compute_mode: str = ""


def states_of(gpus: Sequence[Gpu]) -> tuple[GpuState, ...]:
    """The state of each of `gpus`; those whose handle cannot be had are left out."""
    nvml = start_nvml().library
    if nvml is None:
        return ()
    handles = [(gpu, _asked(nvml, functools.partial(nvml.nvmlDeviceGetHandleByIndex, gpu.index))) for gpu in gpus]
    return tuple(_state(nvml, gpu, handle) for gpu, handle in handles if handle is not None)


def _state(nvml: Any, gpu: Gpu, handle: Any) -> GpuState:
    def ask(name: str, *more: Any) -> Any | None:
        return _asked(nvml, lambda: getattr(nvml, name)(handle, *more))

    utilisation, limit_mw, default_mw = (
        ask(name)
        for name in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementDefaultLimit")
    )
    _, _, pending, failed = ask("nvmlDeviceGetRemappedRows") or (0, 0, 0, 0)
    mig, mode, persistence = ask("nvmlDeviceGetMigMode"), ask("nvmlDeviceGetComputeMode"), ask("nvmlDeviceGetPersistenceMode")
    used_mib, total_mib = _memory_mib(nvml, ask)
    return GpuState(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        processes=_processes(ask),
        util_pct=None if utilisation is None else int(utilisation.gpu),
        memory_used_mib=used_mib,
        memory_total_mib=total_mib,
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        power_default_w=None if default_mw is None else default_mw / 1000,
        slowed_by=_slowed_by(ask),
        ecc_uncorrected=ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE_SINCE_DRIVER_LOAD),
        rows_pending=bool(pending),
        rows_failed=bool(failed),
        persistence=None if persistence is None else bool(persistence),
        performance_state=ask("nvmlDeviceGetPerformanceState"),
        pcie_gen=ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_gen_max=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_width_max=ask("nvmlDeviceGetMaxPcieLinkWidth"),
        mig=None if mig is None else bool(mig[0]),
        compute_mode="" if mode is None else COMPUTE_MODES.get(mode, str(mode)),
    )


def _memory_mib(nvml: Any, ask: Callable[..., Any | None]) -> tuple[int | None, int | None]:
    """Used and total; by the newer call, where it is there, what the driver keeps for itself is not counted as used."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    memory = (ask("nvmlDeviceGetMemoryInfo", version) if version is not None else None) or ask("nvmlDeviceGetMemoryInfo")
    return (None, None) if memory is None else (memory.used // BYTES_PER_MIB, memory.total // BYTES_PER_MIB)


def _slowed_by(ask: Callable[..., Any | None]) -> tuple[str, ...]:
    bits = ask("nvmlDeviceGetCurrentClocksEventReasons")
    bits = ask("nvmlDeviceGetCurrentClocksThrottleReasons") if bits is None else bits
    return tuple(name for bit, name in SLOWING.items() if (bits or 0) & bit)


def _processes(ask: Callable[..., Any | None]) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(pid=found.pid, name=_process_name(found.pid), memory_mib=_mib(found.usedGpuMemory))
        for found in ask("nvmlDeviceGetComputeRunningProcesses") or ()
    )


def _process_name(pid: int) -> str:
    with contextlib.suppress(OSError):
        if os.readlink(PID_NAMESPACE) != FIRST_PID_NAMESPACE:  # noqa: PTH115 (a name of the kernel's, no path)
            return ""
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _mib(count: int | None) -> int | None:
    return None if count is None else int(count) // BYTES_PER_MIB


def _asked(nvml: Any, question: Callable[[], Any]) -> Any | None:
    """The answer, or None when this driver, this binding or this GPU has none."""
    try:
        return question()
    except (nvml.NVMLError, AttributeError):
        return None
