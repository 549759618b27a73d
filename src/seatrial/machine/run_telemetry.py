"""Telemetry of one run: the GPU sampler and the host sampler, each in its own thread, so that neither waits for the other.

    telemetry = start_telemetry(order, base_env)      # after the processes were started
    telemetry.stop()                                # the launcher is over
    telemetry.finish()                              # writes telemetry.json, within FINISH_S whatever the driver does

In: the agent's order. Out: gpu_telemetry.csv, host_telemetry.csv, telemetry.json in the attempt's folder, or on many hosts in that of the
node. `empty_columns` tries the sources before a campaign: which columns this host cannot fill.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.core import files
from seatrial.core.paths import AttemptPaths
from seatrial.core.timeouts import CallTimeout, call_with_timeout, has_hung_call
from seatrial.machine.sampler import Row, Sampler, Source, Unavailable
from seatrial.records.codec import to_json
from seatrial.records.launch import AgentOrder
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, TelemetryAccount

if TYPE_CHECKING:
    from seatrial.machine.telemetry import HostTelemetry


# Longest wait for both samplers at the end of a run.
FINISH_S = 2.0
NVML_LIBRARY = "libnvidia-ml.so.1"
# What the sampler itself adds to a row, and gaps, which are empty where all is well.
ADDED = ("timestamp", "epoch_sec", "sample_ms", "gap_s")
TRIAL_TIMEOUT_S = 10.0
# Shares and rates are between two samples.
BETWEEN_SAMPLES_S = 0.25


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


def start_telemetry(order: AgentOrder, base_env: Mapping[str, str]) -> Telemetry:
    """Start the samplers in the order, over the descendants of this process."""
    attempt, intervals, root = AttemptPaths(Path(order.writes_to)), order.telemetry, os.getpid()
    environment = {**base_env, **order.command.env}
    gpu = host = None
    if intervals.gpu_s:
        open_gpus = partial(open_gpu_source, order.devices, environment, root)
        gpu = Sampler(open_gpus, attempt.gpu_telemetry, GPU_COLUMNS, intervals.gpu_s, source_name="the driver")
    if intervals.host_s:
        host = Sampler(partial(open_host_source, root), attempt.host_telemetry, HOST_COLUMNS, intervals.host_s, source_name="the kernel")
    for sampler in (host, gpu):
        if sampler:
            sampler.start()
    return Telemetry(attempt, gpu, host)


class HostSource:
    """The host as one row."""

    def __init__(self, telemetry: HostTelemetry) -> None:
        self._telemetry = telemetry

    def sample(self, *, last: bool) -> Iterator[Row]:
        yield self._telemetry.sample()

    def notes(self) -> list[str]:
        return []


def open_gpu_source(devices: tuple[str, ...], environment: Mapping[str, str], root: int) -> Source | Unavailable:
    """Called in the sampler's thread: a run should not wait for NVML to load."""
    try:
        ctypes.CDLL(NVML_LIBRARY)
    except OSError:
        # Without a driver even the binding need not be loaded, which takes longer than all the samples of a short run.
        return Unavailable("no GPU", expected=True)
    from seatrial.machine.telemetry import NoGpus, open_gpu_telemetry

    opened = open_gpu_telemetry(devices, environment, root)
    return Unavailable(opened.note, opened.expected) if isinstance(opened, NoGpus) else opened


def open_host_source(root: int) -> Source | Unavailable:
    """Called in the sampler's thread."""
    from seatrial.machine.telemetry import HostTelemetry

    return HostSource(HostTelemetry(root))


def empty_columns(
    devices: tuple[str, ...] = (), environment: Mapping[str, str] = os.environ, timeout_s: float = TRIAL_TIMEOUT_S
) -> dict[str, tuple[str, ...]]:
    """`gpu_telemetry.csv` and `host_telemetry.csv`, each with the columns that two samples could not fill.

    A driver that does not answer within `timeout_s` counts as one that fills nothing.
    """
    # The tree of a run must have a process in it: here this one, as its parent sees it.
    paths, root = AttemptPaths(Path()), os.getppid()
    # A driver that hung before would cost the same timeout again.
    gpu = set() if has_hung_call() else _filled_columns(partial(open_gpu_source, devices, environment, root), timeout_s)
    host = _filled_columns(partial(open_host_source, root), timeout_s)
    return {
        paths.gpu_telemetry.name: tuple(name for name in GPU_COLUMNS if name not in gpu),
        paths.host_telemetry.name: tuple(name for name in HOST_COLUMNS if name not in host),
    }


def _filled_columns(open_source: Callable[[], Source | Unavailable], timeout_s: float) -> set[str]:
    filled: set[str] = set()

    def sample_twice() -> None:
        source = open_source()
        if isinstance(source, Unavailable):
            return
        for pause_s in (0.0, BETWEEN_SAMPLES_S):
            time.sleep(pause_s)
            for row in source.sample(last=False):
                filled.update(ADDED, (name for name, value in row.items() if value is not None))

    # What was filled before the timeout counts.
    with contextlib.suppress(CallTimeout):
        call_with_timeout(timeout_s, sample_twice)
    return filled
