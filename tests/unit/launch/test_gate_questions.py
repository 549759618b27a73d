"""Rounds of questions to the nodes of a campaign without ssh, with answers in any order."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.launch import gate_questions
from seatrial.launch.answering import NO_ANSWER
from seatrial.launch.gate_questions import OWN_CLOCK, GateQuestions
from seatrial.records.line import ClockOffset

CLOCK = ClockOffset(offset_s=0.5, round_trip_s=0.1)
QUESTIONS = {"node0": {"ask": "facts"}, "node1": {"ask": "facts"}, "node2": {"ask": "facts"}}


class Here:
    """This node's own answerer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []
        self.given: list[tuple[int, dict[str, Any]]] = []

    def ask(self, number: int, question: Any) -> None:
        self.asked.append((number, question))

    def fileno(self) -> None:
        return None

    def answers(self) -> list[tuple[int, dict[str, Any]]]:
        given, self.given = self.given, []
        return given

    def close(self) -> None:
        """Nothing was started."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    one = Here()
    monkeypatch.setattr(gate_questions, "Answering", lambda: one)
    return one


def test_this_node_is_asked_here_and_the_others_through_the_gate(here: Here) -> None:
    sent: list[tuple[str, Any]] = []
    asked = GateQuestions("node0")
    asked.begin(QUESTIONS, lambda node, message: sent.append((node, message)))
    assert here.asked == [(1, {"ask": "facts"})]
    assert sent == [(node, {"kind": "ask", "n": 1, "question": {"ask": "facts"}}) for node in ("node1", "node2")]
    asked.close()


def test_replies_have_their_clock_and_how_long_they_took(here: Here) -> None:
    now = [100.0]
    asked = GateQuestions("node0", lambda: now[0])
    asked.begin(QUESTIONS, lambda node, message: None)
    now[0] = 103.0
    here.given = [(1, {"host": "a"})]
    asked.take("node1", 1, {"host": "b"}, CLOCK)
    assert asked.is_awaited(QUESTIONS, {"node1", "node2"}) and asked.left_s(10.0) == 7.0
    asked.take("node2", 1, {NO_ANSWER: "its answerer ended"}, None)
    assert not asked.is_awaited(QUESTIONS, {"node1", "node2"})
    replies = asked.replies(QUESTIONS, {"node1", "node2"}, 10.0)
    assert (replies["node0"].told, replies["node0"].clock) == ({"host": "a"}, OWN_CLOCK)
    assert (replies["node1"].told, replies["node1"].clock, replies["node1"].took_s) == ({"host": "b"}, CLOCK, 3.0)
    assert (replies["node2"].told, replies["node2"].trouble) == ({}, "its answerer ended")


def test_what_answers_an_earlier_round_or_is_no_answer_is_passed_over(here: Here) -> None:
    asked = GateQuestions("node0")
    asked.begin(QUESTIONS, lambda node, message: None)
    asked.take("node1", 1, {"host": "b"}, None)
    asked.begin({"node1": {"ask": "clock"}}, lambda node, message: None)
    asked.take("node1", 1, {"host": "late"}, None)
    asked.take("node1", 2, "no object", None)
    assert asked.is_awaited({"node1": {}}, {"node1"})


def test_nobody_is_awaited_whose_command_has_ended(here: Here) -> None:
    asked = GateQuestions("node0")
    asked.begin({"node1": {}, "node2": {}}, lambda node, message: None)
    asked.take("node1", 1, {}, None)
    assert not asked.is_awaited({"node1": {}, "node2": {}}, {"node1"})
    replies = asked.replies({"node0": {}, "node1": {}, "node2": {}}, {"node1"}, 60.0)
    assert replies["node2"].trouble == "the command on node2 has ended" and replies["node0"].trouble.startswith("no answer within ")
