"""What the page is drawn from, read from disk: summary.json and the tables of a campaign, nothing else.

In: a campaign's folder. Out: `PageData`. Anybody who reads the same files can draw the same charts, or others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seatrial.records.charts import Columns


@dataclass(frozen=True, kw_only=True)
class PageData:
    """One campaign as the page has it."""

    summary: dict[str, Any]
    """summary.json."""
    tables: dict[str, Columns] = field(default_factory=dict)
    """`groups` (a row a group: its place, figure, interval, note, axes, window, n), `runs` (a row a current run: figure, outcome, window, n),
    and the tables of records.charts with their first columns; one without rows is not there."""
