"""Whether there is anything new to be shown, told from names, sizes and times alone.

In: a campaign's folder. Out: a mark that is another one when plans, results or what the run under way has written have changed. Of an
attempt that is over only its outcome is looked at, so that a thousand finished runs cost a few milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from seatrial.paths import AttemptPaths, CampaignPaths

Mark = tuple[str, int, int]


def mark(paths: CampaignPaths) -> frozenset[Mark]:
    """What the folder looks like now."""
    return frozenset(_marks(paths))


def _marks(paths: CampaignPaths) -> Iterator[Mark]:
    for plan in (paths.plan, *paths.plans.glob("*.json")):
        yield from _of(plan)
    for attempt in (attempt for run in paths.runs() for attempt in run.attempts()):
        over = [*_of(attempt.outcome)]
        yield from over or _under_way(attempt)


def _under_way(attempt: AttemptPaths) -> Iterator[Mark]:
    """Everything that lies in the attempt's folder itself: events, samples, logs."""
    try:
        with os.scandir(attempt.folder) as found:
            names = [entry.path for entry in found]
    except OSError:
        return
    for name in names:
        yield from _of(Path(name))


def _of(path: Path) -> Iterator[Mark]:
    try:
        found = os.lstat(path)
    except OSError:
        return
    yield (str(path), found.st_size, found.st_mtime_ns)
