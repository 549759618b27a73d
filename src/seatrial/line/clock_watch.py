"""How far a node's clock is ahead of ours, by beats that it answers with its time. In: beats sent and answered. Out: a `ClockOffset`.

A node writes its time somewhere between the sending of a beat and its answer, so each beat says that the offset lies within half a round
trip of the middle. The quickest of the last beats says it best. One that a newer beat contradicts is dropped: the clock was set since, or
has drifted. Offsets that cannot all be true tell how far the clock has moved, whatever the round trips were.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from seatrial.line.protocol import Message
from seatrial.records.line import ClockOffset

# Half a minute: long enough for a quick one among them, short enough for what drifts.
WINDOW_BEATS = 16


class ClockWatch:
    """The clock of one node."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._sent: dict[int, tuple[float, float]] = {}
        self._window: deque[ClockOffset] = deque(maxlen=WINDOW_BEATS)
        self._highest_low, self._lowest_high = -math.inf, math.inf

    def sent(self, number: int) -> None:
        """A beat goes out now. Answers may be late, never by more than the lease."""
        # In this order: a pause between the two makes the round trip look long, and not the offset wrong.
        sent_m = self._monotonic()
        self._sent = dict(list(self._sent.items())[-WINDOW_BEATS:])
        self._sent[number] = (self._wall(), sent_m)

    def answered(self, beat: Message) -> None:
        number, told_t = beat.get("n"), finite(beat.get("t"))
        sent = self._sent.pop(number, None) if isinstance(number, int) else None
        if sent is None or told_t is None:
            return
        trip_s = self._monotonic() - sent[1]
        newest = ClockOffset(offset_s=told_t - (sent[0] + trip_s / 2), round_trip_s=trip_s)
        self._window = deque((old for old in self._window if _agree(old, newest)), maxlen=WINDOW_BEATS)
        self._window.append(newest)
        self._highest_low = max(self._highest_low, newest.offset_s - trip_s / 2)
        self._lowest_high = min(self._lowest_high, newest.offset_s + trip_s / 2)

    @property
    def offset(self) -> ClockOffset | None:
        """By the quickest of the last beats; None before the first."""
        return min(self._window, key=lambda measured: measured.round_trip_s, default=None)

    @property
    def moved_s(self) -> float:
        """How far the offset has moved at the least since the first beat."""
        return max(0.0, self._highest_low - self._lowest_high)


def finite(value: object) -> float | None:
    """A number that can be reckoned with; None for anything else that JSON can say."""
    try:
        number = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _agree(one: ClockOffset, other: ClockOffset) -> bool:
    return abs(one.offset_s - other.offset_s) <= (one.round_trip_s + other.round_trip_s) / 2
