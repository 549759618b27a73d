"""Measured attempts, kept so that none is measured twice.

In: attempts as read from disk. Out: `MeasuredRun`s in the same order, from the cache where attempt and files are unchanged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from seatrial.records.attempt import Attempt
from seatrial.records.columns import Detail
from seatrial.records.results import MeasuredRun
from seatrial.results import workers

if TYPE_CHECKING:
    from seatrial.collect.steps import ReadAhead

# A measured run with its charts takes about 100 KiB: what the harness holds while it waits for runs stays below 20 MiB. Beyond that,
# workers measure the rest at the end.
MAX_KEPT_RUNS = 200


class MeasureCache:
    """Attempts measured once: when a run ends, for the report at the end, and for a live page.

    An entry is valid while the attempt reads the same and its files have the same sizes and times. `finer_ratio` is how much finer than
    needed its charts may be.
    """

    def __init__(self, finer_ratio: float = 1.0) -> None:
        self._finer_ratio = finer_ratio
        self._kept: dict[str, _Kept] = {}

    def measure_all(self, attempts: Sequence[Attempt], detail: Detail | None = None) -> tuple[MeasuredRun, ...]:
        """Measure what is not cached. Entries of other attempts are dropped."""
        stamps = {attempt.folder: _file_stamps(attempt.folder) for attempt in attempts}
        missing = [attempt for attempt in attempts if not self._holds(attempt, detail, stamps[attempt.folder])]
        for run in workers.measure_all(missing, detail):
            self._kept[run.attempt.folder] = _Kept(run=run, detail=detail, stamps=stamps[run.attempt.folder])
        self._kept = {attempt.folder: self._kept[attempt.folder] for attempt in attempts}
        return tuple(self._kept[attempt.folder].run for attempt in attempts)

    def add(self, attempt: Attempt, detail: Detail | None, ahead: ReadAhead | None = None) -> MeasuredRun:
        """Measure one more attempt, and keep it while there are fewer than MAX_KEPT_RUNS."""
        stamps = _file_stamps(attempt.folder)
        run = workers.measure(attempt, detail, ahead)
        if len(self._kept) < MAX_KEPT_RUNS:
            self._kept[attempt.folder] = _Kept(run=run, detail=detail, stamps=stamps)
        return run

    def _holds(self, attempt: Attempt, detail: Detail | None, stamps: Stamps) -> bool:
        kept = self._kept.get(attempt.folder)
        if kept is None or attempt.outcome is None or kept.run.attempt != attempt or kept.stamps != stamps:
            return False
        if kept.detail is None or detail is None:
            return kept.detail == detail
        have, want = astuple(kept.detail), astuple(detail)
        return all(least <= value <= self._finer_ratio * least for value, least in zip(have, want, strict=True))


Stamps = frozenset[tuple[str, int, int]]
"""Path, size and time of every file of an attempt."""


@dataclass(frozen=True, kw_only=True)
class _Kept:
    run: MeasuredRun
    detail: Detail | None
    stamps: Stamps


def _file_stamps(folder: str) -> Stamps:
    found: list[tuple[str, int, int]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found += _file_stamps(entry.path)
            else:
                stat = entry.stat(follow_symlinks=False)
                found.append((entry.path, stat.st_size, stat.st_mtime_ns))
    return frozenset(found)
