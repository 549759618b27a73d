"""The GPUs of this host, which of them a run can see, and their present state. Read through NVML; nothing is changed.

In: NVML, CUDA_VISIBLE_DEVICES, the devices a plan names. Out: `Driver`, `Gpu`, `GpuState`. A host without a driver has no GPUs. What a
driver does not answer is None; a driver that hangs gives `HUNG_DRIVER`. Also: which GPUs the `deepspeed` runner must be given.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.core.text import MIB
from seatrial.core.timeouts import CallTimeout
from seatrial.machine.nvml import DEVICE_QUERIES, PROCESSES, STATE_QUERIES, Nvml, as_text, call_nvml, nvml_errors, query, query_all
from seatrial.machine.processes import in_root_pid_namespace
from seatrial.records.plan import RunSpec

# Recorded as the driver's version, so that such a run is grouped neither with those on a healthy host nor with those without GPUs.
NO_ANSWER = "no answer"
CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICE_FILE = Path("/dev/nvidiactl")
ACCELERATOR = "DS_ACCELERATOR"
CPU = "cpu"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as NVML shows it, the facts of provenance.json, which do not change; `index` counts in PCI bus order."""

    index: int
    uuid: str = ""
    name: str = ""
    compute_capability: str = ""
    """`9.0`; empty when unknown."""
    power_limit_w: float | None = None
    power_default_w: float | None = None
    """The default limit."""
    pcie_gen_max: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The NVIDIA driver and its GPUs."""

    gpus: tuple[Gpu, ...] = ()
    version: str = ""
    """Empty without a driver, NO_ANSWER if it hangs."""
    cuda: str = ""
    """The newest CUDA version it supports (`12.8`)."""
    problem: str = ""
    """Why nothing is known; else empty."""
    no_driver: bool = False
    """No driver is installed, so there is no GPU: not an error."""
    hung: bool = False


HUNG_DRIVER = Driver(version=NO_ANSWER, problem="the driver does not answer", hung=True)


def read_driver() -> Driver:
    """The driver and its GPUs as they are now."""
    try:
        return call_nvml(_read_driver)
    except CallTimeout:
        return HUNG_DRIVER


def knows_all_gpus(driver: Driver, device_file: bool) -> bool:
    """Whether the list of GPUs is certain: NVML answers, or there is no trace of a driver. Otherwise CUDA may see more of them."""
    return not driver.problem or (driver.no_driver and not device_file)


def driver_cuda_version() -> str:
    """The newest CUDA version the driver supports; empty without a driver, or when it does not answer."""
    try:
        return call_nvml(lambda nvml: "" if nvml.library is None else _cuda_version(nvml.library))
    except CallTimeout:
        return ""


def list_gpus(library: Any) -> tuple[Gpu, ...]:
    """Every GPU of this host, without a timeout: for callers with their own thread."""
    count = _call(library, lambda: library.nvmlDeviceGetCount()) or 0
    handles = [_call(library, functools.partial(library.nvmlDeviceGetHandleByIndex, index)) for index in range(count)]
    facts = {index: query_all(library, handle, DEVICE_QUERIES) for index, handle in enumerate(handles) if handle is not None}
    return tuple(Gpu(index=index, **{name: value for name, value in found.items() if value is not None}) for index, found in facts.items())


def visible_gpus(gpus: Sequence[Gpu], devices: Sequence[str], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that a run can see: the `devices` it names, else those in CUDA_VISIBLE_DEVICES, else all."""
    limit = visible_ids(environment)
    if devices or limit is None:
        return select_gpus(gpus, devices)
    # As CUDA does: an id that does not exist hides those after it.
    known = tuple(itertools.takewhile(lambda device: select_gpus(gpus, [device]), limit))
    return select_gpus(gpus, known) if known else ()


def visible_ids(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The ids in CUDA_VISIBLE_DEVICES, each once; None where it is not set and limits nothing."""
    limit = environment.get(CUDA_VISIBLE_DEVICES)
    return None if limit is None else tuple(dict.fromkeys(part.strip() for part in limit.split(",") if part.strip()))


def is_mig_instance(device: str) -> bool:
    """Whether an id names a MIG instance, which only CUDA can resolve."""
    return device.startswith("MIG-")


def select_gpus(gpus: Sequence[Gpu], devices: Sequence[str]) -> tuple[Gpu, ...]:
    """The GPUs that `devices` names by index or by a prefix of the UUID, in that order; all when it names none."""
    if not devices:
        return tuple(gpus)
    return tuple(
        gpu for device in devices for gpu in gpus if device == str(gpu.index) or (device.startswith("GPU-") and gpu.uuid.startswith(device))
    )


def _read_driver(nvml: Nvml) -> Driver:
    library = nvml.library
    if library is None:
        return Driver(problem=nvml.problem, no_driver=nvml.no_driver)
    version = as_text(_call(library, lambda: library.nvmlSystemGetDriverVersion()))
    return Driver(gpus=list_gpus(library), version=version, cuda=_cuda_version(library))


def _cuda_version(library: Any) -> str:
    number = _call(library, lambda: library.nvmlSystemGetCudaDriverVersion())
    # NVML writes 12.8 as 12080.
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def _call(library: Any, function: Callable[[], Any]) -> Any | None:
    """The answer; None when this driver or this binding has none."""
    try:
        return function()
    except nvml_errors(library, AttributeError):
        return None


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that holds a context on a GPU."""

    pid: int
    name: str = ""
    """Empty where it is not known: the driver reports the host's pids, and a container has its own."""
    memory_mib: int | None = None

    def __str__(self) -> str:
        memory = "" if self.memory_mib is None else f", {self.memory_mib} MiB"
        return f"{self.name} (pid {self.pid}{memory})" if self.name else f"a process (pid {self.pid} on the host{memory})"


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU now, which may be read without the facts of `Gpu`; columns of telemetry have the same name and unit here."""

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
    """Joined with `+`; empty while nothing throttles."""
    ecc_uncorrected: int | None = None
    """Errors since the driver was loaded."""
    rows_pending: bool | None = None
    """A row remapping waits for a reset."""
    rows_failed: bool | None = None
    """A row remapping failed."""
    persistence: bool | None = None
    performance_state: int | None = None
    """0 is fastest, 8 and above is idle."""
    pcie_link_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_link_width: int | None = None
    pcie_width_max: int | None = None
    mig: bool | None = None
    compute_mode: str | None = None


def read_gpu_states(gpus: Sequence[Gpu]) -> tuple[GpuState, ...] | None:
    """The state of each of `gpus` that gives a handle; None when the driver does not answer."""
    try:
        return call_nvml(lambda nvml: _read_states(nvml, gpus))
    except CallTimeout:
        return None


def _read_states(nvml: Nvml, gpus: Sequence[Gpu]) -> tuple[GpuState, ...]:
    library, states = nvml.library, []
    if library is None:
        return ()
    for gpu in gpus:
        with contextlib.suppress(*nvml_errors(library)):
            handle = library.nvmlDeviceGetHandleByIndex(gpu.index)
            processes = tuple(_gpu_process(found) for found in query(library, handle, PROCESSES) or ())
            cells = query_all(library, handle, STATE_QUERIES)
            states.append(GpuState(index=gpu.index, uuid=gpu.uuid, name=gpu.name, processes=processes, **cells))
    return tuple(states)


def _gpu_process(found: Any) -> GpuProcess:
    memory_bytes, name = found.usedGpuMemory, ""
    # In any other namespace the driver's pids may be other processes here.
    if in_root_pid_namespace():
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{found.pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return GpuProcess(pid=found.pid, name=name, memory_mib=None if memory_bytes is None else int(memory_bytes) // MIB)


def is_deepspeed_on_cpu(variables: Mapping[str, str]) -> bool:
    """Whether DS_ACCELERATOR selects the CPU."""
    return variables.get(ACCELERATOR) == CPU


def deepspeed_gpu_indices(devices: Sequence[str], num_ranks: int, variables: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs for the runner's --include, one a rank; () where it counts from 0 by itself, as on CPU.

    The `deepspeed` runner takes GPUs by index only, in rising order, and ignores CUDA_VISIBLE_DEVICES once it is given a number or a list:
    the visible GPUs must be listed, or it would use hidden ones. `devices` are those the plan names. ValueError where the visible GPUs
    have no index.
    """
    visible = () if is_deepspeed_on_cpu(variables) else tuple(devices) or visible_ids(variables) or ()
    if not visible:
        return ()
    if len(visible) < num_ranks:
        limit = variables.get(CUDA_VISIBLE_DEVICES, "")
        raise ValueError(f"{CUDA_VISIBLE_DEVICES}={limit} shows {len(visible)} GPUs, and {num_ranks} ranks need one each")
    taken = visible[:num_ranks]
    wrong = next((device for device in taken if not device.isdecimal()), None)
    if wrong is not None:
        raise ValueError(f"'{wrong}' is not a GPU index; deepspeed takes indices only")
    return tuple(sorted(taken, key=int))


def runs_on_cpu(spec: RunSpec, variables: Mapping[str, str] | None = None, driver: Driver | None = None) -> bool:
    """Whether a run is for CPU: its plan names no GPU, and its settings select the CPU or there is no GPU it could use.

    `variables` are the caller's; without `driver` this host is queried. False where it is unknown which GPUs there are.
    """
    device = spec.settings.get("device")
    if spec.place.devices or device == "cuda":
        return False
    return device == CPU or not may_see_gpu({**(os.environ if variables is None else variables), **spec.env}, driver or read_driver())


def may_see_gpu(variables: Mapping[str, str], driver: Driver) -> bool:
    """Whether a process with these variables may see a GPU, as far as is known."""
    if not knows_all_gpus(driver, DEVICE_FILE.exists()):
        return True
    return any(map(is_mig_instance, visible_ids(variables) or ())) or bool(visible_gpus(driver.gpus, (), variables))
