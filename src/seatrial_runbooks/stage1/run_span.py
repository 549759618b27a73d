"""When a run ran, for cutting a file that covers many runs.

In: the folder with a run's files. Out: its first and last moment and the file that told it: outcome.json, else gpu_telemetry.csv, else
the stamps in train.log, which are local time and need to be told how far that is ahead of UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.files import read_json
from seatrial.paths import AttemptPaths
from seatrial_runbooks.stage1.last_attempt import last_attempt_lines, local_span_s
from seatrial_runbooks.stage1.leak_gpu import read_gpu_samples


@dataclass(frozen=True, kw_only=True)
class RunSpan:
    """Both in seconds since the epoch."""

    first_t: float
    last_t: float
    source: str


def run_span(folder: Path, utc_offset_s: float | None) -> RunSpan | None:
    """None where no file tells it."""
    paths = AttemptPaths(folder)
    return _by_outcome(paths) or _by_telemetry(paths) or _by_log(paths, utc_offset_s)


def _by_outcome(paths: AttemptPaths) -> RunSpan | None:
    stored = read_json(paths.outcome)
    told: dict[str, Any] = stored if isinstance(stored, dict) else {}
    first_t, last_t = told.get("started_t"), told.get("ended_t")
    if not (isinstance(first_t, (int, float)) and isinstance(last_t, (int, float)) and 0 < first_t < last_t):
        return None
    return RunSpan(first_t=first_t, last_t=last_t, source=paths.outcome.name)


def _by_telemetry(paths: AttemptPaths) -> RunSpan | None:
    times = [t for own in read_gpu_samples(paths.gpu_telemetry).by_gpu.values() for t, _ in own]
    return RunSpan(first_t=min(times), last_t=max(times), source=paths.gpu_telemetry.name) if times else None


def _by_log(paths: AttemptPaths, utc_offset_s: float | None) -> RunSpan | None:
    local = local_span_s(last_attempt_lines(paths.train_log))
    if local is None or utc_offset_s is None:
        return None
    return RunSpan(first_t=local[0] - utc_offset_s, last_t=local[1] - utc_offset_s, source=paths.train_log.name)
