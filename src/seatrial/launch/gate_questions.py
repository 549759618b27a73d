"""The doctor's questions to the nodes of a campaign without ssh: node 0 answers in a child of its own, the others through the gate.

In: a question for each node, and the answers as they come, in any order. Out: a `Reply` for each node that was asked. One round at a
time: what answers an earlier one is passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from seatrial.launch.answering import NO_ANSWER, Answering
from seatrial.line.protocol import Message
from seatrial.records.line import ClockOffset
from seatrial.records.reply import Reply
from seatrial.units import format_duration

OWN_CLOCK = ClockOffset(offset_s=0.0, round_trip_s=0.0)

Questions = Mapping[str, Mapping[str, Any]]
Send = Callable[[str, Message], None]


class GateQuestions:
    """One round after the other; `first` is node 0, where this process runs."""

    def __init__(self, first: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._first, self._monotonic = first, monotonic
        self._here = Answering()
        self._number = 0
        self._asked_m = 0.0
        self._replies: dict[str, Reply] = {}

    def begin(self, questions: Questions, send: Send) -> None:
        """Ask; `send` reaches the other nodes."""
        self._number, self._asked_m, self._replies = self._number + 1, self._monotonic(), {}
        for node, question in questions.items():
            if node == self._first:
                self._here.ask(self._number, question)
            else:
                send(node, {"kind": "ask", "n": self._number, "question": dict(question)})

    def fileno(self) -> int | None:
        """What becomes readable when node 0 has answered itself; None where nothing can come."""
        return self._here.fileno()

    def left_s(self, patience_s: float) -> float:
        """How much of the patience with this round is left."""
        return self._asked_m + patience_s - self._monotonic()

    def take(self, node: str, number: object, answer: object, clock: ClockOffset | None) -> None:
        """What a node said; `clock` is how far its own is ahead of ours."""
        # One that comes too late answers nothing that is still asked.
        if number == self._number and isinstance(answer, dict):
            trouble, took_s = str(answer.get(NO_ANSWER, "")), self._monotonic() - self._asked_m
            self._replies[node] = Reply(told={} if trouble else answer, trouble=trouble, took_s=took_s, clock=clock)

    def is_awaited(self, questions: Questions, present: Collection[str]) -> bool:
        """Whether an answer may still come; this node's own are taken first, that it cannot answer is known at once."""
        for number, answer in self._here.answers():
            self.take(self._first, number, answer, OWN_CLOCK)
        return any(node not in self._replies and self._is_there(node, present) for node in questions)

    def replies(self, questions: Questions, present: Collection[str], patience_s: float) -> dict[str, Reply]:
        """Every asked node's reply, or why there is none."""
        return {node: self._replies.get(node) or Reply(trouble=self._why_none(node, present, patience_s)) for node in questions}

    def close(self) -> None:
        """End the child."""
        self._here.close()

    def _is_there(self, node: str, present: Collection[str]) -> bool:
        return node == self._first or node in present

    def _why_none(self, node: str, present: Collection[str], patience_s: float) -> str:
        if self._is_there(node, present):
            return f"no answer within {format_duration(patience_s)}"
        return f"the command on {node} has ended"
