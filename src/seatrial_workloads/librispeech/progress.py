"""How far it is. In: counts. Out: a bar with the time to go on a terminal, else a line every so many files.

500 of 28539 files, 331.2 files/s, 0:01:25 to go, 2 rejected
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

from seatrial_workloads.librispeech.spoken_lines import say

REFRESHES_PER_S = 4


class ProgressBar:
    """A bar on a terminal's stderr."""

    def __init__(self, act: str, num_files: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("eta"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), refresh_per_second=REFRESHES_PER_S)
        self._task = self._bar.add_task(act, total=num_files, note="")

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def advance(self, note: str = "") -> None:
        """One more file is done."""
        self._bar.update(self._task, advance=1, note=note)


class ProgressLines:
    """A line on stdout every so many files; never where that is 0."""

    def __init__(self, num_files: int, log_every: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._num_files, self._log_every, self._clock = num_files, log_every, clock
        self._done = 0
        self._began_m = clock()

    def __enter__(self) -> ProgressLines:
        self._began_m = self._clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def advance(self, note: str = "") -> None:
        """One more file is done."""
        self._done += 1
        if self._log_every and self._done % self._log_every == 0:
            say(self._line(note))

    def _line(self, note: str) -> str:
        files_per_s = self._done / max(1e-9, self._clock() - self._began_m)
        to_go = timedelta(seconds=round((self._num_files - self._done) / files_per_s))
        return f"{self._done} of {self._num_files} files, {files_per_s:.1f} files/s, {to_go} to go{', ' if note else ''}{note}"


def progress(act: str, num_files: int, log_every: int, *, quiet: bool = False) -> ProgressBar | ProgressLines:
    """What fits where this runs."""
    if quiet:
        return ProgressLines(num_files, 0)
    return ProgressBar(act, num_files) if sys.stderr.isatty() else ProgressLines(num_files, log_every)
