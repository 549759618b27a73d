"""Rows of history as a list for people.

In: rows as plain values, and the file they are from. Out: lines.

row  name       group  runs  taken                 machine            from
  3  v100-bf16  mb16      5  2026-11-15T19:12:06Z  node-1, V100-32GB  /home/me/stage1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.report.markdown import one_line
from seatrial.report.numbers import NONE, instant

HEADS = ("row", "name", "group", "runs", "taken", "machine", "from")
RIGHT = ("row", "runs")


def history_lines(rows: Sequence[Mapping[str, Any]], file: str) -> list[str]:
    """The table, or how to begin one."""
    if not rows:
        return [f"{file} has no rows yet; `seatrial history add OUT` keeps a campaign's groups"]
    cells = [HEADS, *(_cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(HEADS))]
    return ["  ".join(_set(HEADS[at], cell, widths[at]) for at, cell in enumerate(line)).rstrip() for line in cells]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    machine = row["machine"]
    where = ", ".join(value for value in (machine.get("host"), machine.get("gpu_name")) if value and value != "none")
    taken = instant(row["taken_t"]) if row["taken_t"] else NONE
    cells = (str(row["row"]), ", ".join(row["names"]) or NONE, row["group"], str(row["runs"]), taken, where or NONE, row["campaign"])
    return tuple(one_line(cell) for cell in cells)


def _set(head: str, cell: str, width: int) -> str:
    return cell.rjust(width) if head in RIGHT else cell.ljust(width)
