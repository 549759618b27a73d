"""What is told to do about an end: the registry's advice, and for a stall where its ranks stand before it."""

from __future__ import annotations

import pytest

from seatrial.campaign.ending import Ending, RankRecord, judge_ending
from seatrial.campaign.standstill import Standstill
from seatrial.observe.watchdog import Alarm
from seatrial.records.outcome import Cause, Outcome
from seatrial.signatures.registry import advice, signature, signatures


def told(cause: Cause, ranks: RankRecord, phase: str = "") -> str:
    alarm = Alarm(cause=cause, outcome=Outcome.STALLED, text="t", action="read stacks/ first", phase=phase)
    return judge_ending(Ending(returncode=-15, alarm=alarm), ranks, world_size=ranks.started, steps=None).action


@pytest.mark.parametrize("cause", [Cause.START_LIMIT, Cause.RUN_LIMIT, Cause.MEMORY_LIMIT, Cause.DISK_LIMIT])
def test_a_limit_has_the_registry_s_advice(cause: Cause) -> None:
    assert told(cause, RankRecord(started=2)) == advice(cause)


@pytest.mark.parametrize(
    ("ranks", "phase", "tries_p2p"),
    [
        (RankRecord(started=2), "bwd", True),
        (RankRecord(started=2), "", True),
        # Without the probe nobody knows how many there are.
        (RankRecord(), "", True),
        (RankRecord(started=1), "bwd", False),
        (RankRecord(started=2), "data_wait", False),
        (RankRecord(started=2), "loop", False),
    ],
)
def test_a_stall_says_where_to_look_and_what_to_try_where_ranks_may_wait_for_one_another(
    ranks: RankRecord, phase: str, tries_p2p: bool
) -> None:
    action = told(Cause.STALL, ranks, phase)
    assert action.startswith("read stacks/ first")
    assert ("NCCL_P2P_DISABLE=1" in action) is tries_p2p


def test_a_suspended_rank_has_advice_of_its_own() -> None:
    assert Standstill(cause=Cause.SUSPENDED).action == advice(Cause.SUSPENDED)
    assert Standstill().action == ""


def test_every_bad_end_that_is_judged_without_the_log_is_an_entry() -> None:
    ended = [
        judge_ending(Ending(returncode=None, agent_lost=True), RankRecord(), 2, None),
        judge_ending(Ending(returncode=-15, agent_stopped=True), RankRecord(), 2, None),
        judge_ending(Ending(returncode=-15, interrupted=True), RankRecord(), 2, None),
        judge_ending(Ending(returncode=0), RankRecord(told_of=1, launched=2), 0, None),
        judge_ending(Ending(returncode=0), RankRecord(), 2, None),
        judge_ending(Ending(returncode=0), RankRecord(started=2, done=2), 2, None),
        judge_ending(Ending(returncode=0), RankRecord(started=2, done=1, stepped=True), 2, None),
        judge_ending(Ending(returncode=0), RankRecord(started=2, done=2, stepped=True, least_steps=1), 2, 5),
    ]
    known = {entry.action: entry.id for entry in signatures()}
    assert [known[judged.action] for judged in ended] == [
        "agent_lost",
        "agent_stopped",
        "user",
        "deepspeed_launcher_killed",
        "events_removed",
        "no_steps",
        "ranks_missing",
        "ended_early",
    ]
    assert all(judged.cause is signature(known[judged.action]).cause for judged in ended)
    assert [judged.signature for judged in ended] == [known[judged.action] for judged in ended]


def test_a_limit_is_told_by_the_entry_of_its_cause_and_a_good_end_by_none() -> None:
    alarm = Alarm(cause=Cause.RUN_LIMIT, outcome=Outcome.TIMEOUT, text="t", action="")
    assert judge_ending(Ending(returncode=-15, alarm=alarm), RankRecord(started=2), 2, None).signature == "run_limit"
    assert judge_ending(Ending(returncode=0), RankRecord(started=2, done=2, stepped=True, least_steps=5), 2, 5).signature == ""
