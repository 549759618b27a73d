"""A monotonic clock that stands still while its process is suspended.

In: the ticks of a loop, each with the longest time it meant to wait. Out: seconds in which the process could act. Patience that was
set before a suspension (SIGSTOP, a debugger) then goes on where it was, and nothing is due only because time went by.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# A loop that was away this much longer than it meant to was not merely busy.
SUSPENDED_S = 5.0


class AwakeClock:
    """Call `tick` once a turn; `now` is the time of the last tick and what went by since."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last_m = monotonic()
        self._asleep_s = 0.0

    def tick(self, meant_s: float) -> float:
        """The seconds that were slept through since the last tick, 0 when none were."""
        now_m = self._monotonic()
        away_s = now_m - self._last_m - meant_s
        self._last_m = now_m
        slept_s = away_s if away_s > SUSPENDED_S else 0.0
        self._asleep_s += slept_s
        return slept_s

    def now(self) -> float:
        return self._monotonic() - self._asleep_s
