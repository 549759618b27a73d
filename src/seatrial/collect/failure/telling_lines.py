"""The most telling lines of a log that no entry of the registry explains.

In: lines without their marks, and which source ended first where that is known. Out: a few of them, in the order in which they stand:
those that speak of an error, the earliest first, since what comes later most often follows from them; for a log where none does, the last
ones of the rank that ended first, else the last ones of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from seatrial.collect.logs.line_marks import MarkedLine, without_host

MOST_LINES = 5
LONGEST = 240
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Iteration)(?:: |$)")
TROUBLE = re.compile(
    r"\b(?:errors?|fatal|fail(?:ed|ure|s)?|abort(?:ed|ing)?|panic|cannot|can't|could not|unable|refused|denied|invalid|killed)\b",
    re.IGNORECASE,
)
# What says that nothing is wrong, or speaks of it only by the way: `0 errors`, `error rate`, a loss of that name, a warning.
NO_TROUBLE = re.compile(
    r"\b(?:no|0|without) (?:errors?|failures?)\b|\berror[ _]rate\b|\b(?:mean|abs|squared)[ _]\w*error\b|warn", re.IGNORECASE
)


def troubled_lines(lines: Sequence[MarkedLine]) -> tuple[str, ...]:
    """The first that speak of an error; at most MOST_LINES, none twice, each of a length that can be read."""
    speaking = dict.fromkeys(_of_trouble(lines))
    return tuple(_short(text) for text in list(speaking)[:MOST_LINES])


def last_lines(lines: Sequence[MarkedLine], ended_first: str = "") -> tuple[str, ...]:
    """The last of the source that ended first, where it printed any; else the last of all."""
    said = [line for line in lines if line.text.strip()]
    own = [line for line in said if without_host(line.source) == ended_first] if ended_first else []
    return tuple(_short(line.text) for line in (own or said)[-MOST_LINES:])


def _of_trouble(lines: Sequence[MarkedLine]) -> Iterator[str]:
    for line in lines:
        # An indented line is source quoted in a traceback, or a row of a report.
        if line.text[:1].strip() and _speaks_of_trouble(line.text):
            yield line.text.strip()


def _speaks_of_trouble(text: str) -> bool:
    return bool(EXCEPTION.match(text) or TROUBLE.search(text)) and not NO_TROUBLE.search(text)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
