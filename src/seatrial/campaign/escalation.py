"""How a run is ended, level by level. Pure: reasons to stop and the time go in, the next level comes out.

    stacks ──► soft stop (halt.json: ranks end at the same step by themselves) ──► TERM ──► KILL

A limit begins with the stacks, which show where the run was; a run that exceeds memory or disk gets TERM at once. The user's first stop
request begins with the soft stop, the second is KILL from any level. The agent goes from TERM to KILL on its own; if it does not, it is
ordered to.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from seatrial.campaign.interrupts import Urgency
from seatrial.observe.watchdog import Alarm
from seatrial.records.outcome import Cause

# The agent itself needs up to 20 s for the stacks of many processes.
STACKS_TIMEOUT_S = 25.0
# The agent goes from TERM to KILL on its own, and needs a moment until every process is gone.
AGENT_GRACE_S = 15.0
# Growing usage does not allow waiting, and a world of the wrong size cannot recover.
TERM_AT_ONCE = (Cause.MEMORY_LIMIT, Cause.DISK_LIMIT, Cause.WORLD_TOO_SMALL)


class Level(enum.IntEnum):
    """How far a run has been escalated."""

    NONE = 0
    STACKS = 1
    SOFT = 2
    TERM = 3
    KILL = 4


@dataclass(frozen=True, kw_only=True)
class StopReasons:
    """Reasons to end the run at one moment."""

    alarm: Alarm | None
    urgency: Urgency
    stacks_taken: bool
    """The agent has reported that all stacks are on disk."""
    can_halt: bool
    """Ranks with the probe are there to read halt.json."""


class Escalation:
    """The escalation of one run; the soft stop may take `soft_s`, and TERM `term_s`."""

    def __init__(self, soft_s: float, term_s: float) -> None:
        self._soft_s, self._term_s = soft_s, term_s
        self.level = Level.NONE
        self._since_m = 0.0

    def next(self, reasons: StopReasons, now_m: float) -> Level | None:
        """The level to go to now, returned once; None while the present level has time left."""
        wanted = self._wanted(reasons, now_m - self._since_m)
        if wanted <= self.level:
            return None
        self.level, self._since_m = wanted, now_m
        return wanted

    def _wanted(self, reasons: StopReasons, elapsed_s: float) -> Level:
        if reasons.urgency is Urgency.KILL:
            return Level.KILL
        if reasons.alarm is None and reasons.urgency is Urgency.NONE:
            return Level.NONE
        if self.level is Level.TERM:
            return Level.KILL if elapsed_s >= self._term_s + AGENT_GRACE_S else Level.TERM
        if reasons.alarm is not None and reasons.alarm.cause in TERM_AT_ONCE:
            return Level.TERM
        if reasons.alarm is not None and self._wants_stacks(reasons, elapsed_s):
            return Level.STACKS
        soft_is_over = self._soft_s <= 0 or (self.level is Level.SOFT and elapsed_s >= self._soft_s)
        if reasons.can_halt and self.level <= Level.SOFT and not soft_is_over:
            return Level.SOFT
        return Level.TERM

    def _wants_stacks(self, reasons: StopReasons, elapsed_s: float) -> bool:
        if self.level is Level.NONE:
            return True
        waiting = not reasons.stacks_taken and elapsed_s < STACKS_TIMEOUT_S
        return self.level is Level.STACKS and waiting and reasons.urgency is Urgency.NONE
