"""Markdown that survives what users name things: escaped text, tables, code blocks no log line can close."""

from __future__ import annotations

import re
from collections.abc import Sequence

from seatrial.paths import CAMPAIGN_FILES
from seatrial.report.one_line import one_line

# An underscore inside a word is text to every reader of Markdown; group names would be hard to read with it escaped.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-+#=]")
MOST_ROWS = 25
"""Of a table in summary.md, which goes into a pull request."""


def escape(text: object) -> str:
    """Text that is shown as it is: no emphasis, link, html, table cell or heading comes of it."""
    line = " ".join(one_line(str(text)).split())
    return _SPECIAL.sub(lambda found: "\\" + found.group(), line.replace("&", "&amp;"))


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int] = ()) -> str:
    """A table; the columns numbered in `right` hold figures and are set to the right."""
    marks = ["---:" if number in right else "---" for number in range(len(headers))]
    lines = [_row(headers), f"| {' | '.join(marks)} |", *(_row([escape(cell) for cell in row]) for row in rows)]
    return "\n".join(lines)


def bounded_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Sequence[int] = (),
    *,
    where: str = CAMPAIGN_FILES.summary_json.name,
    most: int = MOST_ROWS,
) -> str:
    """A table of its first rows; of more it says how many were left out and where they are."""
    shown = table(headers, rows[:most], right)
    return shown if len(rows) <= most else f"{shown}\n\n{len(rows) - most} more rows are left out here: `{where}` has them."


def folded(title: str, sections: Sequence[str], *, is_open: bool = False) -> list[str]:
    """Sections that GitHub shows folded under a title of ours; a blank line around what is inside lets it be Markdown."""
    return [f"<details{' open' if is_open else ''}>\n<summary>{title}</summary>", *sections, "</details>"]


def code_block(lines: Sequence[str], indent: str = "") -> str:
    """A fenced block whose fence is longer than any run of backticks inside."""
    cleaned = [one_line(line) for line in lines]
    longest = max((len(run) for line in cleaned for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join(f"{indent}{line}".rstrip() for line in (f"{fence}text", *cleaned, fence))


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
