"""What the machine was and did, and how long runs took to start, as the page shows them.

In: summary.json. Out: sentences, and tables with a row a group, best first; a column that no run has a figure for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from seatrial.records.events import STARTUP_PARTS
from seatrial.report.digest import startup as told_startup
from seatrial.report.digest import telemetry
from seatrial.report.html import loose
from seatrial.report.html.summary_tables import standings
from seatrial.report.numbers import NONE, figure
from seatrial.wording import count

Row = dict[str, Any]
Column = tuple[str, str, Callable[[Sequence[float]], float]]

STARTUP: tuple[Column, ...] = (
    *((f"startup_{part}_sec", part.replace("_", " "), fmean) for part in STARTUP_PARTS),
    ("startup_sec", "in all", fmean),
)


def machines(summary: Row) -> list[str]:
    """Each kind of machine and code, with the number of runs made on it."""
    return [f"{loose.text(row, 'text')} ({count(loose.whole(row, 'runs') or 0, 'run')})" for row in loose.objects(summary, "machines")]


def what_it_did(summary: Row) -> Row | None:
    """Over the measured windows; None where nothing was sampled."""
    return _by_group(summary, telemetry.COLUMNS, telemetry.EXPLAINED, figure)


def startup(summary: Row) -> Row | None:
    """Seconds before the first step, part by part; None where no run tells its parts."""
    parts = {column for column, _, _ in STARTUP[:-1]}
    told = [row for row in loose.objects(summary, "runs") if any(row.get(part) is not None for part in parts)]
    return _by_group({**summary, "runs": told}, STARTUP, told_startup.EXPLAINED, lambda value: f"{value:.2f}")


def _by_group(summary: Row, columns: Sequence[Column], explained: str, shown: Callable[[float], str]) -> Row | None:
    groups: dict[str, list[Row]] = {loose.text(row, "group"): [] for row in standings(summary)}
    for row in loose.objects(summary, "runs"):
        groups.setdefault(loose.text(row, "group"), []).append(row)
    kept = [column for column in columns if any(_values(rows, column[0]) for rows in groups.values())]
    if not kept:
        return None
    return {
        "columns": ["group", *(title for _, title, _ in kept), "runs"],
        "rows": [[name, *(_cell(rows, column, shown) for column in kept), str(len(rows))] for name, rows in groups.items() if rows],
        "right": list(range(1, len(kept) + 2)),
        "explained": explained,
    }


def _cell(rows: Sequence[Row], column: Column, shown: Callable[[float], str]) -> str:
    name, _, together = column
    values = _values(rows, name)
    return shown(together(values)) if values else NONE


def _values(rows: Sequence[Row], name: str) -> list[float]:
    return [value for row in rows if (value := loose.number(row, name)) is not None]
