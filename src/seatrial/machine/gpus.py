"""The GPUs of this host, through NVML; nothing is started and nothing is changed.

A host without a driver has no GPUs: `list_gpus()` gives `()`. What one GPU's driver cannot tell is None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.machine.nvml import start_nvml

BYTES_PER_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as NVML shows it; `index` counts in the order of the PCI bus."""

    index: int
    uuid: str
    name: str
    compute_capability: str
    """`9.0`; empty when the driver does not say."""
    power_limit_w: float | None
    pcie_gen_max: int | None
    memory_total_mib: int | None
    power_default_w: float | None = None
    """The limit it has when nobody set one."""
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None


@functools.cache
def _nvml() -> Any | None:
    """The library, initialised and kept so: initialising may take seconds where no persistence daemon runs."""
    return start_nvml().library


def nvml_library() -> Any | None:
    """The binding of NVML, started; None when there is no driver."""
    return _nvml()


def list_gpus() -> tuple[Gpu, ...]:
    """Every GPU of this host, `()` when there is no driver."""
    nvml = _nvml()
    if nvml is None:
        return ()
    count = _asked(nvml, nvml.nvmlDeviceGetCount) or 0
    handles = [_asked(nvml, functools.partial(nvml.nvmlDeviceGetHandleByIndex, index)) for index in range(count)]
    return tuple(_gpu(nvml, index, handle) for index, handle in enumerate(handles) if handle is not None)


def driver_version() -> str:
    """The driver's version, an empty string when there is none."""
    nvml = _nvml()
    return "" if nvml is None else _text(_asked(nvml, nvml.nvmlSystemGetDriverVersion))


def driver_cuda() -> str:
    """The newest CUDA the driver takes (`12.8`), an empty string when there is none."""
    nvml = _nvml()
    number = None if nvml is None else _asked(nvml, lambda: nvml.nvmlSystemGetCudaDriverVersion())
    # NVML writes 12.8 as 12080.
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def visible_gpus(devices: Sequence[str], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs a run can see: those it names, else those CUDA_VISIBLE_DEVICES leaves, else all."""
    limit = environment.get("CUDA_VISIBLE_DEVICES")
    if devices or limit is None:
        return chosen(list_gpus(), devices)
    named = [part.strip() for part in limit.split(",") if part.strip()]
    return chosen(list_gpus(), named) if named else ()


def chosen(gpus: Sequence[Gpu], devices: Sequence[str]) -> tuple[Gpu, ...]:
    """The GPUs that `devices` names by index or by the beginning of their UUID, in that order; all when it names none."""
    if not devices:
        return tuple(gpus)
    return tuple(gpu for device in devices for gpu in gpus if device == str(gpu.index) or _begins(gpu.uuid, device))


def _begins(uuid: str, device: str) -> bool:
    return device.startswith("GPU-") and uuid.startswith(device)


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    capability = _asked(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    limit_mw = _asked(nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    default_mw = _asked(nvml, lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle))
    memory = _asked(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return Gpu(
        index=index,
        uuid=_text(_asked(nvml, lambda: nvml.nvmlDeviceGetUUID(handle))),
        name=_text(_asked(nvml, lambda: nvml.nvmlDeviceGetName(handle))),
        compute_capability="" if capability is None else "{}.{}".format(*capability),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        pcie_gen_max=_asked(nvml, lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        memory_total_mib=None if memory is None else memory.total // BYTES_PER_MIB,
        power_default_w=None if default_mw is None else default_mw / 1000,
        sm_clock_max_mhz=_asked(nvml, lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
        memory_clock_max_mhz=_asked(nvml, lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)),
    )


def _asked(nvml: Any, question: Callable[[], Any]) -> Any | None:
    """The answer, or None when this driver or this GPU has none."""
    try:
        return question()
    except (nvml.NVMLError, AttributeError):
        return None


def _text(value: Any) -> str:
    """Older bindings give bytes."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value or "")
