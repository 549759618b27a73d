"""A regular expression out of a plan, with a bound on its time.

In: a compiled expression. Out: what its `search` finds; None for good from the line on that took it too long, and `gave_up` says so.
An expression with repeats inside repeats can take longer for one line than the run took, and nothing can be asked of it meanwhile.

Python's matcher looks for signals while it searches, so a timer of the process's own processor time ends it. Only the main thread can
be interrupted like that; searches in another thread have no bound.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Mapping
from types import FrameType

LONGEST_SEARCH_S = 1.0
"""Of processor time, for one line: a sound expression takes microseconds."""
SLOW_TOTAL_S = 30.0
SLOW_MEAN_S = 0.002
"""Or, once it has had that much in all, as much as this for each line."""


class _OutOfTime(Exception):
    """The timer ran out."""


class BoundedPattern:
    """Searches like the expression it is made of, until that takes too long."""

    def __init__(self, pattern: re.Pattern[str], longest_s: float = LONGEST_SEARCH_S) -> None:
        self._pattern, self._longest_s = pattern, longest_s
        self._searches, self._spent_s = 0, 0.0
        self.gave_up = False

    @property
    def text(self) -> str:
        return self._pattern.pattern

    @property
    def groupindex(self) -> Mapping[str, int]:
        return self._pattern.groupindex

    def search(self, text: str, /) -> re.Match[str] | None:
        """The first match; None without a look once it has given up."""
        if self.gave_up:
            return None
        began_s = time.perf_counter()
        found = self._within_time(text) if threading.current_thread() is threading.main_thread() else self._pattern.search(text)
        self._searches += 1
        self._spent_s += time.perf_counter() - began_s
        if self._spent_s > SLOW_TOTAL_S and self._spent_s > SLOW_MEAN_S * self._searches:
            self.gave_up = True
        return found

    def _within_time(self, text: str) -> re.Match[str] | None:
        _claim_signal()
        try:
            return self._timed(text)
        except _OutOfTime:
            self.gave_up = True
            return None

    def _timed(self, text: str) -> re.Match[str] | None:
        """The signal may still come while the timer is being taken back: who calls this catches it."""
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, self._longest_s)
            _Timer.is_armed = True
            return self._pattern.search(text)
        finally:
            _Timer.is_armed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


class _Timer:
    """One in a process."""

    is_armed = False


def _claim_signal() -> None:
    if signal.getsignal(signal.SIGVTALRM) is not _end_search:
        signal.signal(signal.SIGVTALRM, _end_search)


def _end_search(_number: int, _frame: FrameType | None) -> None:
    # One that comes late, after its search has ended, is nobody's.
    if _Timer.is_armed:
        raise _OutOfTime
