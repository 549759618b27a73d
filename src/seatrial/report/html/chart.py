"""One chart of the page: what it draws, from which table, and for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A Vega-Lite document without its rows: those of `table` are put in as the data set `rows` where it is drawn."""

    id: str
    """Stable: `chart-ID` in the page, `ID.png` among the pictures."""
    section: str
    """The section of the page that it stands in."""
    title: str
    caption: str
    """One or two sentences: what is drawn, over which steps."""
    table: str
    """Name in PageData.tables."""
    spec: dict[str, Any]
    """Its data are `{"name": "rows"}`; colours of text and lines are `currentColor`, so that it is read on light and on dark."""
    picks: str = "all"
    """Whose rows: `all`; `runs` (those picked in the page); `run` (the one chosen for the timeline)."""
    axes: tuple[str, ...] = ()
    """Axes that the reader can choose between for x and y, where the chart has them (its fields are then `x` and `y`)."""
