"""The samplers' account where they left none: an agent that was killed writes its samples, and not how it went.

In: an attempt's folder. Out: a `TelemetryAccount` with the rows that are there, or None where there are no samples either.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.files import open_file
from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import TelemetrySpec
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount
from seatrial.units import MIB

CUT_OFF = "there is no telemetry.json that can be read, as the sampler was ended before it could say how it went"


def counted_samples(paths: AttemptPaths, asked: TelemetrySpec) -> TelemetryAccount | None:
    """What the files themselves say."""
    gpu, host = _counted(paths.gpu_telemetry, asked.gpu_s), _counted(paths.host_telemetry, asked.host_s)
    return TelemetryAccount(gpu=gpu, host=host) if gpu or host else None


def _counted(path: Path, interval_s: float | None) -> SamplerAccount | None:
    try:
        line_ends = _line_ends(path)
    except FileNotFoundError:
        return None
    except OSError:
        line_ends = 0
    # The header is no row, and a row without its end is none either. What has not even a header is for its reader to tell of.
    rows = max(line_ends - 1, 0)
    return SamplerAccount(interval_s=interval_s or 0.0, rows=rows, samples=rows, empty=line_ends == 1, note=CUT_OFF)


def _line_ends(path: Path) -> int:
    with open_file(path) as source:
        return sum(block.count(b"\n") for block in iter(lambda: source.read(MIB), b""))
