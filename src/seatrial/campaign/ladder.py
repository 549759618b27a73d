"""How a run is brought to its end, rung by rung. Pure: wishes and the time go in, the next rung comes out.

    stacks ──► soft (halt.json: ranks end at the same step by themselves) ──► TERM ──► KILL

A limit that was passed begins with the stacks, for they show where it stood; a run that eats memory or disk goes to TERM at once. The
user's first wish begins with the soft stop, the second is KILL from any rung. From TERM to KILL the agent goes by itself; where it
does not, it is told.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from seatrial.campaign.interrupts import Urgency
from seatrial.observe.watchdog import Alarm
from seatrial.records.outcome import Cause

# The agent itself needs up to 20 s for the stacks of many processes.
STACKS_PATIENCE_S = 25.0
# The agent goes from TERM to KILL by itself, and takes a moment to see all of it gone.
AGENT_LATE_S = 15.0
# What grows all the while is not to be waited for.
AT_ONCE = (Cause.MEMORY_LIMIT, Cause.DISK_LIMIT)


class Rung(enum.IntEnum):
    """Where a run stands that is to end."""

    NONE = 0
    STACKS = 1
    SOFT = 2
    TERM = 3
    KILL = 4


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What speaks for an end at one moment."""

    alarm: Alarm | None
    urgency: Urgency
    stacks_taken: bool
    """The agent has said that all stacks are on disk."""
    can_halt: bool
    """Ranks with the probe are there to read halt.json."""


class Ladder:
    """One run's way down."""

    def __init__(self, soft_s: float, term_s: float) -> None:
        self._soft_s, self._term_s = soft_s, term_s
        self.rung = Rung.NONE
        self._since_m = 0.0

    def next(self, wishes: Wishes, now_m: float) -> Rung | None:
        """The rung to go to now, once; None while the present one has its time."""
        wanted = self._wanted(wishes, now_m - self._since_m)
        if wanted <= self.rung:
            return None
        self.rung, self._since_m = wanted, now_m
        return wanted

    def _wanted(self, wishes: Wishes, stood_s: float) -> Rung:
        if wishes.urgency is Urgency.KILL:
            return Rung.KILL
        if wishes.alarm is None and wishes.urgency is Urgency.NONE:
            return Rung.NONE
        if self.rung is Rung.TERM:
            return Rung.KILL if stood_s >= self._term_s + AGENT_LATE_S else Rung.TERM
        if wishes.alarm is not None and wishes.alarm.cause in AT_ONCE:
            return Rung.TERM
        if wishes.alarm is not None and self._wants_stacks(wishes, stood_s):
            return Rung.STACKS
        if wishes.can_halt and self.rung <= Rung.SOFT and not self._soft_is_over(stood_s):
            return Rung.SOFT
        return Rung.TERM

    def _wants_stacks(self, wishes: Wishes, stood_s: float) -> bool:
        if self.rung is Rung.NONE:
            return True
        waiting = not wishes.stacks_taken and stood_s < STACKS_PATIENCE_S
        return self.rung is Rung.STACKS and waiting and wishes.urgency is Urgency.NONE

    def _soft_is_over(self, stood_s: float) -> bool:
        return self._soft_s <= 0 or (self.rung is Rung.SOFT and stood_s >= self._soft_s)
