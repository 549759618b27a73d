"""Reading one line of a script's own output: which step it speaks of, and what else it tells.

Used on finished logs by collect/ and on growing ones by observe/. Formats are data: `records.log_formats`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from seatrial.bounded_pattern import BoundedPattern
from seatrial.errors import UsageError
from seatrial.records.log_formats import GROUP_NAMES, PAUSE

# Lines of torchrun's ranks carry this mark in launcher.log; the agent puts it there.
RANK_MARK = re.compile(r"^\[rank(\d{1,9})\]: ?")
# Colours and weights of text; movements of the cursor stay, since they tell a nested progress bar from an outer one.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# A progress bar or a dumped tensor must not cost a regular expression megabytes of text.
LONGEST_LINE = 4000
# A number beyond this is no step, whatever stands before it: a hash, a time in nanoseconds, an address.
LARGEST_STEP = 10**12
COUNTS = ("step", "total")


class LinePattern(Protocol):
    """What a line is searched with: a compiled expression, or one of a plan's with a bound on its time."""

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def search(self, text: str, /) -> re.Match[str] | None: ...


def compile_patterns(patterns: Iterable[str]) -> list[re.Pattern[str]]:
    """Compiled expressions, or a UsageError that says which one is wrong and why."""
    compiled = []
    for text in patterns:
        try:
            pattern = re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"pattern {text!r} is not a regular expression: {error}") from error
        unknown = set(pattern.groupindex) - set(GROUP_NAMES)
        if unknown or not pattern.groupindex:
            named = f"has the group '{sorted(unknown)[0]}'" if unknown else "has no named group"
            raise UsageError(f"pattern {text!r} {named}; groups that are read: {', '.join(GROUP_NAMES)}")
        compiled.append(pattern)
    return compiled


def own_patterns(patterns: Iterable[str]) -> list[BoundedPattern]:
    """A plan's own expressions, each of which gives up instead of searching one line for ever."""
    return [BoundedPattern(pattern) for pattern in compile_patterns(patterns)]


def given_up(patterns: Iterable[LinePattern]) -> tuple[str, ...]:
    """Those that took too long for a line, as they are written in the plan."""
    return tuple(pattern.text for pattern in patterns if isinstance(pattern, BoundedPattern) and pattern.gave_up)


def split_rank(line: str) -> tuple[int | None, str]:
    """The rank a merged line came from (None when it has no mark) and the line without the mark."""
    mark = RANK_MARK.match(line)
    return (int(mark.group(1)), line[mark.end() :]) if mark else (None, line)


def plain(line: str) -> str:
    """The line without colours, cut to a length that is cheap to search."""
    line = line[:LONGEST_LINE]
    return COLOUR.sub("", line) if "\x1b" in line else line


def values_in(line: str, patterns: Sequence[LinePattern]) -> dict[str, float]:
    """Every number the patterns find in one line, by group name; {} for a line that tells nothing."""
    return told_in(line, patterns)[0]


def told_in(line: str, patterns: Sequence[LinePattern]) -> tuple[dict[str, float], int | None]:
    """The same, and the place of the pattern that told the step: two of them may speak of one step."""
    found: dict[str, float] = {}
    teller: int | None = None
    text = plain(line)
    for place, pattern in enumerate(patterns):
        match = pattern.search(text)
        if match:
            numbers = _numbers(match)
            found.update(numbers)
            teller = place if "step" in numbers else teller
    return found, teller


def _numbers(match: re.Match[str]) -> dict[str, float]:
    numbers = {}
    for name, text in match.groupdict().items():
        # A plan's own pattern may catch a word: that line then tells nothing under this name.
        with contextlib.suppress(ValueError):
            if text is not None and name != PAUSE:
                numbers[name] = float(text.replace(",", ""))
    return {name: value for name, value in numbers.items() if name not in COUNTS or 0 <= value <= LARGEST_STEP}


LONGEST_SHOWN = 300
# deepspeed's launcher on the processes it starts and ends: each such line repeats the whole command.
_OF_THE_LAUNCHER = re.compile(r"\[launch\.py:\d+:\w+\]|\[runner\.py:\d+:\w+\]")


def shown_lines(lines: Sequence[str]) -> list[str]:
    """Last lines of a log for people: without what a launcher says of its own doing, where there is anything else, and none endless."""
    telling = [line for line in lines if not _OF_THE_LAUNCHER.search(line)]
    return [shortened(line) for line in telling or lines]


def shortened(line: str) -> str:
    """A line of a length that can be read; the middle of a longer one is left out."""
    return line if len(line) <= LONGEST_SHOWN else f"{line[: LONGEST_SHOWN * 2 // 3]} … {line[-LONGEST_SHOWN // 3 :]}"
