"""Which samples cannot be: a driver that answers nonsense must not move a mean.

In: one row of telemetry. Out: the column whose value is impossible, or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.records.telemetry import MAY_BE_NEGATIVE, MOST_OF

# Percent of one core, of as many as there are.
UNBOUNDED_SHARES = frozenset({"tree_cpu_pct"})
PARTS = {
    "mem_used_mib": "mem_total_mib",
    "mem_free_mib": "mem_total_mib",
    "mem_available_kib": "mem_total_kib",
    "swap_free_kib": "swap_total_kib",
}


def impossible_column(row: Mapping[str, Any]) -> str | None:
    """The first column that holds an impossible value."""
    for column, value in row.items():
        if isinstance(value, (int, float)) and not _possible(column, value, row):
            return column
    return None


def _possible(column: str, value: float, row: Mapping[str, Any]) -> bool:
    if value < 0 and column not in MAY_BE_NEGATIVE:
        return False
    if column.endswith("_pct") and column not in UNBOUNDED_SHARES and value > 100:
        return False
    whole = row.get(PARTS.get(column, ""))
    return value <= MOST_OF.get(column, value) and (whole is None or value <= whole)
