"""What the GPUs of a run are doing now, through NVML: one start of the library, one handle a GPU, no program started.

In: the GPUs the run can see and the pid whose descendants are the run. Out: one row a GPU and look, by the columns of
gpu_telemetry.csv; None in a cell the driver did not answer, no row for a GPU that is lost. A driver's error never raises: it is
counted, told once by `notes()`, and a GPU that is lost is asked again at a slower pace until it answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.machine.gpu_questions import PROCESSES, QUESTIONS, NvmlQuestion
from seatrial.machine.gpus import LIMIT, Gpu, list_gpus, visible_gpus
from seatrial.machine.nvml import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    error_code,
    errors_of,
    start_nvml,
)
from seatrial.machine.process_tree import PID_NAMESPACE, in_first_namespace, is_below

# Looks that a lost GPU is left alone for between two tries.
LOOKS_BETWEEN_TRIES = 5
# What asking again cannot change.
FOR_GOOD = (NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION)
LOST = (GPU_IS_LOST, RESET_REQUIRED)
Row = dict[str, Any]


@dataclass(frozen=True)
class NoGpus:
    """There is nothing to look at: why, and whether that is as it should be."""

    note: str
    expected: bool


@dataclass
class _Device:
    """One GPU, and how it has answered so far."""

    gpu: Gpu
    handle: Any
    ways: dict[NvmlQuestion, int] = field(default_factory=dict)
    """Which way of asking each question works; beyond the last, none does."""
    looks_to_skip: int = 0
    lost_times: int = 0
    lost_at: str = ""
    lost_reason: str = ""
    back_at: str = ""
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Column → how often it could not be read, and the first reason."""


class _GpuLost(Exception):
    """Nothing more can be asked of this GPU now."""


def open_gpus(devices: Sequence[str], environment: Mapping[str, str], root: int) -> GpuReadings | NoGpus:
    """The GPUs that a run with these devices and this environment sees, ready to be looked at."""
    nvml = start_nvml()
    if nvml.library is None:
        return NoGpus("no GPU" if nvml.no_driver else nvml.problem, expected=nvml.no_driver)
    gpus = visible_gpus(list_gpus(nvml.library), devices, environment)
    if gpus:
        return GpuReadings(nvml.library, gpus, root)
    named = ",".join(devices) or environment.get(LIMIT, "")
    if named in ("", "-1"):
        return NoGpus("no GPU", expected=True)
    return NoGpus(f"the run's GPUs ({named}) are none that the driver lists", expected=False)


class GpuReadings:
    """Looks at some GPUs again and again."""

    def __init__(
        self,
        library: Any,
        gpus: Sequence[Gpu],
        root: int,
        namespace: Path = PID_NAMESPACE,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._library, self._root, self._wall = library, root, wall
        self._own_pids = in_first_namespace(namespace)
        self._devices = [_Device(gpu=gpu, handle=None) for gpu in gpus]
        self._looks = 0

    def look(self, *, last: bool = False) -> Iterator[Row]:
        """A row for each GPU that answers, without time stamps; the `last` look asks nothing that keeps the end of a run waiting."""
        self._looks += 1
        for position, device in enumerate(self._devices):
            if device.looks_to_skip > 0:
                device.looks_to_skip -= 1
                continue
            row = self._row(device, [question for question in QUESTIONS if self._is_due(question, position, last=last)])
            if row is not None:
                yield row

    def notes(self) -> list[str]:
        """A sentence for each GPU that did not always answer."""
        return [note for device in self._devices for note in _device_notes(device)]

    def _is_due(self, question: NvmlQuestion, position: int, *, last: bool) -> bool:
        if question.every == 1:
            return True
        if last or (question.is_counter and self._looks == 1):
            return question.is_counter
        return (self._looks + position) % max(question.every, len(self._devices)) == 1

    def _row(self, device: _Device, questions: Sequence[NvmlQuestion]) -> Row | None:
        try:
            if device.handle is None:
                device.handle = self._asked("nvmlDeviceGetHandleByIndex", device.gpu.index)
            cells = self._cells(device, questions)
        except errors_of(self._library, _GpuLost) as error:
            self._lose(device, str(error))
            return None
        if device.lost_times and not device.back_at:
            device.back_at = self._time()
        return {"gpu_index": device.gpu.index, "gpu_uuid": device.gpu.uuid, "gpu_name": device.gpu.name, **cells}

    def _cells(self, device: _Device, questions: Sequence[NvmlQuestion]) -> Row:
        cells: Row = {}
        for question in questions:
            answer = self._answer(device, question)
            values = (None,) * len(question.columns) if answer is None else question.cells(answer)
            cells.update(zip(question.columns, values, strict=True))
        if all(value is None for value in cells.values()):
            raise _GpuLost(next((reason for _, reason in device.refused.values()), "no question was answered"))
        return {**cells, **self._processes(device)}

    def _answer(self, device: _Device, question: NvmlQuestion) -> Any | None:
        """None where the driver has no answer, now or ever."""
        while (way := device.ways.get(question, 0)) < len(question.ways):
            name, *arguments = question.ways[way]
            try:
                return self._asked(name, device.handle, *arguments)
            except (AttributeError, TypeError):
                # A binding older than ours lacks the function, or an argument of it.
                device.ways[question] = way + 1
            except errors_of(self._library) as error:
                if error_code(error) in LOST:
                    raise
                if error_code(error) not in FOR_GOOD:
                    count, reason = device.refused.get(question.columns[0], (0, str(error)))
                    device.refused[question.columns[0]] = (count + 1, reason)
                    return None
                device.ways[question] = way + 1
        return None

    def _asked(self, name: str, *arguments: Any) -> Any:
        return getattr(self._library, name)(*arguments)

    def _processes(self, device: _Device) -> Row:
        running = self._answer(device, PROCESSES)
        if running is None:
            return {"process_count": None, "foreign_process_count": None}
        below = [is_below(process.pid, self._root) for process in running]
        # A pid of another namespace may be somebody else's number here: only what is certainly ours can then be told.
        known = None not in below if self._own_pids else bool(below) and all(below)
        return {"process_count": len(running), "foreign_process_count": below.count(False) if known else None}

    def _lose(self, device: _Device, reason: str) -> None:
        device.lost_times += 1
        device.back_at = ""
        device.lost_at = device.lost_at or self._time()
        device.lost_reason = device.lost_reason or reason
        # After a reset the old handle is worth nothing.
        device.handle, device.looks_to_skip = None, LOOKS_BETWEEN_TRIES - 1

    def _time(self) -> str:
        return time.strftime("%H:%M:%S", time.localtime(self._wall()))


def _device_notes(device: _Device) -> Iterable[str]:
    who = f"GPU {device.gpu.index}"
    if device.lost_times:
        end = f"answered again at {device.back_at}" if device.back_at else "did not answer again"
        yield f"{who} gave no answer at {device.lost_at} ({device.lost_reason}; tried {device.lost_times} times) and {end}"
        return
    # A copy: the sampler's thread may still be at work while its account is written.
    for column, (count, reason) in device.refused.copy().items():
        yield f"{who}: {column} could not be read {count} times ({reason})"
