"""How often the page is made anew: a campaign must not be slowed by being looked at.

In: when somebody asked, and how long the last making took. Out: whether it is time for the next. Nothing is made while nobody asks, never
more often than every few seconds, and never for more than a fifth of the time.
"""

from __future__ import annotations

import math

EVERY_S = 3.0
LARGEST_SHARE = 0.2
# A page that is open asks every two seconds, one in a hidden tab every minute.
FORGOTTEN_AFTER_S = 90.0


class Pace:
    """Times are of one monotonic clock, which the caller reads."""

    def __init__(self, *, every_s: float = EVERY_S, largest_share: float = LARGEST_SHARE) -> None:
        self._every_s, self._largest_share = every_s, largest_share
        self._asked_m = -math.inf
        self._next_m = -math.inf

    def asked(self, now_m: float) -> None:
        """Somebody looked at the page just now."""
        self._asked_m = now_m

    def is_looked_at(self, now_m: float) -> bool:
        return now_m - self._asked_m < FORGOTTEN_AFTER_S

    def is_due(self, now_m: float) -> bool:
        return self.is_looked_at(now_m) and now_m >= self._next_m

    def made(self, begin_m: float, end_m: float) -> None:
        """The page was made between these two moments, or that was tried."""
        self._next_m = max(begin_m + self._every_s, begin_m + (end_m - begin_m) / self._largest_share)
