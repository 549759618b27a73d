"""How far the clock of the machine that wrote a folder was ahead of UTC.

In: logs and samples of its runs. Out: seconds, None where no file tells. What a run's own samples tell counts first, as they have both
times side by side, then what its META block names, then what is known from elsewhere in the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.collect.original.runs import RunLogs
from seatrial.collect.original.samples import RunSamples


def zone_of(logs: RunLogs, samples: RunSamples, elsewhere_s: float | None) -> float | None:
    """Of one run."""
    return first_known(samples.zone_s(), *named_zones_s([logs]), elsewhere_s)


def first_known(*zones_s: float | None) -> float | None:
    return next((zone_s for zone_s in zones_s if zone_s is not None), None)


def named_zones_s(runs: Sequence[RunLogs]) -> Iterator[float]:
    """Zones that the META blocks themselves name, newest attempts of each run first."""
    for run in runs:
        zones = (attempt.block.zone_s for attempt in reversed(run.attempts) if attempt.block)
        yield from (zone_s for zone_s in zones if zone_s is not None)
