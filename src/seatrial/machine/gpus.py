"""The GPUs of this host and their driver, through NVML; nothing is started and nothing is changed.

A host without a driver has no GPUs. What one GPU's driver cannot tell is None, and a driver that hangs tells nothing: `hung`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.machine.gpu_questions import FACTS, answers, as_text
from seatrial.machine.nvml import Nvml, ask, errors_of
from seatrial.machine.patience import NoAnswer

# Stands for the driver's version, so that such a run is not taken for one on a sound host, or on one without GPUs.
NO_ANSWER = "no answer"
LIMIT = "CUDA_VISIBLE_DEVICES"
DEVICE_FILE = Path("/dev/nvidiactl")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as NVML shows it; `index` counts in the order of the PCI bus."""

    index: int
    uuid: str = ""
    name: str = ""
    compute_capability: str = ""
    """`9.0`; empty when the driver does not say."""
    power_limit_w: float | None = None
    power_default_w: float | None = None
    """The limit it has when nobody set one."""
    pcie_gen_max: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None


@dataclass(frozen=True, kw_only=True)
class Driver:
    """What the driver tells of itself and of its GPUs."""

    gpus: tuple[Gpu, ...] = ()
    version: str = ""
    """Empty without a driver, NO_ANSWER of one that hangs."""
    cuda: str = ""
    """The newest CUDA it takes (`12.8`)."""
    problem: str = ""
    """Why it tells nothing, in words; empty when it does."""
    no_driver: bool = False
    """There is no driver, so no GPU either: nothing is amiss."""
    hung: bool = False


HUNG = Driver(version=NO_ANSWER, problem="the driver does not answer", hung=True)


def read_driver() -> Driver:
    """The driver and its GPUs as they are now."""
    try:
        return ask(_driver)
    except NoAnswer:
        return HUNG


def is_certain(found: Driver, device_file: bool) -> bool:
    """Whether it is known which GPUs there are: NVML answers, or there is no trace of a driver. Else CUDA may see more than we do."""
    return not found.problem or (found.no_driver and not device_file)


def driver_cuda() -> str:
    """The newest CUDA the driver takes; empty when there is none or it does not answer."""
    try:
        return ask(lambda nvml: "" if nvml.library is None else _cuda(nvml.library))
    except NoAnswer:
        return ""


def list_gpus(library: Any) -> tuple[Gpu, ...]:
    """Every GPU of this host, asked here and now: for who has a thread of its own for it."""
    count = _asked(library, lambda: library.nvmlDeviceGetCount()) or 0
    handles = [_asked(library, functools.partial(library.nvmlDeviceGetHandleByIndex, index)) for index in range(count)]
    return tuple(_gpu(library, index, handle) for index, handle in enumerate(handles) if handle is not None)


def visible_gpus(gpus: Sequence[Gpu], devices: Sequence[str], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Those of `gpus` a run can see: those it names, else those CUDA_VISIBLE_DEVICES leaves, else all."""
    limit = visible_ids(environment)
    if devices or limit is None:
        return chosen(gpus, devices)
    # As CUDA does: what stands behind an id that is not there is not seen either.
    known = tuple(itertools.takewhile(lambda device: chosen(gpus, [device]), limit))
    return chosen(gpus, known) if known else ()


def visible_ids(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """What CUDA_VISIBLE_DEVICES names, each once; None where it is not set and so limits nothing."""
    limit = environment.get(LIMIT)
    return None if limit is None else tuple(dict.fromkeys(part.strip() for part in limit.split(",") if part.strip()))


def is_mig_instance(device: str) -> bool:
    """Whether an id names a part of a GPU, which CUDA alone can find."""
    return device.startswith("MIG-")


def chosen(gpus: Sequence[Gpu], devices: Sequence[str]) -> tuple[Gpu, ...]:
    """The GPUs that `devices` names by index or by the beginning of their UUID, in that order; all when it names none."""
    if not devices:
        return tuple(gpus)
    return tuple(gpu for device in devices for gpu in gpus if device == str(gpu.index) or _begins(gpu.uuid, device))


def _begins(uuid: str, device: str) -> bool:
    return device.startswith("GPU-") and uuid.startswith(device)


def _driver(nvml: Nvml) -> Driver:
    library = nvml.library
    if library is None:
        return Driver(problem=nvml.problem, no_driver=nvml.no_driver)
    version = as_text(_asked(library, lambda: library.nvmlSystemGetDriverVersion()))
    return Driver(gpus=list_gpus(library), version=version, cuda=_cuda(library))


def _cuda(library: Any) -> str:
    number = _asked(library, lambda: library.nvmlSystemGetCudaDriverVersion())
    # NVML writes 12.8 as 12080.
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def _gpu(library: Any, index: int, handle: Any) -> Gpu:
    return Gpu(index=index, **{name: value for name, value in answers(library, handle, FACTS).items() if value is not None})


def _asked(library: Any, question: Callable[[], Any]) -> Any | None:
    """The answer, or None when this driver or this binding has none."""
    try:
        return question()
    except errors_of(library, AttributeError):
        return None
