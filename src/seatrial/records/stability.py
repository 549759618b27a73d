"""How steady a group is over its repeats, and a platform over a campaign."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from seatrial.records.health import UnevenCause

LEAST_REPEATS = 3
"""With fewer the seeds' gates have no verdict: of two an interval is wide, and one has no spread."""
ROUNDING_RATIO = 1e-9
"""0.05 is not the same number each way it is computed."""


class StabilityVerdict(str, enum.Enum):
    """Whether figures of a group can be relied on to come again."""

    STABLE = "stable"
    UNSTABLE = "unstable"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, kw_only=True)
class GroupStability:
    """By the seeds' gates: median and highest p90/p50 of the runs, spread over the repeats, share of unstable runs."""

    verdict: StabilityVerdict
    reason: str
    runs: int
    ratio_median: float | None = None
    """Median over the runs of iter p90/p50 (the last timing window, as the seeds take it)."""
    ratio_max: float | None = None
    cv_pct: float | None = None
    """Coefficient of variation of the throughput over the repeats; None below two runs."""
    unstable_run_ratio: float | None = None
    causes: tuple[UnevenCause, ...] = ()
    """Of its runs, each kind once, the one with the strongest evidence."""


@dataclass(frozen=True, kw_only=True)
class SentinelDrift:
    """One configuration run again and again in between: what changes in it is the platform."""

    verdict: StabilityVerdict
    reason: str
    group: str
    runs: int
    metric: str = ""
    drift_pct: float | None = None
    """From the first sentinel to the last, by a line through the logs; negative where the platform became slower."""
    drift_low: float | None = None
    """95 % interval."""
    drift_high: float | None = None
    level_change_pct: float | None = None
    """By how much its level changed between two sentinels, where it did so at one place; negative where it became slower."""
    spread_pct: float | None = None
    """Highest over lowest, less 1."""
    first_t: float | None = None
    last_t: float | None = None


def exceeds(value: float, most: float) -> bool:
    """Beyond the bound; at it is not beyond."""
    return value > most and not math.isclose(value, most, rel_tol=ROUNDING_RATIO)
