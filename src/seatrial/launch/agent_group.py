"""The harness's end of the agents of many hosts, with the face of one (`launch.agents.Agents`).

    group = AgentGroup(board, attempt, allocation.nodes, hosts, transports)
    group.go({"node1": (order, env), …})
    while group.alive: for report in group.wait(1.0): …

Orders go to every host that still has a line, reports are folded (`launch.fold`). An agent that hears nothing of the harness any more,
however that comes, kills everything on its host; so closing the lines is the last and surest order. Where the agent itself is gone,
what it left is ended by another way (`launch.transports.leftovers`), and `gone` waits for that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from seatrial.files import tail_lines
from seatrial.launch.fold import Fold
from seatrial.launch.own_programs import AGENT_ENDS_WITHIN_S, LAST_WORDS_LINES
from seatrial.launch.transports.leftovers import PATIENCE_S as LEFTOVERS_PATIENCE_S
from seatrial.launch.transports.leftovers import Leftovers
from seatrial.launch.transports.transport import Transport
from seatrial.line.protocol import Message
from seatrial.line.switchboard import Switchboard
from seatrial.paths import AttemptPaths
from seatrial.records.codec import from_json, to_json
from seatrial.records.command import AgentOrder, AgentReport, Node
from seatrial.records.nodes import NodeRecord

# What is due by the clock (a host that failed, leftovers that are ended) is looked at so often.
TURN_S = 0.5

Environment = Mapping[str, str]


class AgentGroup:
    """The agents of all hosts of one attempt, each of which has called already."""

    def __init__(
        self,
        board: Switchboard,
        attempt: AttemptPaths,
        nodes: Sequence[Node],
        hosts: Mapping[str, str],
        transports: Sequence[Transport] = (),
        leftovers: Leftovers | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        close_patience_s: float = AGENT_ENDS_WITHIN_S,
    ) -> None:
        """`hosts` is what each host calls itself, by its name in the hostfile."""
        self._board, self._attempt, self._transports = board, attempt, tuple(transports)
        self._monotonic, self._close_patience_s = monotonic, close_patience_s
        self._leftovers, self._hosts = leftovers, dict(hosts)
        self._fold = Fold(nodes, settles=leftovers is not None)
        for name, host in hosts.items():
            self._fold.called(name, host)
        self._silent: set[str] = set()
        self._is_told = self._closed = False

    def go(self, orders: Mapping[str, tuple[AgentOrder, Environment | None]]) -> None:
        """Tell each host what to start, and the variables beneath; None for the host's own."""
        self._is_told = True
        for name, (order, env) in orders.items():
            self._board.send(name, {"kind": "go", "order": to_json(order), "env": None if env is None else dict(env)})

    @property
    def alive(self) -> bool:
        return not self._fold.is_over

    def poll(self) -> list[AgentReport]:
        return self._taken(self._board.poll())

    def wait(self, timeout_s: float) -> list[AgentReport]:
        until_m = self._monotonic() + timeout_s
        while self.alive:
            left_s = max(0.0, until_m - self._monotonic())
            reports = self._taken(self._board.wait(min(TURN_S, left_s)))
            if reports or left_s <= 0:
                return reports
        return []

    def stacks(self) -> None:
        self._fold.asked_for_stacks()
        self._tell("stacks", self._fold.living())

    def stop(self) -> None:
        self._tell("stop", self._fold.living())

    def kill(self) -> None:
        self._tell("kill", self._fold.living())

    def close(self) -> list[AgentReport]:
        """Let go of all: what still runs is killed. The reports that came meanwhile."""
        if self._closed:
            return []
        self._closed = True
        reports = self._ended() if self._is_told else []
        self._board.close()
        for transport in self._transports:
            transport.close(self._is_told)
        return reports

    def _ended(self) -> list[AgentReport]:
        """Whatever still runs is killed, and waited for."""
        if self.alive:
            self.kill()
        reports = self._waited(self._close_patience_s)
        for name in self._fold.living():
            reports += self._lost(name, f"it did not end within {self._close_patience_s:.0f} s of being told to")
        return reports + self._waited(LEFTOVERS_PATIENCE_S + TURN_S)

    def _waited(self, patience_s: float) -> list[AgentReport]:
        reports: list[AgentReport] = []
        until_m = self._monotonic() + patience_s
        while self.alive and self._monotonic() < until_m:
            reports += self.wait(until_m - self._monotonic())
        return reports

    def nodes(self) -> tuple[NodeRecord, ...]:
        return self._fold.records(self._board.offset, self._board.clock_moved_s)

    def __enter__(self) -> AgentGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _tell(self, word: str, names: Sequence[str]) -> None:
        for name in names:
            self._board.send(name, {"kind": "order", "word": word})

    def _taken(self, said: Sequence[tuple[str, Message]]) -> list[AgentReport]:
        """What came, folded; and what is due by now."""
        reports: list[AgentReport] = []
        for name, message in said:
            if message["kind"] == "lost":
                reports += self._line_lost(name, message)
            elif message["kind"] == "report" and (report := _report(message.get("report"))):
                reports += self._fold.heard(name, report, time.time(), self._monotonic())
        if self._fold.is_stop_due(self._monotonic()):
            self._tell("stop", self._fold.running())
        return reports + self._settled()

    def _line_lost(self, name: str, message: Message) -> list[AgentReport]:
        """Of one that just fell silent, nobody is there whose last words could be read."""
        silent, why = message.get("silent") is True, str(message.get("why"))
        if silent:
            self._silent.add(name)
        return self._lost(name, why if silent else self._with_last_words(name, why), silent)

    def _lost(self, name: str, why: str, silent: bool = False) -> list[AgentReport]:
        return self._fold.lose(name, why, time.time(), self._monotonic(), silent)

    def _settled(self) -> list[AgentReport]:
        """What lost hosts left is ended, and said so."""
        if self._leftovers is None:
            return []
        for name in self._fold.unsettled():
            if self._may_be_ended(name):
                self._leftovers.begin(name, name in self._silent)
        over = self._leftovers.over()
        return [report for told in over for report in self._fold.settle(*told, time.time(), self._monotonic())]

    def _may_be_ended(self, name: str) -> bool:
        """Not while another node of the run lives on the same host; and a silent one may be heard again, or have ended by itself."""
        living = self._fold.living()
        shared = any(self._hosts.get(other) == self._hosts.get(name) for other in living)
        return not living or (name not in self._silent and not shared)

    def _with_last_words(self, name: str, why: str) -> str:
        """With what its transport and its own log tell."""
        with contextlib.suppress(OSError):
            ended = [found[name].words for transport in self._transports if name in (found := transport.ended())]
            last = " / ".join(tail_lines(self._attempt.node(name).agent_log, LAST_WORDS_LINES))
            return "; ".join([why, *ended, *([f"its last words: {last}"] if last else [])])
        return why


def _report(value: Any) -> AgentReport | None:
    """None for what is no report: the line of a node that is no agent of this version."""
    try:
        return from_json(AgentReport, value)
    except ValueError:
        return None
