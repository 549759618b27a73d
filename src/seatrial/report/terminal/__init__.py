"""The report on a terminal, the same as the page in short: ranking and intervals, courses, parts and waits, then causes and the verdict.

In: CampaignResults. Out: a rich renderable, printed by `print_report`, saved as a picture by `save_svg`. Names and log lines come from
users: they are put into `rich.text.Text` and never read as markup. Readable at 80 columns, without colour, and in ASCII.

What somebody must know stands last, next to the prompt, and does not scroll away; what it rests on stands above it, cut to the first few
groups. One module a section: `ranked`, `courses`, `shares`, `waits`, `machine`, `hosts`, `troubles`, `judged`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.records.results import CampaignResults
from seatrial.report.characters import InItsEncoding
from seatrial.report.digest.cautions import NOT_WRITTEN, PAGE_NOT_DRAWN
from seatrial.report.digest.sentences import origin
from seatrial.report.one_line import one_line
from seatrial.report.picture import COLOURS, GROUND, SVG_FORMAT, TEXT
from seatrial.report.terminal.courses import courses
from seatrial.report.terminal.hosts import hosts
from seatrial.report.terminal.judged import statements, verdict
from seatrial.report.terminal.machine import machine
from seatrial.report.terminal.ranked import ranked
from seatrial.report.terminal.shares import phase_shares, startup_shares
from seatrial.report.terminal.text import text
from seatrial.report.terminal.troubles import causes, warned
from seatrial.report.terminal.waits import waits

DEFAULT_WIDTH = 80


def print_report(results: CampaignResults, console: Console) -> None:
    """Print everything, at the console's width and in the characters that it has."""
    console.print(InItsEncoding(render(results, width=console.width)))


def render(results: CampaignResults, *, width: int = DEFAULT_WIDTH) -> RenderableType:
    """The whole report, made for `width` columns."""
    evidence = (ranked, courses, phase_shares, startup_shares, waits, machine, hosts, warned, causes, statements, verdict, _where)
    return Group(*_origin(results), *_apart(section(results, width) for section in evidence))


def save_svg(results: CampaignResults, path: Path, *, width: int = 100, title: str = "seatrial") -> None:
    """The same as a picture that needs no font and no host but its own file."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False)
    print_report(results, console)
    theme = TerminalTheme(GROUND, TEXT, COLOURS, COLOURS)
    files.write_text(path, console.export_svg(title=title, theme=theme, code_format=SVG_FORMAT, unique_id="seatrial"))


def _apart(sections: Iterable[Iterator[RenderableType]]) -> Iterator[RenderableType]:
    """A blank line between two sections that have something to say."""
    said = [lines for section in sections if (lines := list(section))]
    return chain.from_iterable([*([Text("")] if at else []), *lines] for at, lines in enumerate(said))


def _origin(results: CampaignResults) -> Iterator[RenderableType]:
    if made_of := origin(results):
        yield text(made_of)
        yield Text("")


def _where(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """The page to open, and what a pull request takes; of a report that was not written nothing, lest an old one be opened."""
    amiss = {caution.kind for caution in results.cautions}
    paths = CampaignPaths(Path(results.output))
    written = [] if NOT_WRITTEN in amiss else [("For a pull request: ", paths.summary_md)]
    if not amiss & {NOT_WRITTEN, PAGE_NOT_DRAWN}:
        written.insert(0, ("Report: ", paths.summary_html))
    for label, path in written:
        yield Text.assemble(label, (one_line(str(path)), "cyan"), overflow="fold")
