"""Times of day in the original files, which mostly do not say their zone.

In: stamps as texts. Out: seconds by the local clock of the machine that wrote them (as if that clock showed UTC), and how far that clock
was ahead of UTC, as the samplers' rows tell it: they have both the time of day and the seconds since the epoch.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from functools import lru_cache

STAMP = re.compile(r"\s*(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\s*(Z|[+-]\d\d:?\d\d)?")
QUARTER_S = 900
"""Zones differ by quarters of an hour."""
FURTHEST_S = 15 * 3600
SAMPLE_SLACK_S = 120.0
"""Between the reading of the clock and the row, on a machine that is very busy."""


def local_s(text: str) -> float | None:
    """The stamp that `text` begins with, its zone left aside; None where it begins with none."""
    match = STAMP.match(text)
    if match is None:
        return None
    whole_s = _whole_s(f"{match[1]}-{match[2]}-{match[3]} {match[4]}")
    return None if whole_s is None else whole_s + (float(f"0.{match[5]}") if match[5] else 0.0)


# Many lines carry the same second.
@lru_cache(maxsize=4096)
def _whole_s(text: str) -> float | None:
    try:
        return datetime.datetime.fromisoformat(f"{text}+00:00").timestamp()
    except ValueError:
        return None


def written_zone_s(text: str) -> float | None:
    """The zone that a stamp itself names, in seconds ahead of UTC; None where it names none."""
    match = STAMP.match(text)
    if match is None or not match[6]:
        return None
    if match[6] == "Z":
        return 0.0
    hours, minutes = int(match[6][1:3]), int(match[6][-2:])
    return (-1 if match[6][0] == "-" else 1) * (hours * 3600.0 + minutes * 60.0)


def sampled_zone_s(samples: Sequence[tuple[str, str]]) -> float | None:
    """How far the local clock was ahead of UTC, by the first row (timestamp, epoch_sec) that can be believed."""
    for timestamp, epoch in samples:
        here_s = local_s(timestamp)
        try:
            ahead_s = here_s - float(epoch) if here_s is not None else None
        except ValueError:
            continue
        if ahead_s is None:
            continue
        zone_s = round(ahead_s / QUARTER_S) * QUARTER_S
        if abs(zone_s) <= FURTHEST_S and abs(ahead_s - zone_s) <= SAMPLE_SLACK_S:
            return float(zone_s)
    return None
