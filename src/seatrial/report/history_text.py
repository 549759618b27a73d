"""Rows of history as a list for people.

In: rows as plain values, the file they are from, and how many of its lines cannot be read. Out: lines no wider than the terminal, two for
each row: long names are cut in the middle, and `--json` has them whole.

row  name       group  runs  throughput       taken
  3  v100-bf16  mb16      5  1,561 samples/s  2026-11-15T19:12:06Z
     node-1, V100-32GB, /home/me/stage1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.report.numbers import NONE, figure, instant
from seatrial.report.one_line import one_line
from seatrial.wording import count

HEADS = ("row", "name", "group", "runs", "throughput", "taken")
RIGHT = ("row", "runs")
# Names are what gives way where the terminal is narrow, and not below this.
CUT, SHORTEST = ("name", "group"), 8
GAP = "  "


def history_lines(rows: Sequence[Mapping[str, Any]], file: str, width: int = 80, unreadable: int = 0) -> list[str]:
    """The table, or how to begin one."""
    lost = [f"{count(unreadable, 'line')} of {file} cannot be read, and what they held is not shown"] if unreadable else []
    if not rows:
        return [
            f"{file} has no rows{' that can be read' if unreadable else ' yet'}; `seatrial history add OUT` keeps a campaign's groups",
            *lost,
        ]
    cells = [HEADS, *(_cells(row) for row in rows)]
    widths = _widths(cells, width)
    lines = [_line(HEADS, widths)]
    for row, line in zip(rows, cells[1:], strict=True):
        indent = " " * (widths[0] + len(GAP))
        lines += [_line(line, widths), indent + _cut(_origin(row), max(width - len(indent), SHORTEST))]
    return lines + lost


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    speed = f"{figure(row['throughput'])} {row['unit']}" if row.get("throughput") else NONE
    taken = instant(row["taken_t"]) if row["taken_t"] else NONE
    cells = (str(row["row"]), ", ".join(row["names"]) or NONE, row["group"], str(row["runs"]), speed, taken)
    return tuple(one_line(cell) for cell in cells)


def _origin(row: Mapping[str, Any]) -> str:
    """Machine and folder."""
    machine = row["machine"]
    facts = [value for value in (machine.get("host"), machine.get("gpu_name")) if value and value != "none"]
    return one_line(", ".join([*facts, row["campaign"]]))


def _widths(cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """As wide as the cells are, less what names must give way by."""
    widths = [max(len(line[at]) for line in cells) for at in range(len(HEADS))]
    while sum(widths) + len(GAP) * (len(HEADS) - 1) > width:
        widest = max((HEADS.index(head) for head in CUT), key=lambda at: widths[at])
        if widths[widest] <= SHORTEST:
            break
        widths[widest] -= 1
    return widths


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(_set(head, _cut(cell, wide), wide) for head, cell, wide in zip(HEADS, cells, widths, strict=True)).rstrip()


def _set(head: str, cell: str, width: int) -> str:
    return cell.rjust(width) if head in RIGHT else cell.ljust(width)


def _cut(text: str, width: int) -> str:
    """Cut in the middle: names and paths are told apart by their ends."""
    if len(text) <= width:
        return text
    end = width * 2 // 3
    return f"{text[: width - end - 1]}…{text[len(text) - end :]}"
