"""Telemetry of one run: the GPU sampler and the host sampler, each in a thread of its own, so that neither waits for the other.

    telemetry = start_telemetry(order, caller)      # after the processes were started
    telemetry.stop()                                # the launcher is over
    telemetry.finish()                              # writes telemetry.json, within FINISH_S whatever the driver does

In: what the agent was told. Out: gpu_telemetry.csv, host_telemetry.csv, telemetry.json in the attempt's folder, or on many hosts
in that of the node.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial import files
from seatrial.observe.sampler import Nothing, Row, Sampler, Source
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.command import AgentOrder
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, TelemetryAccount

if TYPE_CHECKING:
    from seatrial.machine.gpu_readings import GpuReadings
    from seatrial.machine.host_readings import HostReadings

# The longest that the end of a run waits for both samplers together.
FINISH_S = 2.0
NVML_LIBRARY = "libnvidia-ml.so.1"


class Telemetry:
    """The samplers of one run."""

    def __init__(self, attempt: AttemptPaths, gpu: Sampler | None, host: Sampler | None) -> None:
        self._path, self._gpu, self._host = attempt.telemetry, gpu, host
        self._until_m: float | None = None

    def stop(self) -> None:
        """Ask both for one last sample; returns at once."""
        if self._until_m is None:
            self._until_m = time.monotonic() + FINISH_S
            for sampler in (self._gpu, self._host):
                if sampler:
                    sampler.stop()

    def finish(self) -> None:
        """Write telemetry.json; OSError when it cannot be written."""
        self.stop()
        host = self._host.account(self._left_s()) if self._host else None
        gpu = self._gpu.account(self._left_s()) if self._gpu else None
        files.write_json(self._path, to_json(TelemetryAccount(gpu=gpu, host=host)))

    @property
    def stuck(self) -> bool:
        """Whether a sampler is in a call that has not returned."""
        return any(sampler.stuck for sampler in (self._gpu, self._host) if sampler)

    def _left_s(self) -> float:
        return max(0.0, (self._until_m or 0.0) - time.monotonic())


def start_telemetry(order: AgentOrder, caller: Mapping[str, str]) -> Telemetry:
    """Start what the order asks for, over the descendants of this process."""
    attempt, asked, root = AttemptPaths(Path(order.writes_to)), order.telemetry, os.getpid()
    environment = {**caller, **order.command.env}
    gpu = host = None
    if asked.gpu_s:
        gpu = Sampler(
            lambda: open_gpu_source(order.devices, environment, root), attempt.gpu_telemetry, GPU_COLUMNS, asked.gpu_s, asked="the driver"
        )
    if asked.host_s:
        host = Sampler(lambda: open_host_source(root), attempt.host_telemetry, HOST_COLUMNS, asked.host_s, asked="the kernel")
    for sampler in (host, gpu):
        if sampler:
            sampler.start()
    return Telemetry(attempt, gpu, host)


class GpuSource:
    """GPUs, as a sampler looks at them."""

    def __init__(self, readings: GpuReadings) -> None:
        self._readings = readings

    def look(self, *, last: bool) -> Iterator[Row]:
        return self._readings.look(last=last)

    def notes(self) -> list[str]:
        return self._readings.notes()


class HostSource:
    """The host, as a sampler looks at it."""

    def __init__(self, readings: HostReadings) -> None:
        self._readings = readings

    def look(self, *, last: bool) -> Iterator[Row]:
        yield self._readings.look()

    def notes(self) -> list[str]:
        return []


def open_gpu_source(devices: tuple[str, ...], environment: Mapping[str, str], root: int) -> Source | Nothing:
    """Called in the sampler's thread: loading NVML takes time that no run should wait for."""
    try:
        ctypes.CDLL(NVML_LIBRARY)
    except OSError:
        # Without a driver even the binding need not be loaded, which takes longer than all the samples of a short run.
        return Nothing("no GPU", expected=True)
    from seatrial.machine.gpu_readings import NoGpus, open_gpus

    opened = open_gpus(devices, environment, root)
    return Nothing(opened.note, opened.expected) if isinstance(opened, NoGpus) else GpuSource(opened)


def open_host_source(root: int) -> Source | Nothing:
    """Called in the sampler's thread."""
    from seatrial.machine.host_readings import HostReadings

    return HostSource(HostReadings(root))
