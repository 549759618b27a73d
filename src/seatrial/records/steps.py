"""The steps of one attempt as tables: what collect/ reads and analyse/ measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seatrial.records.caution import Caution
from seatrial.records.measure import TimingPoint
from seatrial.records.run_spec import Scalar

if TYPE_CHECKING:
    import polars


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
    cautions: tuple[Caution, ...] = ()
