"""Which rows a chart draws, and its document with them in: for pictures, what draw.js does for the page, by the same rules, which
tests/browser/test_rows_alike.py holds them to.

1. Tables: those of the page's data, and `startup` (`tables_for`), which is made of summary.json.
2. Rows: those of the chart's table, every cell as the page has it (encode.py). The table `timeline` is the chosen run's rows of
   `telemetry`, then `spans`, then `steps`, each with `kind`: `telemetry`, `span` or `step`.
3. Whose: `picks` of the chart is `all`: every row; `runs`: those whose `run` is among the picked runs; `run`: those of the timeline's run.
4. x and y: for `steps` and `loss`, x is the row's `step`, or its `t_s` where the reader asks for time. For a chart with `axes`, x is the
   row's `axis_NAME` of the axis chosen for x, and y that of the one for y (with one axis only, x). No level is the word `none`, a yes or
   no the word `true` or `false`.
5. In the document, a `title` that is exactly `{x}` or `{y}` becomes the axis's name, or `step`, or `seconds since launch`; the rows are
   its data set `rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.records.charts import Columns
from seatrial.records.columns import AXIS
from seatrial.records.measure import Cell
from seatrial.report.html.chart import Chart
from seatrial.report.html.encode import cells_of, digits_of
from seatrial.report.html.page_data import PageData
from seatrial.report.html.picks import default_picks
from seatrial.report.html.shown_text import plain
from seatrial.report.html.specs.startup import TABLE as STARTUP
from seatrial.report.html.specs.startup import startup_table
from seatrial.report.html.specs.timeline import TABLES as OF_TIMELINE

Row = dict[str, Cell]
Picks = Mapping[str, Any]
"""`runs`: names; `timeline`: a name; `x`, `y`: axes; `by`: `step` or `time`. What is not there is the chart's own default."""

SERIES = ("steps", "loss")
BY = {"step": ("step", "step"), "time": ("t_s", "seconds since launch")}
"""What the reader chose → the column, and its title."""


def tables_for(data: PageData) -> dict[str, Columns]:
    """Every table that a chart may draw."""
    startup = startup_table(data)
    return {**data.tables, **({STARTUP: startup} if startup else {})}


def rows_for(chart: Chart, data: PageData, picks: Picks | None = None) -> list[Row]:
    """The rows as the document takes them."""
    picked = default_picks(data) if picks is None else picks
    whose = _whose(chart, picked)
    rows = [*_rows(chart.table, data, whose)]
    for column, name in _columns(chart, picked).items():
        for row in rows:
            row[column] = _level(row.get(name)) if chart.axes else row.get(name)
    return rows


def drawn_spec(chart: Chart, data: PageData, picks: Picks | None = None) -> dict[str, Any]:
    """The whole document, ready to be drawn."""
    picked = default_picks(data) if picks is None else picks
    spec = _titled(chart.spec, _titles(chart, picked))
    return {**spec, "datasets": {"rows": rows_for(chart, data, picked)}}


def chosen_axes(chart: Chart, picks: Picks) -> dict[str, str]:
    """Of a chart with axes, which of them is x and which y."""
    return {where: picks.get(where) or axis for where, axis in zip("xy", chart.axes, strict=False)}


def _whose(chart: Chart, picks: Picks) -> set[str] | None:
    """Names of runs; None for all."""
    if chart.picks == "all":
        return None
    return {plain(str(run)) for run in (picks.get("runs") or ())} if chart.picks == "runs" else {plain(str(picks.get("timeline") or ""))}


def _rows(table: str, data: PageData, whose: set[str] | None) -> Iterator[Row]:
    if table == "timeline":
        for part, kind in OF_TIMELINE.items():
            yield from ({**row, "kind": kind} for row in _rows(part, data, whose))
        return
    columns = {plain(name): cells_of(name, values, digits_of(table)) for name, values in tables_for(data).get(table, {}).items()}
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        if whose is None or row.get("run") in whose:
            yield row


def _level(value: Cell) -> Cell:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else value


def _columns(chart: Chart, picks: Picks) -> dict[str, str]:
    """`x` and `y` → the column that they are."""
    if chart.id in SERIES:
        return {"x": BY[picks.get("by") or "step"][0]}
    return {where: plain(f"{AXIS}{axis}") for where, axis in chosen_axes(chart, picks).items()}


def _titles(chart: Chart, picks: Picks) -> dict[str, str]:
    if chart.id in SERIES:
        return {"{x}": BY[picks.get("by") or "step"][1]}
    return {f"{{{where}}}": plain(axis) for where, axis in chosen_axes(chart, picks).items()}


def _titled(part: Any, titles: Mapping[str, str], key: str = "") -> Any:
    if isinstance(part, dict):
        return {name: _titled(value, titles, name) for name, value in part.items()}
    if isinstance(part, list):
        return [_titled(value, titles, key) for value in part]
    return titles.get(part, part) if key == "title" and isinstance(part, str) else part
