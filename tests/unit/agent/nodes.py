"""A node of many on this machine: a Switchboard on loopback as the harness, and a real agent that calls it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from seatrial.agent.harness_line import HarnessLine
from seatrial.files import write_json
from seatrial.line.caller import Caller
from seatrial.line.connection import Connection
from seatrial.line.switchboard import Switchboard
from seatrial.paths import AttemptPaths
from seatrial.records.codec import from_json, to_json
from seatrial.records.command import AgentOrder, AgentReport
from seatrial.records.line import LEASE_S, Call, NodeCall
from tests.unit.agent.runs import PATIENCE_S, order_for

TOKEN = "a token"
NAME = "node2"


class Node(AbstractContextManager["Node"]):
    """`attempt` of the campaign in `folder`; the agent runs from `call` to the end of the block, where it is killed if it still lives."""

    def __init__(self, folder: Path, attempt: int = 1, lease_s: float = LEASE_S, **more: object) -> None:
        self.folder = folder
        self.attempt = AttemptPaths(folder / "run" / f"attempt-{attempt}")
        self.own = self.attempt.node(NAME)
        self.start_log = self.own.folder / "start.log"
        self.board = Switchboard(TOKEN, (NAME,))
        self._lease_s, self._more = lease_s, more
        self.heard: list[dict[str, Any]] = []
        self.agent: subprocess.Popen[bytes]

    def write_call(self, port: int) -> Path:
        call = NodeCall(
            addresses=("127.0.0.1",),
            port=port,
            token=TOKEN,
            node=NAME,
            lease_s=self._lease_s,
            campaign=str(self.folder),
            attempt=str(self.attempt.folder),
            **self._more,  # type: ignore[arg-type]
        )
        path = self.own.folder / "call.json"
        write_json(path, to_json(call), 0o600)
        return path

    def call(self, env: Mapping[str, str] | None = None) -> Node:
        """Write call.json and start the agent, as a transport would."""
        path = self.write_call(self.board.port)
        argv = [sys.executable, "-P", "-m", "seatrial.agent", "--call", str(path)]
        with open(self.start_log, "ab") as log:
            self.agent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env)
        return self

    def __enter__(self) -> Node:
        self.board.__enter__()
        return self.call()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.board.close()
        try:
            self.agent.wait(PATIENCE_S if kind is None else 1.0)
        except subprocess.TimeoutExpired:
            self.agent.kill()
            self.agent.wait()
            if kind is None:
                raise
        finally:
            assert self.agent.stdin is not None
            self.agent.stdin.close()

    def order(self, text: str, **more: Any) -> AgentOrder:
        """As `order_for`, with what this node writes in its own folder."""
        order = order_for(self.folder, text, own_folder=str(self.own.folder), **more)
        # `order_for` knows one attempt only.
        assert order.attempt_folder == str(self.attempt.folder)
        return order

    def go(self, order: AgentOrder, env: Mapping[str, str] | None = None) -> None:
        self.hear("hello")
        self.board.send(NAME, {"kind": "go", "order": to_json(order), "env": env})

    def tell(self, word: str) -> None:
        self.board.send(NAME, {"kind": "order", "word": word})

    def hear(self, kind: str) -> dict[str, Any]:
        """The next message of a kind; those before it are passed over."""
        return self._next(lambda message: message["kind"] == kind, kind)

    def report(self, kind: str) -> AgentReport:
        """The next report of a kind."""
        message = self._next(lambda message: message["kind"] == "report" and message["report"]["kind"] == kind, f"report {kind}")
        return from_json(AgentReport, message["report"])

    def _next(self, wanted: Any, what: str) -> dict[str, Any]:
        until, passed = time.monotonic() + PATIENCE_S, []
        while time.monotonic() < until:
            self.heard += [message for _, message in self.board.wait(0.2)]
            while self.heard:
                message = self.heard.pop(0)
                if wanted(message):
                    return message
                passed.append(message)
        raise AssertionError(f"no {what} came, only {passed}; agent.log: {self.log()}; start.log: {self.start_log.read_text()}")

    def log(self) -> str:
        return self.own.agent_log.read_text() if self.own.agent_log.exists() else ""

    def wait(self) -> int:
        """The agent's exit code."""
        return self.agent.wait(PATIENCE_S)


def line_between(lease_s: float = LEASE_S, monotonic: Callable[[], float] = time.monotonic) -> tuple[HarnessLine, Connection]:
    """A line that stands, heard of just now, and the harness's end of it."""
    ours, other = socket.socketpair()
    call = Call(addresses=(), port=1, token=TOKEN, node=NAME, lease_s=lease_s)
    caller = Caller(call, Connection(ours), [{"kind": "welcome"}], monotonic())
    return HarnessLine(caller, NAME, monotonic), Connection(other)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}
