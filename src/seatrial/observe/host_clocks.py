"""Times of ranks by the harness's own clock.

In: beats as ranks wrote them, by the wall clocks of their hosts, and the moment at which each was first seen here. Out: the same beats with
their times moved to the harness's clock. Where the line to a host has measured how far its clock is ahead, that is taken. Else it is
learned: a beat that was seen before it was written comes from a clock that is ahead, and of one that is far behind every beat is seen
too late by as much. Smaller delays are those of a shared folder and of our own looks, and are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from seatrial.observe.heartbeats import Beat

# A clock that is ahead by less is corrected by time services, and does no harm here.
LEAST_AHEAD_S = 1.0
# A shared folder may show a file a few seconds late, and the harness itself may be slow to look.
LEAST_BEHIND_S = 30.0

OffsetOf = Callable[[int], float | None]
"""Rank → how far its host's clock is ahead of ours, in seconds; None while that is not known."""


def nobody_knows(rank: int) -> float | None:
    """For a run on one host, whose ranks have our own clock."""
    return None


class HostClocks:
    """The clocks of one run's ranks."""

    def __init__(self, offset_of: OffsetOf = nobody_knows, wall: Callable[[], float] = time.time, *, learns: bool = True) -> None:
        """`learns` False: the ranks are on this host, and what they tell is by our own clock."""
        self._offset_of, self._wall, self._learns = offset_of, wall, learns
        self._seen: dict[int, float] = {}
        self._late_s: dict[int, float] = {}
        """By rank, the shortest time from a beat to our seeing it, by two clocks."""

    def moved(self, beats: Sequence[Beat]) -> list[Beat]:
        """Every beat by our clock."""
        now_t = self._wall()
        return [self._moved(beat, now_t) for beat in beats]

    def offset_s(self, rank: int) -> float:
        """How far a rank's clock is ahead of ours, as far as is known."""
        known = self._offset_of(rank)
        if known is not None:
            return known
        late_s = self._late_s.get(rank, 0.0)
        return -late_s if late_s < -LEAST_AHEAD_S or late_s > LEAST_BEHIND_S else 0.0

    def _moved(self, beat: Beat, now_t: float) -> Beat:
        if self._learns and beat.ts is not None and self._seen.get(beat.rank) != beat.ts:
            self._seen[beat.rank] = beat.ts
            self._late_s[beat.rank] = min(now_t - beat.ts, self._late_s.get(beat.rank, now_t - beat.ts))
        ahead_s = self.offset_s(beat.rank)
        if not ahead_s:
            return beat
        ts, step_t = (None if told is None else told - ahead_s for told in (beat.ts, beat.step_t))
        return replace(beat, ts=ts, step_t=step_t)
