"""Which lines of a log end a traceback: the exception itself, whatever its name.

In: lines parted from their marks. Out: for each whether it is one. Names of exceptions are known by how they end; behind the head of a
traceback any name counts (`Exception: …`, `socket.gaierror: …`), as long as it is the first line of that source that is not indented.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from seatrial.collect.failure.telling_lines import EXCEPTION
from seatrial.collect.logs.line_marks import MarkedLine

HEAD = "Traceback (most recent call last):"
ANY_NAME = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: |:?$)")
CHAINED = re.compile(r"During handling of the above exception|direct cause of the following exception")


def raised(lines: Sequence[MarkedLine]) -> list[bool]:
    """Whether each line is what a traceback ends with, or looks like that by itself."""
    within: set[str] = set()
    return [_is_raised(line, within) for line in lines]


def is_indented(text: str) -> bool:
    """Whether it is blank, source quoted in a traceback, or a row of a report."""
    return not text[:1].strip()


def _is_raised(line: MarkedLine, within: set[str]) -> bool:
    """`within`: the sources whose traceback has begun and has no end yet; kept up to date here."""
    if is_indented(line.text):
        return False
    if line.text.startswith(HEAD):
        within.add(line.source)
        return False
    is_first = line.source in within
    within.discard(line.source)
    return bool(EXCEPTION.match(line.text) or (is_first and ANY_NAME.match(line.text)))
