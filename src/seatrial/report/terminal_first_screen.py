"""The first screen on a terminal: headline, ranking, the most important findings, and where the rest is.

In: CampaignResults. Out: rich renderables of at most `MAX_LINES` lines at 80 columns and more. Findings are shortened before rows of the
ranking are left out; what is left out is counted, and `seatrial report OUT --full` prints it.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.text import Text

from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults
from seatrial.report.terminal_sections import NOTE_STYLES, clipped, headline_lines, written_reports
from seatrial.report.text import NONE, figure, margin, one_line
from seatrial.report.view import campaign, first_screen
from seatrial.report.view.first_screen import KeyFinding, Status

# A terminal of 25 lines needs one for the prompt.
MAX_LINES = 24
LINES_OF_ORIGIN = 2
FEWEST_GROUPS = 5
MARKS = {Status.GOOD: ("+ ", "bold green"), Status.BAD: ("x ", "bold red"), Status.OPEN: ("! ", "bold yellow"), Status.UNKNOWN: ("? ", "")}
# Lines of the first finding and of its action, then of each other finding: the first entry that fits with the ranking is used.
DETAILS = (((3, 2), (2, 2)), ((3, 2), (2, 1)), ((2, 2), (1, 1)), ((2, 2), (1, 0)), ((1, 1), (1, 0)))
NAME, NOTE = 1, 6
# By column of the ranking: the width of a terminal below which it is left out.
MIN_WIDTHS = (30, 0, 0, 60, 48, 72, 0)
SHORTEST_NAME = 8
SHOWN_BEFORE = 4
"""Characters before the position where two names differ."""
GAP = "  "
PARTS = "_"
"""Between the axes in the name of a group."""


def first_screen_lines(results: CampaignResults, width: int) -> list[RenderableType]:
    """The whole screen, laid out for `width` columns."""
    head = [*_origin(results, width), *headline_lines(results, width)]
    shown = first_screen.key_findings(results)[: first_screen.MAX_FINDINGS]
    room = MAX_LINES - len(head) - len(where(results, 0, 0))
    wanted = len(first_screen.first_rows(results))
    for of_first, of_rest in DETAILS:
        found = _finding_lines(shown, of_first, of_rest, width)
        # A blank line before each block that is not empty, and the table's heading.
        rows = room - len(found) - bool(found) - 1 - bool(wanted) - 1
        if rows >= min(wanted, FEWEST_GROUPS):
            break
    ranked = first_screen.first_rows(results, max(min(rows, first_screen.MAX_GROUPS), 1)) if wanted else []
    tail = where(results, len(ranked), len(shown))
    blocks = [head, _ranking(results, ranked, width) if ranked else [], found, tail]
    return [line for at, block in enumerate(filter(None, blocks)) for line in ([Text("")] if at else []) + block]


def _origin(results: CampaignResults, width: int) -> list[RenderableType]:
    origin = campaign.origin_sentence(results)
    return list(clipped(origin, width, LINES_OF_ORIGIN)) if origin else []


def where(results: CampaignResults, groups: int, findings: int) -> list[RenderableType]:
    """The page, and how much more there is with the command that prints it."""
    lines: list[RenderableType] = []
    for label, path in written_reports(results)[:1]:
        lines.append(Text.assemble(label, (one_line(str(path)), "cyan"), no_wrap=True, overflow="ignore"))
    more = ", ".join(text for _, text in first_screen.left_over(results, groups, findings))
    command = f"seatrial report {shlex.quote(one_line(results.output))} --full"
    lines.append(Text.assemble(f"{more}: " if more else "Details: ", (command, "cyan"), no_wrap=True, overflow="ignore"))
    return lines


def _finding_lines(shown: Sequence[KeyFinding], of_first: tuple[int, int], of_rest: tuple[int, int], width: int) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for at, finding in enumerate(shown):
        of_text, of_action = of_rest if at else of_first
        mark, style = MARKS[finding.status]
        for number, line in enumerate(clipped(finding.text, width - len(mark), of_text)):
            lines.append(Text.assemble((" " * len(mark) if number else mark, style), line))
        if finding.action:
            lines += [Text.assemble("  ", line) for line in clipped(f"What to do: {finding.action}", width - 2, of_action, "bold")]
    return lines


def _ranking(results: CampaignResults, rows: Sequence[RankedGroup], width: int) -> list[RenderableType]:
    """A heading and a line per group: rank, name, figure, interval, ratio to the best with its interval, note."""
    heads = ["#", "group", results.ranking.unit or results.ranking.metric, "±", "to best", "95 %", ""]
    cells = [heads, *(_cells(row) for row in rows)]
    kept = [at for at, least in enumerate(MIN_WIDTHS) if width >= least]
    widths = {at: max(cell_len(row[at]) for row in cells) for at in kept}
    figures = sum(widths[at] + len(GAP) for at in kept if at not in (NAME, NOTE))
    widths[NAME] = min(widths[NAME], max(width - figures - len(GAP) - widths[NOTE], SHORTEST_NAME))
    for row_cells, name in zip(cells, shortened_names([row[NAME] for row in cells], widths[NAME]), strict=True):
        row_cells[NAME] = name
    lines: list[RenderableType] = []
    for row, texts in zip([None, *rows], cells, strict=True):
        line = Text(no_wrap=True, overflow="ellipsis")
        for at in kept:
            line.append(_aligned(texts[at], widths[at], at), _style(row, at))
            line.append(GAP)
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


def _aligned(text: str, columns: int, at: int) -> str:
    if at == NOTE:
        return text
    if at == NAME:
        return set_cell_size(text, columns)
    return " " * max(columns - cell_len(text), 0) + text


def _style(row: RankedGroup | None, at: int) -> str:
    if row is None:
        return "bold"
    if at == NAME:
        return "bold" if campaign.is_first(row) else ""
    return ("yellow" if row.summary.debug else NOTE_STYLES.get(row.note, "")) if at == NOTE else ""


def _cells(row: RankedGroup) -> list[str]:
    group = row.summary
    failed = group.failed_runs + len(group.infrastructure_failures)
    missing = [f"{failed} failed"] if failed else []
    missing += [f"{group.set_aside_runs} set aside"] if group.set_aside_runs else []
    return [
        str(row.rank),
        one_line(row.group),
        figure(row.value),
        margin(row.estimate).removeprefix("±").strip() or NONE,
        campaign.to_best(row),
        campaign.to_best_interval(row),
        ", ".join(filter(None, (campaign.note_with_debug(row), *missing))),
    ]


def shortened_names(names: Sequence[str], columns: int) -> list[str]:
    """Each name in `columns`. Names of groups are parts joined by `_`: the common beginning of a part in all names is shortened, the rest
    stays whole. Where that does not fit, names that would look the same begin shortly before they differ."""
    shown = [shortened(name, columns) for name in names]
    long = {len(name.split(PARTS)) for name in names if cell_len(name) > columns}
    for number in long:
        places = [at for at, name in enumerate(names) if len(name.split(PARTS)) == number]
        for at, text in zip(places, _with_shorter_parts([names[at] for at in places], columns), strict=False):
            shown[at] = text
    return _begun_where_they_differ(names, shown, columns)


def _with_shorter_parts(names: Sequence[str], columns: int) -> list[str]:
    """Names with the same number of parts, with shorter parts; [] where they do not fit."""
    rows = [name.split(PARTS) for name in names]
    common = [_common(column) for column in zip(*rows, strict=True)]
    for kept in range(max(map(len, common)), -1, -1):
        heads = [head if len(head) <= kept + 1 else f"{head[:kept]}…" for head in common]
        texts = [PARTS.join(f"{head}{part[len(own) :]}" for head, own, part in zip(heads, common, row, strict=True)) for row in rows]
        if all(cell_len(text) <= columns for text in texts):
            return texts
    return []


def _common(parts: Sequence[str]) -> str:
    """The common beginning, up to the word in which they differ: `name-` of `name-v1` and `name-v2`."""
    letters = itertools.takewhile(lambda each: len(set(each)) == 1, zip(*parts, strict=False))
    same = "".join(each[0] for each in letters)
    if len(set(parts)) == 1:
        return same
    return re.sub(r"(?<=[-.=])[^-.=]*$", "", same)


def _begun_where_they_differ(names: Sequence[str], shown: list[str], columns: int) -> list[str]:
    for _ in names:
        same_looks = [[at for at, one in enumerate(shown) if one == look] for look in {one for one in shown if shown.count(one) > 1}]
        ambiguous = [places for places in same_looks if len({names[at] for at in places}) > 1]
        for places in ambiguous:
            letters = zip(*(names[at] for at in places), strict=False)
            same = sum(1 for _ in itertools.takewhile(lambda each: len(set(each)) == 1, letters))
            begins = max(same - SHOWN_BEFORE, 0)
            for at in places:
                rest = names[at][begins:]
                shown[at] = "…" + (rest if cell_len(rest) < columns else set_cell_size(rest, columns - 2).rstrip() + "…")
        if not ambiguous:
            break
    return shown


def shortened(name: str, columns: int) -> str:
    """The name in `columns`; a longer one is cut in the middle, as names of groups differ at both ends."""
    if cell_len(name) <= columns:
        return name
    tail = (columns - 1) // 2
    end = name
    while cell_len(end) > tail:
        end = end[1:]
    return f"{set_cell_size(name, columns - 1 - cell_len(end)).rstrip()}…{end}"
