"""The page's tables of groups and of runs, made of summary.json.

In: summary.json. Out: two tables by column, `groups` with a row a ranked group and `runs` with a row a current run; {} for none.
A summary that an earlier version wrote has no `standings` and no `current_runs`: then what it has is put in their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seatrial.records.charts import Columns
from seatrial.records.columns import AXIS
from seatrial.report.digest.standings import LEADS, WINNER
from seatrial.report.html import loose
from seatrial.report.rows import MEAN_ALONE, WITH_INTERVAL

GROUP_COLUMNS = (
    "rank", "group", "mode", "lane", "value", "low", "high", "ratio", "ratio_low", "ratio_high", "unit", "note", "runs", "failed",
    "p90_over_p50", "startup_s", "window", "n",
)  # fmt: skip
RUN_COLUMNS = ("run", "group", "repeat", "outcome", "value", "unit", "p50_ms", "p90_over_p50", "window", "n")
COLUMN_OF = {**WITH_INTERVAL, **MEAN_ALONE}
"""The metric ranked by → its column in the rows of summary.json."""

Row = dict[str, Any]


def groups_table(summary: Row) -> Columns:
    """Main lane first, each in its order; an axis is a column `axis_NAME`."""
    rows = standings(summary)
    axes = axis_names(rows)
    unit = unit_of(summary)
    cells = [{**row, **{f"{AXIS}{name}": loose.mapping(row, "axes").get(name) for name in axes}, "unit": unit} for row in rows]
    return _columns(cells, (*GROUP_COLUMNS, *(f"{AXIS}{name}" for name in axes)))


def runs_table(summary: Row) -> Columns:
    """Current runs that are over, by name."""
    column = COLUMN_OF.get(loose.text(summary, "ranking", "metric"), "")
    measured = {_whose(row): row for row in loose.objects(summary, "runs")}
    unit = unit_of(summary)
    rows = []
    for run in _current_runs(summary):
        row = measured.get(_whose(run), {})
        figures = {
            "value": row.get(column),
            "unit": unit,
            "p50_ms": row.get("wall_iter_p50_ms"),
            "p90_over_p50": row.get("wall_p90_over_p50"),
            "window": _window(row),
            "n": row.get("window_n"),
        }
        rows.append({**run, **figures})
    return _columns(rows, RUN_COLUMNS)


def standings(summary: Row) -> list[Row]:
    """A row a ranked group, as summary.json tells them or as they can be made of what an earlier version told."""
    told = loose.objects(summary, "standings")
    return told or [_old_standing(summary, row) for row in loose.objects(summary, "ranked_groups")]


def axis_names(rows: Sequence[Row]) -> list[str]:
    """In the order they first occur."""
    return list(dict.fromkeys(name for row in rows for name in loose.mapping(row, "axes")))


def unit_of(summary: Row) -> str:
    return loose.text(summary, "ranking", "unit") or loose.text(summary, "ranking", "metric")


def _old_standing(summary: Row, row: Row) -> Row:
    column = COLUMN_OF.get(loose.text(summary, "ranking", "metric"), "")
    winner = loose.text(summary, "ranking", "winner")
    return {
        "rank": row.get("rank"),
        "group": loose.text(row, "group"),
        "mode": loose.text(row, "mode"),
        "lane": row.get("lane") is not False,
        "value": row.get(column),
        "low": row.get(f"{column}_low"),
        "high": row.get(f"{column}_high"),
        # As that version called it.
        "ratio": row.get("ratio_to_leader"),
        "ratio_low": row.get("ratio_low"),
        "ratio_high": row.get("ratio_high"),
        "note": _first_note(summary) if winner and row.get("group") == winner else "",
        "runs": row.get("runs"),
        "failed": row.get("failed_runs"),
        "p90_over_p50": row.get("wall_p90_over_p50"),
        "startup_s": row.get("startup_sec"),
        "window": "",
        "n": row.get("window_n"),
        "reason": loose.text(row, "reason"),
        "axes": {name.removeprefix(AXIS): value for name, value in row.items() if name.startswith(AXIS)},
    }


def _first_note(summary: Row) -> str:
    """What the first of the ranking is called: it has won only where the data decide it and nothing is still to be run."""
    is_won = loose.mapping(summary, "ranking").get("decided") is True and not loose.items(summary, "pending")
    return WINNER if is_won else LEADS


def _current_runs(summary: Row) -> list[Row]:
    told = loose.objects(summary, "current_runs")
    if told:
        return told
    return [{**row, "outcome": "ok"} for row in loose.objects(summary, "runs")] + loose.objects(summary, "skipped_runs")


def _whose(row: Row) -> tuple[str, str]:
    """Two plans in one folder may give one name to two runs; their groups are told apart."""
    return loose.text(row, "run"), loose.text(row, "group")


def _window(row: Row) -> str:
    first, last = loose.whole(row, "window_first_step"), loose.whole(row, "window_last_step")
    return "" if first is None or last is None else f"steps {first}–{last}"


def _columns(rows: Sequence[Row], names: Sequence[str]) -> Columns:
    return {name: [_cell(row.get(name)) for row in rows] for name in names} if rows else {}


def _cell(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool)) else None
