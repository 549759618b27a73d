"""The report on a terminal: in one screen, or in full with step times, phases, ranks, machine, failures and every finding.

In: CampaignResults. Out: a rich renderable, printed by `print_report`, saved as SVG by `save_svg`. Names and log lines are users' text:
they go into `rich.text.Text` and are never parsed as markup. The report is readable at 80 columns, without colour, and in ASCII.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from seatrial.core import files
from seatrial.records.results import CampaignResults
from seatrial.report import terminal_sections as sections
from seatrial.report.terminal_first_screen import first_screen_lines
from seatrial.report.text import BLOCKS, can_encode, one_line
from seatrial.report.view.campaign import origin_sentence

# Filled by rich's export; any monospaced font of the viewer will do, as every text has its own length.
SVG_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
        font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{
        font-size: 16px;
        font-weight: bold;
        font-family: system-ui, sans-serif;
    }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""

# RGB values of a dark theme: background and text, then the terminal's eight colours in their order.
GROUND, TEXT = (16, 24, 36), (214, 222, 235)
COLOURS = [
    (40, 50, 66),
    (239, 105, 110),
    (98, 201, 137),
    (229, 192, 88),
    (106, 167, 240),
    (198, 146, 233),
    (92, 200, 214),
    (214, 222, 235),
]


DEFAULT_WIDTH, SVG_WIDTH = 80, 100


def print_report(results: CampaignResults, console: Console, *, full: bool = False) -> None:
    """Print the first screen or everything, in the console's width and characters."""
    shown = render(results, width=console.width) if full else Group(*first_screen_lines(results, console.width))
    console.print(InConsoleEncoding(shown), soft_wrap=not full)


def render(results: CampaignResults, *, width: int = DEFAULT_WIDTH) -> RenderableType:
    """The whole report, laid out for `width` columns."""
    shown = (
        sections.ranking_section,
        sections.step_time_section,
        sections.phases_section,
        sections.startup_section,
        sections.ranks_section,
        sections.machine_section,
        sections.hosts_section,
        sections.cautions_section,
        sections.failures_section,
        sections.statements_section,
        sections.verdict_section,
        _where,
    )
    return Group(*_separated([_origin(results), *(section(results, width) for section in shown)]))


def save_svg(results: CampaignResults, path: Path, *, full: bool = False) -> None:
    """Write the report as an SVG that loads no font and no other file."""
    console = Console(record=True, width=SVG_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False)
    print_report(results, console, full=full)
    theme = TerminalTheme(GROUND, TEXT, COLOURS, COLOURS)
    files.write_text(path, console.export_svg(title="seatrial", theme=theme, code_format=SVG_FORMAT, unique_id="seatrial"))


def _separated(blocks: Iterable[Iterator[RenderableType]]) -> Iterator[RenderableType]:
    """The sections that are not empty, with a blank line between them."""
    filled = [lines for section in blocks if (lines := list(section))]
    return chain.from_iterable([*([Text("")] if at else []), *lines] for at, lines in enumerate(filled))


def _origin(results: CampaignResults) -> Iterator[RenderableType]:
    if origin := origin_sentence(results):
        yield sections.text(origin)


def _where(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """The page, and the file for a pull request."""
    for label, path in sections.written_reports(results):
        yield Text.assemble(label, (one_line(str(path)), "cyan"), overflow="fold")


ASCII_DRAWINGS = ((BLOCKS, "12345678"), ("├─┤●◂▸│", "|-|o<>|"))
ASCII_SIGNS = str.maketrans("±–—−…×→°µ≤≥’“”·\N{NO-BREAK SPACE}", "~---.x>'u<>'\"\". ")


class InConsoleEncoding:
    """A renderable in the characters that the console can show."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._shown, options):
            yield Segment(in_encoding(segment.text, console.encoding), segment.style, segment.control)


def in_encoding(text: str, encoding: str) -> str:
    """The text, of the same width, in characters of the encoding."""
    if can_encode(text, encoding):
        return text
    for drawn, instead in ASCII_DRAWINGS:
        if not can_encode(drawn, encoding):
            text = text.translate(str.maketrans(drawn, instead))
    return "".join(_encodable(character, encoding) for character in text)


def _encodable(character: str, encoding: str) -> str:
    if can_encode(character, encoding):
        return character
    sign = character.translate(ASCII_SIGNS)
    return sign if sign.isascii() else "?" * cell_len(character)
