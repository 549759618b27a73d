"""Figures that a workload reported itself (`probe.figure`).

In: the events files of the ranks that told one. Out: name → `ReportedFigure`. The last one told of a name counts; where several ranks
tell the same name, that of the lowest rank does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seatrial.collect.events.rare import events_of_kind
from seatrial.records.attempt import Attempt
from seatrial.records.events import FIGURE_NAME
from seatrial.records.health import ReportedFigure

LARGEST_VALUE = 1e300
NAME = re.compile(FIGURE_NAME)


def read_reported(paths: Sequence[Path], attempt: Attempt) -> dict[str, ReportedFigure]:
    """Of the files, lowest rank first; {} when no rank told a figure. One that is no number is NaN."""
    found: dict[str, ReportedFigure] = {}
    for path in paths:
        found = {**_told_in(path, attempt), **found}
    return dict(sorted(found.items()))


def _told_in(path: Path, attempt: Attempt) -> dict[str, ReportedFigure]:
    found: dict[str, ReportedFigure] = {}
    for event in events_of_kind("figure", path, attempt):
        name, value = event.get("name"), _number(event.get("value"))
        if not isinstance(name, str) or not NAME.fullmatch(name):
            continue
        # The last word counts, be it that the figure is no number.
        found[name] = ReportedFigure(value=value, unit=_text(event.get("unit")), n=_count(event.get("n")), file=path.name)
    return found


def _number(value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST_VALUE < value < LARGEST_VALUE
    return float(value) if is_number else math.nan


def _text(unit: Any) -> str:
    return unit if isinstance(unit, str) else ""


def _count(n: Any) -> int | None:
    return n if type(n) is int and n >= 0 else None
