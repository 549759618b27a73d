"""Stop requests and limits: signals, and which escalation level comes when."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from seatrial.campaign.escalation import AGENT_GRACE_S, STACKS_TIMEOUT_S, Escalation, Level, StopReasons
from seatrial.campaign.interrupts import REQUEST_POLL_S, Interrupts, Urgency
from seatrial.campaign.lock import hold_lock, request_stop
from seatrial.core.paths import CampaignPaths
from seatrial.observe.watchdog import Alarm
from seatrial.records.outcome import Cause, Outcome

STALL = Alarm(cause=Cause.STALL, outcome=Outcome.STALLED, text="", action="")
MEMORY = Alarm(cause=Cause.MEMORY_LIMIT, outcome=Outcome.FAILED, text="", action="")


def reasons(
    alarm: Alarm | None = None, urgency: Urgency = Urgency.NONE, *, stacks_taken: bool = False, can_halt: bool = True
) -> StopReasons:
    return StopReasons(alarm=alarm, urgency=urgency, stacks_taken=stacks_taken, can_halt=can_halt)


STACKS_TAKEN = reasons(STALL, stacks_taken=True)
STOP, KILL = reasons(urgency=Urgency.STOP), reasons(STALL, Urgency.KILL)
TERM_M = 116.0


@pytest.mark.parametrize(
    "checks",
    [
        pytest.param([(reasons(), 100.0, None)], id="all is well"),
        pytest.param(
            [
                (reasons(STALL), 100.0, Level.STACKS),
                (reasons(STALL), 105.0, None),
                (STACKS_TAKEN, 106.0, Level.SOFT),
                (STACKS_TAKEN, 115.0, None),
                (STACKS_TAKEN, TERM_M, Level.TERM),
                # The agent kills on its own; where it does not, it is ordered to.
                (STACKS_TAKEN, TERM_M + 10 + AGENT_GRACE_S - 0.1, None),
                (STACKS_TAKEN, TERM_M + 10 + AGENT_GRACE_S, Level.KILL),
                (STACKS_TAKEN, 999.0, None),
            ],
            id="a stall goes through every level once",
        ),
        pytest.param([(reasons(STALL), 100.0, Level.STACKS), (reasons(STALL), 100.0 + STACKS_TIMEOUT_S, Level.SOFT)], id="no stacks"),
        pytest.param([(reasons(STALL), 100.0, Level.STACKS), (reasons(STALL, Urgency.STOP), 101.0, Level.SOFT)], id="user while stacks"),
        pytest.param([(reasons(urgency=Urgency.STOP, can_halt=False), 100.0, Level.TERM)], id="no rank can halt"),
        pytest.param([(reasons(MEMORY), 100.0, Level.TERM)], id="memory"),
        pytest.param([(STOP, 100.0, Level.SOFT), (reasons(urgency=Urgency.STOP, can_halt=False), 101.0, Level.TERM)], id="rank gone"),
        pytest.param([(reasons(), 100.0, None), (KILL, 100.1, Level.KILL), (KILL, 200.0, None)], id="kill at once"),
        pytest.param([(reasons(STALL), 100.0, Level.STACKS), (KILL, 100.1, Level.KILL)], id="kill while stacks"),
        pytest.param([(STOP, 100.0, Level.SOFT), (KILL, 100.1, Level.KILL)], id="kill while stopping"),
    ],
)
def test_the_next_level(checks: list[tuple[StopReasons, float, Level | None]]) -> None:
    escalation = Escalation(10, 10)
    assert [escalation.next(given, now_m) for given, now_m, _ in checks] == [expected for _, _, expected in checks]


def test_without_a_soft_stop_the_users_request_is_term_at_once() -> None:
    assert Escalation(0, 10).next(STOP, 100.0) is Level.TERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_and_the_second_kills(tmp_path: Path, number: signal.Signals) -> None:
    paths = CampaignPaths(tmp_path)
    # Whoever started the tests may have it ignored, as nohup does.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        now_m = [0.0]
        with hold_lock(paths) as owner, Interrupts(paths, owner, lambda: now_m[0]).installed() as interrupts:
            seen = [interrupts.urgency]
            for now_m[0] in (5.0, 5.05, 6.0):
                os.kill(os.getpid(), number)
                seen.append(interrupts.urgency)
        assert seen == [Urgency.NONE, Urgency.STOP, Urgency.STOP, Urgency.KILL], "two that come together are one request"
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_request_from_another_terminal_stops(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    with hold_lock(paths) as owner, Interrupts(paths, owner).installed() as interrupts:
        request_stop(paths)
        assert interrupts.urgency is Urgency.STOP


def test_the_folder_is_not_polled_at_every_turn(tmp_path: Path) -> None:
    paths, now_m = CampaignPaths(tmp_path), [0.0]
    with hold_lock(paths) as owner, Interrupts(paths, owner, lambda: now_m[0]).installed() as interrupts:
        assert interrupts.urgency is Urgency.NONE
        request_stop(paths)
        now_m[0] = REQUEST_POLL_S / 2
        assert interrupts.urgency is Urgency.NONE
        now_m[0] = REQUEST_POLL_S
        assert interrupts.urgency is Urgency.STOP


def test_under_nohup_a_hang_up_is_ignored(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with hold_lock(paths) as owner, Interrupts(paths, owner).installed() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.urgency is Urgency.NONE
    finally:
        signal.signal(signal.SIGHUP, before)
