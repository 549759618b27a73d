"""Text on a terminal that users had a hand in: never markup, no control characters, wrapped or cut by the columns that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seatrial.records.verdict import Verdict
from seatrial.report.one_line import one_line
from seatrial.wording import named

LONGEST_NAME = 28
STEPS = "steps "
# Details are of the first groups only: whoever wants them of forty opens the page.
MOST_DETAILED = 6
VERDICT_STYLES = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}


def text(said: str, style: str = "") -> Text:
    """One paragraph; a word longer than the line is broken."""
    return Text(one_line(said), style=style, overflow="fold")


def heading(said: str, remark: str = "") -> Text:
    """What a section is called, and in one clause what it shows."""
    return Text.assemble((said, "bold"), (f"  {remark}" if remark else "", "dim"), overflow="fold")


def spans(windows: Iterable[str]) -> str:
    """The windows that figures side by side are taken over; most often all are one."""
    found = list(dict.fromkeys(windows))
    if all(window.startswith(STEPS) for window in found):
        return STEPS + named([window.removeprefix(STEPS) for window in found], 2)
    return named(found, 2)


def hanging(mark: str, said: str, style: str) -> RenderableType:
    """A mark, and text that wraps beside it."""
    grid = Table.grid(padding=0)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), text(said))
    return grid


def indented(said: RenderableType) -> RenderableType:
    return Padding(said, (0, 0, 0, 2))


def more(left_out: int, what: str = "") -> Text:
    """`and 3 more: see the summary`."""
    return Text(f"and {left_out} more{' ' if what else ''}{what}: see the summary")


def listed(first: str, items: Sequence[str], width: int) -> Iterator[Text]:
    """Items with commas between them, in lines that break between two items and not within one."""
    line = one_line(first)
    for at, item in enumerate(items):
        shown = one_line(item) + ("," if at < len(items) - 1 else "")
        if line and cell_len(line) + cell_len(shown) > width:
            yield text(line.rstrip(), "dim")
            line = ""
        line += f"{shown} "
    yield text(line.rstrip(), "dim")


def columns(rows: Sequence[Sequence[str]], gap: str = "  ") -> list[str]:
    """Figures to the right, those of one kind below one another."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [gap.join(cell.rjust(wide) for cell, wide in zip(row, widths, strict=True)) for row in rows]


def names_width(names: Sequence[str], width: int) -> int:
    """Columns for names that leave most of a line for what is drawn beside them."""
    longest = max((cell_len(one_line(name)) for name in names), default=0)
    return max(min(longest, LONGEST_NAME, width // 3), 1)


def fitted(name: str, columns: int) -> str:
    """The name in exactly so many columns, cut where it is longer."""
    shown = one_line(name)
    return set_cell_size(shown, columns) if cell_len(shown) <= columns else set_cell_size(shown, columns - 1) + "…"
