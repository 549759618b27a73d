"""Types of the columns of the step table and the pause table, whichever reader makes them; and such tables without rows."""

from __future__ import annotations

from typing import Any

import polars as pl

from seatrial.records.events import STEP_TABLE_COLUMNS

STEP_SCHEMA: dict[str, Any] = {name: pl.Int64 if name in ("rank", "step", "span") else pl.Float64 for name in STEP_TABLE_COLUMNS}
PAUSE_SCHEMA: dict[str, Any] = {"rank": pl.Int64, "step": pl.Int64, "name": pl.String, "pause_ms": pl.Float64}


def empty_steps() -> pl.DataFrame:
    """A step table without rows."""
    return pl.DataFrame(schema=STEP_SCHEMA)


def empty_pauses() -> pl.DataFrame:
    """A pause table without rows."""
    return pl.DataFrame(schema=PAUSE_SCHEMA)
