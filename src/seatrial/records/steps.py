"""The steps of one attempt as tables: what collect/ reads and analyse/ measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seatrial.records.caution import Caution
from seatrial.records.eta import EtaPoint
from seatrial.records.health import DebugSetting, RankPlace, ReportedFigure, SlowSign
from seatrial.records.measure import RunHealth, TimingPoint
from seatrial.records.run_spec import Scalar

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, kw_only=True)
class StartupFacts:
    """What the probe of one rank told before its first step had ended."""

    rank: int
    """The rank whose first step ended last; where none told a step, the lowest that began."""
    start_t: float
    """Wall clock at which its probe began."""
    start_m: float | None = None
    """The monotonic clock at that moment; None where that is not told."""
    process_t: float | None = None
    """Wall clock at which its process began; None where the system did not say."""
    spans: tuple[tuple[str, float, float], ...] = ()
    """Name (records.events.SPANS), seconds, and the monotonic clock at its end, in the order in which they ended."""


@dataclass(frozen=True, kw_only=True)
class StepTables:
    """Columns as in records.events: STEP_TABLE_COLUMNS and PAUSE_TABLE_COLUMNS; sorted by rank, then step."""

    source: str
    """`events`, `log:NAME`, or `whole` (then both tables are empty)."""
    steps: polars.DataFrame
    pauses: polars.DataFrame
    world_size: int
    effective: dict[str, tuple[Scalar, Scalar, str]] = field(default_factory=dict)
    """Setting → requested, effective, reason, as rank 0 reported them."""
    timing_points: tuple[TimingPoint, ...] = ()
    """As the script itself printed them (the seeds' `Timing` lines); empty where analysis is to compute them."""
    eta_points: tuple[EtaPoint, ...] = ()
    """Likewise, from the seeds' `TimingETA` lines."""
    startup: StartupFacts | None = None
    """None where the workload has no probe."""
    health: RunHealth | None = None
    """What the attempt's output says beside its steps."""
    places: tuple[RankPlace, ...] = ()
    """Where the ranks ran, as far as they tell."""
    debug: tuple[DebugSetting, ...] = ()
    slow_signs: tuple[SlowSign, ...] = ()
    reported: dict[str, ReportedFigure] = field(default_factory=dict)
    cautions: tuple[Caution, ...] = ()
