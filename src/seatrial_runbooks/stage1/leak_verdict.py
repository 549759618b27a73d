"""The verdict of the leak diagnosis: five figures against five thresholds, in the procedure's words.

In: figures, None where there is none. Out: `no_obvious_leak`, `suspected_leak_or_contention(FLAGS)` with commas between the flags, or
`not_enough_data` where there is no figure at all: a run of which nothing is known has not been found clean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.records.stability import exceeds

CLEAN, SUSPECTED, UNKNOWN = "no_obvious_leak", "suspected_leak_or_contention", "not_enough_data"


@dataclass(frozen=True, kw_only=True)
class LeakThresholds:
    """A figure beyond one of these is suspect; at it, it is not."""

    gpu_tail_slope_mib_per_min: float = 20.0
    gpu_tail_drift_mib: float = 4096.0
    host_tail_slope_mib_per_min: float = 100.0
    host_tail_drift_mib: float = 8192.0
    iter_drift_pct: float = 20.0


@dataclass(frozen=True, kw_only=True)
class LeakFigures:
    """What was measured of one run after its warm-up."""

    gpu_slope_mib_per_min: float | None = None
    """Of the GPU that grew fastest."""
    gpu_drift_mib: float | None = None
    host_slope_mib_per_min: float | None = None
    host_drift_mib: float | None = None
    iter_drift_pct: float | None = None


def verdict(figures: LeakFigures, thresholds: LeakThresholds) -> str:
    """In one word, with the figures that led to it."""
    if figures == LeakFigures():
        return UNKNOWN
    flags = list(_flags(figures, thresholds))
    return f"{SUSPECTED}({','.join(flags)})" if flags else CLEAN


def _flags(figures: LeakFigures, thresholds: LeakThresholds) -> Iterator[str]:
    judged = (
        ("gpu_tail_slope", figures.gpu_slope_mib_per_min, thresholds.gpu_tail_slope_mib_per_min),
        ("gpu_tail_drift", figures.gpu_drift_mib, thresholds.gpu_tail_drift_mib),
        ("host_tail_slope", figures.host_slope_mib_per_min, thresholds.host_tail_slope_mib_per_min),
        ("host_tail_drift", figures.host_drift_mib, thresholds.host_tail_drift_mib),
        ("iter_drift", figures.iter_drift_pct, thresholds.iter_drift_pct),
    )
    for name, value, most in judged:
        if value is not None and exceeds(value, most):
            yield name
