"""What a run's end is called."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.campaign.ending import Ending, Judgement, LostHost, RankRecord, judge_ending, with_oom_kill
from seatrial.observe.watchdog import Alarm
from seatrial.records.command import AGENT_GOT_TERM
from seatrial.records.nodes import NodeRecord
from seatrial.records.outcome import Cause, Outcome

ALARM = Alarm(cause=Cause.RUN_LIMIT, text="t", action="a")


@pytest.mark.parametrize(
    ("ending", "ranks", "outcome", "cause"),
    [
        (Ending(returncode=0), RankRecord(started=2, done=2, stepped=True), Outcome.OK, Cause.NONE),
        (Ending(returncode=0), RankRecord(), Outcome.FAILED, Cause.RANKS_MISSING),
        (Ending(returncode=0), RankRecord(started=2, done=1, stepped=True), Outcome.FAILED, Cause.RANKS_MISSING),
        (Ending(returncode=0), RankRecord(started=1, done=1, stepped=True), Outcome.FAILED, Cause.RANKS_MISSING),
        (Ending(returncode=0), RankRecord(started=2, done=0, stepped=True), Outcome.FAILED, Cause.RANKS_MISSING),
        (Ending(returncode=0), RankRecord(started=2, done=2, stepped=False), Outcome.FAILED, Cause.NO_STEPS),
        (Ending(returncode=1), RankRecord(started=2, done=2, stepped=True), Outcome.FAILED, Cause.UNKNOWN),
        (Ending(returncode=-9), RankRecord(), Outcome.FAILED, Cause.UNKNOWN),
        (Ending(returncode=-15, alarm=ALARM), RankRecord(), Outcome.TIMEOUT, Cause.RUN_LIMIT),
        (Ending(returncode=-15, interrupted=True), RankRecord(), Outcome.INTERRUPTED, Cause.USER),
        (Ending(returncode=-15, agent_stopped=True), RankRecord(started=2), Outcome.FAILED, Cause.AGENT_LOST),
        (Ending(returncode=0, agent_stopped=True), RankRecord(started=2, done=2, stepped=True), Outcome.OK, Cause.NONE),
        (Ending(returncode=None, agent_lost=True), RankRecord(), Outcome.FAILED, Cause.AGENT_LOST),
        (Ending(returncode=None, agent_lost=True, interrupted=True), RankRecord(), Outcome.INTERRUPTED, Cause.USER),
    ],
)
def test_judgement(ending: Ending, ranks: RankRecord, outcome: Outcome, cause: Cause) -> None:
    judged = judge_ending(ending, ranks, world_size=2, steps=None)
    assert (judged.outcome, judged.cause) == (outcome, cause)
    assert judged.needs_log == (cause is Cause.UNKNOWN)


def test_a_script_without_the_probe_is_judged_by_its_exit_code_alone() -> None:
    assert judge_ending(Ending(returncode=0), RankRecord(), world_size=0, steps=None).outcome is Outcome.OK


@pytest.mark.parametrize(("least_steps", "steps", "cause"), [(12, 60, Cause.ENDED_EARLY), (60, 60, Cause.NONE), (12, None, Cause.NONE)])
def test_a_rank_that_stopped_early_is_no_success(least_steps: int, steps: int | None, cause: Cause) -> None:
    ranks = RankRecord(started=2, done=2, stepped=True, least_steps=least_steps)
    assert judge_ending(Ending(returncode=0), ranks, world_size=2, steps=steps).cause is cause


@pytest.mark.parametrize(
    ("ranks", "cause"),
    [
        (RankRecord(told_of=2, launched=2), Cause.NONE),
        (RankRecord(told_of=0, launched=2), Cause.RANKS_MISSING),
        (RankRecord(told_of=1, launched=2), Cause.RANKS_MISSING),
        # The probe in rank 0 only says nothing of rank 1.
        (RankRecord(told_of=1, launched=2, started=1, done=1, stepped=True), Cause.RANKS_MISSING),
        # Where every rank said itself that it was done, the launcher's words may be missing.
        (RankRecord(told_of=0, launched=2, started=2, done=2, stepped=True), Cause.NONE),
    ],
)
def test_exit_code_0_of_deepspeed_needs_a_word_on_every_rank(ranks: RankRecord, cause: Cause) -> None:
    judged = judge_ending(Ending(returncode=0), ranks, world_size=ranks.started, steps=None)
    assert judged.cause is cause
    if cause is not Cause.NONE:
        assert judged.detail == f"exit code 0, but the launcher said of {ranks.told_of} of 2 ranks that they ended well"
        assert "was killed" in judged.action


def told(id: str) -> Judgement:
    return Judgement(outcome=Outcome.FAILED, cause=Cause.KILLED, detail="rank 1 was killed by signal 9", action="a", signature=id)


@pytest.mark.parametrize("id", ["killed", "deepspeed_launcher_killed"])
def test_the_kernel_s_counter_explains_a_process_that_was_killed(id: str) -> None:
    found = with_oom_kill(told(id), "oom_kill 3 → 4 in its cgroup")
    assert (found.cause, found.signature, found.outcome) == (Cause.HOST_OOM, "host_oom", Outcome.FAILED)
    assert found.detail == "the kernel's OOM killer ended a process (oom_kill 3 → 4 in its cgroup); rank 1 was killed by signal 9"
    assert "more memory" in found.action


def test_it_explains_nothing_else_and_without_it_killed_stays_killed() -> None:
    assert with_oom_kill(told("killed"), "") == told("killed")
    assert with_oom_kill(told("nan"), "oom_kill 3 → 4 on this host") == told("nan")


SILENT = LostHost(host="node2", why="nothing was heard of it for 21 s", silent=True)
ENDED = LostHost(host="node2", why="the other side closed it", silent=False)


@pytest.mark.parametrize(("lost", "signature"), [(SILENT, "node_silent"), (ENDED, "node_gone")])
def test_a_lost_host_is_the_cause_whatever_the_ranks_and_the_watchdog_say(lost: LostHost, signature: str) -> None:
    for ending in (
        Ending(returncode=1, lost_hosts=(lost,)),
        Ending(returncode=0, lost_hosts=(lost,)),
        Ending(returncode=-15, lost_hosts=(lost,), alarm=ALARM),
    ):
        judged = judge_ending(ending, RankRecord(started=2, done=1, stepped=True), world_size=2, steps=None)
        assert (judged.outcome, judged.cause, judged.signature) == (Outcome.FAILED, Cause.HOST_LOST, signature)
        assert judged.detail == f"node2 was lost while the run ran: {lost.why}"


def test_every_lost_host_is_named() -> None:
    lost = (SILENT, LostHost(host="node3", why="x", silent=True))
    judged = judge_ending(Ending(returncode=None, lost_hosts=lost), RankRecord(), world_size=2, steps=None)
    assert "node2 was lost while the run ran, and with it node3: nothing was heard" in judged.detail


def test_the_host_whose_agent_was_stopped_is_named() -> None:
    nodes = (NodeRecord(name="node1", returncode=-15), NodeRecord(name="node2", returncode=-15, detail=AGENT_GOT_TERM))
    ending = Ending(returncode=-15, agent_stopped=True, nodes=nodes)
    assert "on node2 was sent TERM" in judge_ending(ending, RankRecord(), world_size=2, steps=None).detail
    assert ending.broken_host == "node2"


def test_the_host_that_broke_is_the_lost_one_else_the_stopped_one_else_the_failed_one() -> None:
    nodes = (NodeRecord(name="node2", detail=AGENT_GOT_TERM),)
    assert Ending(returncode=7, failed_host="node1").broken_host == "node1"
    assert Ending(returncode=7, failed_host="node1", nodes=nodes).broken_host == "node2"
    assert Ending(returncode=7, failed_host="node1", nodes=nodes, lost_hosts=(LostHost(host="x", why="", silent=True),)).broken_host == "x"
    assert Ending(returncode=7).broken_host == ""


@pytest.mark.parametrize("ended_by_us", [{"alarm": ALARM}, {"interrupted": True}])
def test_who_failed_first_after_an_alarm_is_not_where_it_broke(ended_by_us: dict[str, Any]) -> None:
    assert Ending(returncode=-15, failed_host="node1", **ended_by_us).broken_host == ""
