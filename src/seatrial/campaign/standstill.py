"""Where a run stood when a limit was passed: rank, phase and the line of code. In: the alarm, and the stacks taken for it."""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.collect.stacks import RankStack, frame_of, read_stacks, waits_for_others
from seatrial.machine.proc_files import STOPPED
from seatrial.observe.watchdog import Alarm
from seatrial.paths import AttemptPaths
from seatrial.records.outcome import Cause
from seatrial.signatures.registry import advice


@dataclass(frozen=True, kw_only=True)
class Standstill:
    """Empty where nothing is known."""

    rank: int | None = None
    phase: str = ""
    frame: str = ""
    cause: Cause | None = None
    """A better cause than the alarm's, where the stacks told one."""

    @property
    def words(self) -> str:
        """What is added to the alarm's sentence."""
        who = "" if self.rank is None else f"rank {self.rank} "
        if self.cause is Cause.SUSPENDED:
            return f"; {who}is suspended (SIGSTOP), at {self.frame or 'an unknown line'}"
        return f"; {who}stood at {self.frame}" if self.frame else ""

    @property
    def action(self) -> str:
        """Better advice than the alarm's, for a better cause."""
        return advice(self.cause) if self.cause is not None else ""


def where_it_stood(attempt: AttemptPaths, alarm: Alarm | None) -> Standstill:
    """A suspended rank is the one; else the alarm's own; else the only one whose stack is known."""
    if alarm is None:
        return Standstill()
    stacks = read_stacks(attempt)
    # Ranks come first; where none is, it may be their launcher.
    suspended = next((stack for stack in stacks if stack.state == STOPPED), None)
    if suspended is not None and alarm.cause in (Cause.STALL, Cause.START_LIMIT):
        return Standstill(rank=suspended.rank, phase=alarm.phase, frame=frame_of(suspended), cause=Cause.SUSPENDED)
    stack = _stack_of(alarm.rank, stacks)
    rank = alarm.rank if alarm.rank is not None or stack is None else stack.rank
    return Standstill(rank=rank, phase=alarm.phase, frame=frame_of(stack) if stack else "")


def _stack_of(rank: int | None, stacks: tuple[RankStack, ...]) -> RankStack | None:
    """The rank's own; where nobody knows which rank it is, one that does not wait for others; a launcher only where there is no more."""
    if rank is not None:
        return next((stack for stack in stacks if stack.rank == rank), None)
    ranks = [stack for stack in stacks if stack.rank is not None]
    standing = [stack for stack in ranks if not waits_for_others(stack)]
    return next(iter([*standing, *ranks, *(stack for stack in stacks if stack.of_rank is None)]), None)
