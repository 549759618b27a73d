"""Measuring a campaign again and again while it runs: an attempt that is over is measured once.

In: attempts and a detail, as `measure_all` has them. Out: the same as from it. What is kept of an attempt holds for as long as the attempt
reads the same on disk. The detail shrinks a little with every run that is added; what was drawn somewhat finer is as good, so that a long
campaign is drawn anew a few times and not after every run.
"""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.campaign.measuring import measure_all
from seatrial.records.attempt import Attempt
from seatrial.records.charts import Detail
from seatrial.records.results import MeasuredRun

FINER = 1.5


class Remembered:
    """Called as `measure_all` is."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[MeasuredRun, Detail | None]] = {}

    def __call__(self, attempts: Sequence[Attempt], detail: Detail | None = None) -> tuple[MeasuredRun, ...]:
        missing = [attempt for attempt in attempts if not self._holds(attempt, detail)]
        for run in measure_all(missing, detail):
            self._kept[run.attempt.folder] = (run, detail)
        folders = [attempt.folder for attempt in attempts]
        # Folders that were removed, and nothing else.
        self._kept = {folder: self._kept[folder] for folder in folders}
        return tuple(self._kept[folder][0] for folder in folders)

    def _holds(self, attempt: Attempt, detail: Detail | None) -> bool:
        kept = self._kept.get(attempt.folder)
        return kept is not None and attempt.outcome is not None and kept[0].attempt == attempt and _is_as_good(kept[1], detail)


def _is_as_good(had: Detail | None, wanted: Detail | None) -> bool:
    """Whether what was drawn with `had` serves for `wanted`: no coarser, and not so much finer that the page grows."""
    if had is None or wanted is None:
        return had == wanted
    pairs = ((had.steps, wanted.steps), (had.telemetry, wanted.telemetry), (had.eta, wanted.eta))
    return all(want <= have <= FINER * want for have, want in pairs)
