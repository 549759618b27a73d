"""The last attempt of what several attempts were appended to.

In: a train.log, or points of it, in the order in which they were written. Out: those of the last attempt. The original trainer opens its
log for appending, so a run that was started again has its old lines before its new ones; steps that fall back tell where it began.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from seatrial.collect.log_source import StampedLine, stamped_lines
from seatrial.collect.seed_lines import STEP
from seatrial.files import open_file

T = TypeVar("T")

# Lines with a step's number or its timing; all others are passed over before they are looked at.
TELLING = (b"Step ", b"Timing(")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](\d{1,6})")


def after_last_fall(items: Sequence[T], step_of: Callable[[T], float | None]) -> Sequence[T]:
    """From the last item on whose step is lower than the one before; items without a step belong where they stand."""
    first, before = 0, -1.0
    for place, item in enumerate(items):
        step = step_of(item)
        if step is None:
            continue
        if step < before:
            first = place
        before = step
    return items[first:]


def last_attempt_lines(train_log: Path) -> list[StampedLine]:
    """Its lines that tell a step or a timing; [] where there is no log that can be read. A last line without its end is left out."""
    try:
        lines = list(stamped_lines(train_log, (), TELLING))
        if lines and not _ends_whole(train_log):
            lines.pop()
    except OSError:
        return []
    return list(after_last_fall(lines, _step))


def local_span_s(lines: Sequence[StampedLine]) -> tuple[float, float] | None:
    """First and last stamp, read as if the clock on the wall had shown UTC; None where no line has one."""
    stamps = [stamp for line in lines if (stamp := _local_s(line.text)) is not None]
    return (min(stamps), max(stamps)) if stamps else None


def _step(line: StampedLine) -> float | None:
    match = STEP.search(line.text)
    # A number of a hundred digits is no step.
    return float(match.group(1)) if match and len(match.group(1)) <= 12 else None


def _local_s(text: str) -> float | None:
    match = _STAMP.match(text)
    if not match:
        return None
    try:
        moment = datetime.datetime.fromisoformat(match.group(1)).replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
    return moment.timestamp() + float(f"0.{match.group(2)}")


def _ends_whole(path: Path) -> bool:
    with open_file(path) as source:
        if source.seek(0, os.SEEK_END) == 0:
            return True
        source.seek(-1, os.SEEK_END)
        return source.read(1) == b"\n"
