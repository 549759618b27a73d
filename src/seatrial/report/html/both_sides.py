"""Two campaigns as one, for charts that show both.

In: the data of two pages. Out: one `PageData` whose groups and runs have the side's letter before their names, with a column `side`. A
table that is of one side only has the rows of that side. Figures in unlike units are not put on one scale: then there are no groups to
draw. Of large campaigns the best runs are drawn, so that the page stays small enough to be opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.records.charts import CHART_TABLES, Columns
from seatrial.records.measure import Cell
from seatrial.report.html import loose
from seatrial.report.html.page_data import PageData
from seatrial.report.html.picks import default_picks
from seatrial.report.html.summary_tables import standings, unit_of

SIDES = ("A", "B")
PREFIXED = ("run", "group")
ROWS_OF_A_SIDE = 150_000
"""Half of what a page of one large campaign holds."""
RUNS_PICKED = 2
"""Of the winner of each side."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Both:
    """The two together, and what the reader has to know of how they were put together."""

    data: PageData
    picks: Row
    remarks: tuple[str, ...] = ()


def both_sides(a: PageData, b: PageData) -> Both:
    """B's rows after A's."""
    kept, remarks = zip(*(_best_rows(side, data) for side, data in zip(SIDES, (a, b), strict=True)), strict=True)
    alike = unit_of(a.summary) == unit_of(b.summary) or not all("groups" in data.tables for data in (a, b))
    names = [name for name in dict.fromkeys([*a.tables, *b.tables]) if alike or name != "groups"]
    tables = {name: _stacked([(side, tables[name]) for side, tables in zip(SIDES, kept, strict=True) if name in tables]) for name in names}
    unlike = f"A is ranked by {unit_of(a.summary)} and B by {unit_of(b.summary)}: their figures are not drawn on one scale."
    return Both(
        data=PageData(summary=_summary(a.summary, b.summary), tables=tables),
        picks=_picks(a, b),
        remarks=(*filter(None, remarks), *([] if alike else [unlike])),
    )


def named(side: str, name: object) -> str:
    """A group or run as it is called in the charts of both."""
    return f"{side} {name}"


def _stacked(parts: Sequence[tuple[str, Columns]]) -> Columns:
    columns = list(dict.fromkeys(name for _, table in parts for name in table))
    stacked: Columns = {name: [] for name in columns}
    stacked["side"] = []
    for side, table in parts:
        rows = _length(table)
        for name in columns:
            values = table.get(name, [None] * rows)
            stacked[name] += [named(side, value) for value in values] if name in PREFIXED else values
        stacked["side"] += [side] * rows
    return stacked


def _best_rows(side: str, data: PageData) -> tuple[dict[str, Columns], str]:
    """The tables with as many runs, the best groups' first, as have room; and a sentence where that is not all."""
    drawn = {name: table for name, table in data.tables.items() if name in CHART_TABLES}
    rows_of: dict[Cell, int] = {}
    for table in drawn.values():
        for run in table["run"]:
            rows_of[run] = rows_of.get(run, 0) + 1
    kept: set[Cell] = set()
    left = ROWS_OF_A_SIDE
    for run in _in_order(data, rows_of):
        left -= rows_of[run]
        if left < 0 and kept:
            break
        kept.add(run)
    if len(kept) == len(rows_of):
        return data.tables, ""
    thinner = {name: _of_runs(table, kept) for name, table in drawn.items()}
    remark = f"Of {side}, the {len(kept)} runs of the best groups are drawn; there are {len(rows_of)}."
    return {**data.tables, **{name: table for name, table in thinner.items() if _length(table)}}, remark


def _in_order(data: PageData, rows_of: dict[Cell, int]) -> list[Cell]:
    """Runs that have rows: those picked, then by the place of their group."""
    places = {loose.text(row, "group"): place for place, row in enumerate(standings(data.summary))}
    group_of = _groups_of_runs(data)
    picked = default_picks(data)["runs"]
    return sorted(rows_of, key=lambda run: (run not in picked, places.get(str(group_of.get(run)), len(places))))


def _of_runs(table: Columns, runs: set[Cell]) -> Columns:
    at = [place for place, run in enumerate(table["run"]) if run in runs]
    return {name: [values[place] for place in at] for name, values in table.items()}


def _length(table: Columns) -> int:
    return len(next(iter(table.values()), []))


def _summary(a: Row, b: Row) -> Row:
    """What charts read of a summary; axes have the labels of either. There is no winner over both: that is for the comparison to say."""
    labels = {**loose.mapping(b, "axis_labels"), **loose.mapping(a, "axis_labels")}
    return {
        "ranking": {**loose.mapping(a, "ranking"), "winner": None, "groups": _of_both(a, b, "ranking", "groups")},
        "standings": [_prefixed(side, row) for side, summary in zip(SIDES, (a, b), strict=True) for row in standings(summary)],
        "runs": _of_both(a, b, "runs"),
        "axis_labels": labels,
    }


def _of_both(a: Row, b: Row, *keys: str) -> list[Row]:
    return [_prefixed(side, row) for side, summary in zip(SIDES, (a, b), strict=True) for row in loose.objects(summary, *keys)]


def _prefixed(side: str, row: Row) -> Row:
    return {**row, **{name: named(side, row[name]) for name in PREFIXED if name in row}}


def _picks(a: PageData, b: PageData) -> Row:
    """The winners' runs, side by side; the timeline is A's winner's."""
    sides = [(side, data, default_picks(data)) for side, data in zip(SIDES, (a, b), strict=True)]
    runs = [named(side, run) for side, data, picks in sides for run in _of_first_group(data, picks["runs"])]
    timelines = [named(side, picks["timeline"]) for side, _, picks in sides if picks["timeline"]]
    return {"runs": runs, "timeline": next(iter(timelines), "")}


def _of_first_group(data: PageData, runs: Sequence[str]) -> list[str]:
    group_of = _groups_of_runs(data)
    return [run for run in runs if group_of.get(run) == group_of.get(runs[0])][:RUNS_PICKED]


def _groups_of_runs(data: PageData) -> dict[Cell, Cell]:
    runs = data.tables.get("runs", {})
    return dict(zip(runs.get("run", []), runs.get("group", []), strict=False))
