"""One trial of the samplers before a campaign: which columns of the telemetry this host cannot fill.

In: the run's devices and environment. Out: file name → columns that stayed empty. A driver that does not answer within the patience
given counts as one that fills nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from seatrial.machine.patience import NoAnswer, is_stuck, within
from seatrial.observe.sampler import Nothing, Source
from seatrial.observe.telemetry import open_gpu_source, open_host_source
from seatrial.paths import AttemptPaths
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS

# What the sampler itself adds to a row, and gaps, which are empty where all is well.
ADDED = ("timestamp", "epoch_sec", "sample_ms", "gap_s")
PATIENCE_S = 10.0
# Shares and rates are between two looks.
BETWEEN_LOOKS_S = 0.25


def empty_columns(
    devices: tuple[str, ...] = (), environment: Mapping[str, str] = os.environ, patience_s: float = PATIENCE_S
) -> dict[str, tuple[str, ...]]:
    """`gpu_telemetry.csv` and `host_telemetry.csv`, each with the columns that two looks could not fill."""
    # The tree of a run must have a process in it: here this one, as its parent sees it.
    paths, root = AttemptPaths(Path()), os.getppid()
    # A driver that hung at an earlier check would only cost the same patience again.
    gpu = set() if is_stuck() else _filled(lambda: open_gpu_source(devices, environment, root), patience_s)
    host = _filled(lambda: open_host_source(root), patience_s)
    return {
        paths.gpu_telemetry.name: tuple(name for name in GPU_COLUMNS if name not in gpu),
        paths.host_telemetry.name: tuple(name for name in HOST_COLUMNS if name not in host),
    }


def _filled(open_source: Callable[[], Source | Nothing], patience_s: float) -> set[str]:
    filled: set[str] = set()

    def look_twice() -> None:
        source = open_source()
        if isinstance(source, Nothing):
            return
        for pause_s in (0.0, BETWEEN_LOOKS_S):
            time.sleep(pause_s)
            for row in source.look(last=False):
                filled.update(ADDED, (name for name, value in row.items() if value is not None))

    # What was filled before the patience ended stands.
    with contextlib.suppress(NoAnswer):
        within(patience_s, look_twice)
    return set(filled)
