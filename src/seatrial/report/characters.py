"""Our drawings and signs on a terminal whose encoding has none of them.

In: text, or what rich is to print, and an encoding. Out: the same in characters that it has, one for one, so that columns stay columns:
sparklines become digits, interval bars `|--o--|`, and what is left a question mark. A drawing is changed whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from seatrial.report.sparkline import BLOCKS

DRAWINGS = ((BLOCKS, "12345678"), ("├─┤●◂▸│", "|-|o<>|"))
SIGNS = str.maketrans("±–—−…×→°µ≤≥’“”·\N{NO-BREAK SPACE}", "~---.x>'u<>'\"\". ")


class InItsEncoding:
    """What is to be printed, in the characters that the console can show."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._shown, options):
            yield Segment(in_encoding(segment.text, console.encoding), segment.style, segment.control)


def in_encoding(text: str, encoding: str) -> str:
    """The text, as wide as it was, in characters that the encoding has."""
    if can_show(text, encoding):
        return text
    for drawn, instead in DRAWINGS:
        if not can_show(drawn, encoding):
            text = text.translate(str.maketrans(drawn, instead))
    return "".join(_shown(character, encoding) for character in text)


def can_show(text: str, encoding: str) -> bool:
    """Whether all of the text can be written."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _shown(character: str, encoding: str) -> str:
    if can_show(character, encoding):
        return character
    sign = character.translate(SIGNS)
    return sign if sign.isascii() else "?" * cell_len(character)
