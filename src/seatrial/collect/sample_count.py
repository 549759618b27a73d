"""The samplers' account where they left none: an agent that was killed writes its samples, and not how it went.

In: an attempt's folder. Out: a `TelemetryAccount` with the rows that are there, or None where there are no samples either.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import TelemetrySpec
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount

CUT_OFF = "the sampler was ended before it could say how it went"


def counted_samples(paths: AttemptPaths, asked: TelemetrySpec) -> TelemetryAccount | None:
    """What the files themselves say."""
    gpu, host = _counted(paths.gpu_telemetry, asked.gpu_s), _counted(paths.host_telemetry, asked.host_s)
    return TelemetryAccount(gpu=gpu, host=host) if gpu or host else None


def _counted(path: Path, interval_s: float | None) -> SamplerAccount | None:
    try:
        # The header is no row, and a row without its end is none either.
        rows = max(path.read_bytes().count(b"\n") - 1, 0)
    except OSError:
        return None
    return SamplerAccount(interval_s=interval_s or 0.0, rows=rows, samples=rows, empty=rows == 0, note=CUT_OFF)
