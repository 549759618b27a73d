"""Which groups and runs a chart draws, in the order of rank, and how a row is told its place.

A place comes to the rows by a lookup in values that stand in the chart: names are data there and never part of an expression, whatever
characters they hold. They are spelt as the page shows them (`plain`), as the page's rows are. A row that is not in the list is not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.records.charts import Columns
from seatrial.records.measure import Cell
from seatrial.report.html import loose
from seatrial.report.html.page_data import PageData
from seatrial.report.html.shown_text import plain
from seatrial.report.html.specs.theme import Spec

Row = dict[str, Cell]

MOST = 40
"""Names that can be read one below the other; more would be a wall."""
UNKNOWN = "not known"


def rows_of(table: Columns | None) -> list[Row]:
    """A table by row; text as the page shows it."""
    if not table:
        return []
    return [{name: shown(value) for name, value in zip(table, values, strict=True)} for values in zip(*table.values(), strict=True)]


def shown(value: Cell) -> Cell:
    """A cell as it is in the page's rows."""
    return plain(value) if isinstance(value, str) else value


def is_number(value: object) -> bool:
    """A number that can be drawn."""
    return loose.number(value) is not None


def ranked_groups(data: PageData) -> list[Row]:
    """The groups that have a place: those of the main lane first."""
    placed = [row for row in rows_of(data.tables.get("groups")) if is_number(row.get("rank"))]
    return sorted(placed, key=lambda row: (not row.get("lane"), row["rank"]))


def group_order(data: PageData) -> list[str]:
    """Names of all groups, those without a place last."""
    ranked = [str(row["group"]) for row in ranked_groups(data)]
    return list(dict.fromkeys([*ranked, *(str(row["group"]) for row in rows_of(data.tables.get("groups")))]))


def run_order(data: PageData) -> list[str]:
    """Names of all runs: those of the best group first."""
    places = {group: place for place, group in enumerate(group_order(data))}
    rows = rows_of(data.tables.get("runs"))
    in_order = sorted(rows, key=lambda row: (places.get(str(row["group"]), len(places)), row.get("repeat") or 0))
    return [str(row["run"]) for row in in_order]


def first_of(data: PageData, table: str, column: str) -> tuple[list[str], int]:
    """The first MOST names of `column` that have rows in `table`, in order of rank, and how many have rows in all."""
    order = run_order(data) if column == "run" else group_order(data)
    there = _names(data, table, column)
    names = [name for name in order if name in there]
    names += sorted(there.difference(names))
    return names[:MOST], len(names)


def told(column: str, rows: Sequence[Mapping[str, Any]]) -> list[Spec]:
    """Transforms that give a row what `rows` say of its name, and drop the row where they say nothing."""
    if not rows:
        return [{"filter": "false"}]
    fields = [field for field in rows[0] if field != column]
    looked_up = {"lookup": column, "from": {"data": {"values": list(rows)}, "key": column, "fields": fields}}
    return [looked_up, {"filter": f"isValid(datum.{fields[0]})"}]


def told_place(column: str, names: Sequence[str]) -> list[Spec]:
    """Transforms that give a row the place of its name in `names`."""
    return told(column, [{column: name, "place": place} for place, name in enumerate(names)])


def told_window(data: PageData, *tables: str) -> list[Spec]:
    """Transforms that give a row of `tables` the window and n of its run."""
    there = {name for table in tables for name in _names(data, table, "run")}
    runs = [row for row in rows_of(data.tables.get("runs")) if str(row["run"]) in there]
    values = [{"run": row["run"], "window": row.get("window") or UNKNOWN, "n": row.get("n") or 0} for row in runs]
    looked_up = {"data": {"values": values}, "key": "run", "fields": ["window", "n"]}
    return [{"lookup": "run", "from": looked_up, "default": UNKNOWN}]


def _names(data: PageData, table: str, column: str) -> set[str]:
    return {plain(str(name)) for name in set(data.tables.get(table, {}).get(column, []))}


def only_best(shown: int, in_all: int, what: str) -> str:
    """A sentence for the caption, where not all are drawn."""
    return f" Only the best {shown} of {in_all} {what} are drawn." if in_all > shown else ""
