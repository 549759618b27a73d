"""Reports of many agents folded into those of one. Times are passed in."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.launch.fold import FAILED_NODE_GRACE_S, Fold
from seatrial.records.command import AGENT_GOT_TERM, AgentReport, Node
from seatrial.records.line import ClockOffset

NAMES = ("node0", "node1", "node2")


@pytest.fixture
def fold() -> Fold:
    return Fold([Node(name=name, node_rank=rank, ranks=2, first_rank=2 * rank) for rank, name in enumerate(NAMES)])


def _say(fold: Fold, name: str, kind: str, at_s: float = 0.0, **facts: Any) -> list[AgentReport]:
    return fold.heard(name, AgentReport(kind=kind, t=1.0, m=99.0, **facts), 1000.0 + at_s, at_s)


def _kinds(reports: list[AgentReport]) -> list[str]:
    return [report.kind for report in reports]


def test_one_good_run(fold: Fold) -> None:
    (first,) = _say(fold, "node1", "started", pid=7)
    assert (first.kind, first.host, first.pid, first.t, first.m) == ("started", "node1", 7, 1000.0, 0.0)
    assert _say(fold, "node0", "exited", returncode=0) == _say(fold, "node1", "exited", returncode=0) == []
    (exited,) = _say(fold, "node2", "exited", returncode=0, at_s=5.0)
    assert (exited.kind, exited.returncode, exited.m) == ("exited", 0, 5.0)
    assert _say(fold, "node0", "gone", killed=1) == _say(fold, "node1", "gone", killed=2) == []
    (gone,) = _say(fold, "node2", "gone")
    assert (gone.kind, gone.killed) == ("gone", 3)
    assert fold.is_over and fold.living() == [] and not fold.is_stop_due(1e9)


def test_gone_of_all_at_once_still_comes_after_exited(fold: Fold) -> None:
    for name in NAMES[:2]:
        _say(fold, name, "exited", returncode=0)
        _say(fold, name, "gone")
    assert _kinds(fold.lose("node2", "it went", 0.0, 0.0)) == ["node_lost", "exited", "gone"]


@pytest.mark.parametrize(
    ("codes", "told"),
    [((0, 0, 0), 0), ((1, 0, 0), 1), ((1, -9, 1), -9), ((-15, 1, 0), -15), ((1, 0, 137), 137), ((7, 9, 1), 7), ((None, 0, 0), None)],
)
def test_the_most_telling_code_is_the_runs(fold: Fold, codes: tuple[int | None, ...], told: int | None) -> None:
    said = [report for name, code in zip(NAMES, codes, strict=True) for report in _say(fold, name, "exited", returncode=code)]
    assert [report.returncode for report in said] == [told]


def test_a_failed_host_ends_the_others_after_a_while(fold: Fold) -> None:
    _say(fold, "node1", "exited", returncode=3, at_s=10.0)
    assert not fold.is_stop_due(10.0 + FAILED_NODE_GRACE_S - 0.1)
    assert fold.is_stop_due(10.0 + FAILED_NODE_GRACE_S)
    assert fold.running() == ["node0", "node2"]
    assert not fold.is_stop_due(1e9), "they are told once"
    _say(fold, "node0", "exited", returncode=-15, at_s=20.0)
    assert not fold.is_stop_due(1e9)


def test_a_host_that_ends_well_before_the_others_ends_nobody(fold: Fold) -> None:
    _say(fold, "node1", "exited", returncode=0)
    assert not fold.is_stop_due(1e9)


def test_a_lost_host_is_said_and_ends_the_others(fold: Fold) -> None:
    (lost,) = fold.lose("node2", "nothing was heard of it for 21 s", 1030.0, 30.0)
    assert (lost.kind, lost.host, lost.detail) == ("node_lost", "node2", "nothing was heard of it for 21 s")
    assert fold.is_stop_due(30.0 + FAILED_NODE_GRACE_S)
    _say(fold, "node0", "exited", returncode=0)
    (exited,) = _say(fold, "node1", "exited", returncode=0)
    assert exited.returncode is None, "nobody knows how node2's ended"
    assert exited.detail == "node2: nothing was heard of it for 21 s"
    _say(fold, "node0", "gone")
    assert _kinds(_say(fold, "node1", "gone")) == ["gone"]
    assert fold.lose("node2", "again", 0.0, 0.0) == [] and _say(fold, "node2", "gone") == []


def test_what_a_lost_host_left_is_seen_to_before_all_is_over() -> None:
    fold = Fold([Node(name=name, node_rank=rank, ranks=2, first_rank=2 * rank) for rank, name in enumerate(NAMES[:2])], settles=True)
    assert _kinds(fold.lose("node1", "it went", 0.0, 0.0)) == ["node_lost"] and fold.unsettled() == ["node1"]
    assert _kinds(_say(fold, "node0", "exited", returncode=-15)) == ["exited"], "how it ended is known already"
    assert _say(fold, "node0", "gone", killed=1) == [] and not fold.is_over
    (gone,) = fold.settle("node1", 3, "killed 3 processes", 0.0, 0.0)
    assert (gone.kind, gone.killed, fold.is_over, fold.unsettled()) == ("gone", 4, True, [])
    record = fold.records(lambda name: None)[1]
    assert (record.ended, record.killed, record.detail) == ("lost", 3, "it went; killed 3 processes")


def test_what_is_seen_to_while_others_run_says_nothing_yet() -> None:
    fold = Fold([Node(name=name, node_rank=rank, ranks=2, first_rank=2 * rank) for rank, name in enumerate(NAMES[:2])], settles=True)
    fold.lose("node1", "it went", 0.0, 0.0)
    assert fold.settle("node1", 0, "nothing ran on there", 0.0, 0.0) == []
    _say(fold, "node0", "exited", returncode=0)
    assert _kinds(_say(fold, "node0", "gone")) == ["gone"]


def test_a_line_that_ends_after_the_last_word_is_no_loss(fold: Fold) -> None:
    _say(fold, "node0", "exited", returncode=0)
    _say(fold, "node0", "gone")
    assert fold.lose("node0", "the other side closed it", 0.0, 0.0) == []
    assert not fold.is_stop_due(1e9)


def test_all_hosts_lost_is_an_end_too(fold: Fold) -> None:
    said = [report for name in NAMES for report in fold.lose(name, "cut", 0.0, 0.0)]
    assert _kinds(said) == ["node_lost", "node_lost", "node_lost", "exited", "gone"]
    assert said[-2].returncode is None


def test_an_agent_that_says_it_failed_is_lost(fold: Fold) -> None:
    (lost,) = _say(fold, "node1", "lost", detail="its agent failed: KeyError")
    assert (lost.kind, lost.host) == ("node_lost", "node1")


def test_stacks_are_there_when_all_that_live_have_answered(fold: Fold) -> None:
    _say(fold, "node0", "exited", returncode=0)
    _say(fold, "node0", "gone")
    fold.asked_for_stacks()
    assert _say(fold, "node1", "stacks", detail="by signal: rank 2") == []
    reports = fold.lose("node2", "cut", 0.0, 0.0)
    assert _kinds(reports) == ["node_lost", "stacks"]
    assert reports[1].detail == "node1: by signal: rank 2"
    assert _say(fold, "node1", "stacks") == [], "nobody asked again"


def test_an_agent_that_was_sent_term_is_told_by_that_very_text(fold: Fold) -> None:
    _say(fold, "node0", "exited", returncode=-15, detail=AGENT_GOT_TERM)
    fold.lose("node1", "cut", 0.0, 0.0)
    (exited,) = _say(fold, "node2", "exited", returncode=1)
    assert exited.detail == AGENT_GOT_TERM


def test_what_is_known_of_each_host(fold: Fold) -> None:
    fold.called("node0", "gpu-17")
    _say(fold, "node0", "started")
    _say(fold, "node0", "exited", returncode=9, oom_kills="oom_kill 0 → 1")
    _say(fold, "node0", "gone", killed=4, detail="slow to die")
    fold.lose("node2", "cut", 0.0, 0.0)
    offsets = {"node0": ClockOffset(offset_s=3600.0, round_trip_s=0.001)}
    first, second, third = fold.records(offsets.get)
    assert (first.host, first.returncode, first.ended, first.killed, first.clock_offset_s) == ("gpu-17", 9, "exited", 4, 3600.0)
    assert (first.oom_kills, first.detail) == ("oom_kill 0 → 1", "slow to die")
    assert (second.ended, second.clock_offset_s, second.first_rank) == ("not_started", None, 2)
    assert (third.ended, third.detail, third.returncode) == ("lost", "cut", None)


def test_who_was_silent_is_told_by_a_field(fold: Fold) -> None:
    (closed,) = fold.lose("node1", "it closed; its last words: nothing was heard of the harness for 21 s", 0.0, 0.0)
    (silent,) = fold.lose("node2", "any words", 0.0, 0.0, silent=True)
    assert (closed.silent, silent.silent) == (False, True)


@pytest.mark.parametrize(
    ("told", "moved_s", "detail"),
    [
        ("", 0.9, ""),
        ("", 3600.0, "its clock moved by 3600.0 s against the harness's while the run ran"),
        ("slow to die", 2.0, "slow to die; its clock moved by 2.0 s against the harness's while the run ran"),
        (AGENT_GOT_TERM, 2.0, AGENT_GOT_TERM),
    ],
)
def test_a_clock_that_moved_is_told(fold: Fold, told: str, moved_s: float, detail: str) -> None:
    _say(fold, "node0", "exited", returncode=0, detail=told)
    first, second, _ = fold.records(lambda name: None, {"node0": moved_s, "node1": 0.0, "node2": 0.0}.__getitem__)
    assert (first.detail, second.detail) == (detail, "")


def test_words_of_a_node_nobody_expects_are_passed_over(fold: Fold) -> None:
    assert _say(fold, "stranger", "gone") == [] and fold.lose("stranger", "x", 0.0, 0.0) == []


def test_codes_of_hosts_that_were_told_to_stop_tell_nothing_where_another_failed_by_itself(fold: Fold) -> None:
    for name in NAMES:
        _say(fold, name, "started", pid=1)
    _say(fold, "node0", "exited", returncode=0)
    _say(fold, "node2", "exited", returncode=1, at_s=1.0)
    assert fold.is_stop_due(1.0 + FAILED_NODE_GRACE_S)
    (exited,) = _say(fold, "node1", "exited", returncode=-9, at_s=20.0)
    assert (exited.returncode, exited.host) == (1, "node2")
