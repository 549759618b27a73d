"""How each GPU is right now, as far as its driver tells: who is on it, its caps and throttles, errors, link and modes.

Read once through NVML; what a driver or a GPU does not answer is None. Judged in preflight/gpu_states.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.machine.gpu_questions import PROCESSES, STATE, answer, answers
from seatrial.machine.gpus import Gpu
from seatrial.machine.nvml import Nvml, ask, errors_of
from seatrial.machine.patience import NoAnswer
from seatrial.machine.process_tree import in_first_namespace
from seatrial.units import MIB


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
    """One GPU now; what the telemetry has too is named and counted as there."""

    index: int
    uuid: str = ""
    name: str = ""
    processes: tuple[GpuProcess, ...] = ()
    util_gpu_pct: int | None = None
    util_mem_pct: int | None = None
    mem_used_mib: int | None = None
    mem_total_mib: int | None = None
    mem_free_mib: int | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    throttle_reasons: str | None = None
    """Joined with `+`; empty while the clocks are free."""
    ecc_uncorrected: int | None = None
    """Since the driver was loaded."""
    rows_pending: bool | None = None
    """A repair of memory waits for a reset."""
    rows_failed: bool | None = None
    """A repair of memory could not be made."""
    persistence: bool | None = None
    performance_state: int | None = None
    """0 is fastest, 8 and above is at rest."""
    pcie_link_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_link_width: int | None = None
    pcie_width_max: int | None = None
    mig: bool | None = None
    compute_mode: str | None = None


def read_states(gpus: Sequence[Gpu]) -> tuple[GpuState, ...] | None:
    """The state of each of `gpus`, those left out whose handle cannot be had; None when the driver does not answer."""
    try:
        return ask(lambda nvml: _states(nvml, gpus))
    except NoAnswer:
        return None


def _states(nvml: Nvml, gpus: Sequence[Gpu]) -> tuple[GpuState, ...]:
    library, states = nvml.library, []
    if library is None:
        return ()
    for gpu in gpus:
        with contextlib.suppress(*errors_of(library)):
            states.append(_state(library, gpu, library.nvmlDeviceGetHandleByIndex(gpu.index)))
    return tuple(states)


def _state(library: Any, gpu: Gpu, handle: Any) -> GpuState:
    processes = tuple(
        GpuProcess(pid=found.pid, name=_process_name(found.pid), memory_mib=_mib(found.usedGpuMemory))
        for found in answer(library, handle, PROCESSES) or ()
    )
    return GpuState(index=gpu.index, uuid=gpu.uuid, name=gpu.name, processes=processes, **answers(library, handle, STATE))


def _process_name(pid: int) -> str:
    # In any other namespace the driver's pids may be somebody else's numbers.
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip() if in_first_namespace() else ""
    return ""


def _mib(count: int | None) -> int | None:
    return None if count is None else int(count) // MIB
