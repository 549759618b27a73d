"""How a run is brought to its end: which rung comes when."""

from __future__ import annotations

import pytest

from seatrial.campaign.interrupts import Urgency
from seatrial.campaign.ladder import AGENT_LATE_S, STACKS_PATIENCE_S, Ladder, Rung, Wishes
from seatrial.observe.watchdog import Alarm
from seatrial.records.outcome import Cause, Outcome

STALL = Alarm(cause=Cause.STALL, outcome=Outcome.STALLED, text="", action="")
MEMORY = Alarm(cause=Cause.MEMORY_LIMIT, outcome=Outcome.FAILED, text="", action="")


def wishes(alarm=None, urgency=Urgency.NONE, *, stacks_taken=False, can_halt=True) -> Wishes:
    return Wishes(alarm=alarm, urgency=urgency, stacks_taken=stacks_taken, can_halt=can_halt)


def test_nothing_is_done_while_all_is_well():
    assert Ladder(10, 10).next(wishes(), 100.0) is None


def test_a_stall_goes_down_every_rung_once():
    ladder = Ladder(10, 10)
    assert ladder.next(wishes(STALL), 100.0) is Rung.STACKS
    assert ladder.next(wishes(STALL), 105.0) is None
    assert ladder.next(wishes(STALL, stacks_taken=True), 106.0) is Rung.SOFT
    assert ladder.next(wishes(STALL, stacks_taken=True), 115.0) is None
    assert ladder.next(wishes(STALL, stacks_taken=True), 116.0) is Rung.TERM
    assert ladder.next(wishes(STALL, stacks_taken=True), 116.0 + 10 + AGENT_LATE_S - 0.1) is None, "the agent kills by itself"
    assert ladder.next(wishes(STALL, stacks_taken=True), 116.0 + 10 + AGENT_LATE_S) is Rung.KILL, "where it does not, it is told"
    assert ladder.next(wishes(STALL, stacks_taken=True), 999.0) is None


def test_stacks_that_never_come_are_not_waited_for_for_ever():
    ladder = Ladder(10, 10)
    ladder.next(wishes(STALL), 100.0)
    assert ladder.next(wishes(STALL), 100.0 + STACKS_PATIENCE_S) is Rung.SOFT


def test_the_user_is_obeyed_while_stacks_are_taken():
    ladder = Ladder(10, 10)
    ladder.next(wishes(STALL), 100.0)
    assert ladder.next(wishes(STALL, Urgency.STOP), 101.0) is Rung.SOFT


@pytest.mark.parametrize("can_halt,soft_s", [(False, 10), (True, 0)])
def test_where_nobody_can_halt_the_user_s_wish_is_term_at_once(can_halt, soft_s):
    assert Ladder(soft_s, 10).next(wishes(urgency=Urgency.STOP, can_halt=can_halt), 100.0) is Rung.TERM


def test_what_eats_memory_gets_term_at_once():
    assert Ladder(10, 10).next(wishes(MEMORY), 100.0) is Rung.TERM


@pytest.mark.parametrize("before", [wishes(), wishes(STALL), wishes(urgency=Urgency.STOP)])
def test_the_second_wish_is_kill_from_any_rung(before):
    ladder = Ladder(10, 10)
    ladder.next(before, 100.0)
    assert ladder.next(wishes(STALL, Urgency.KILL), 100.1) is Rung.KILL
    assert ladder.next(wishes(STALL, Urgency.KILL), 200.0) is None


def test_a_rank_that_is_gone_can_no_longer_be_asked():
    ladder = Ladder(10, 10)
    assert ladder.next(wishes(urgency=Urgency.STOP), 100.0) is Rung.SOFT
    assert ladder.next(wishes(urgency=Urgency.STOP, can_halt=False), 101.0) is Rung.TERM
