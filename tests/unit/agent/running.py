"""Agents that really run: orders, process trees, and agents in processes of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from seatrial.agent import harness
from seatrial.agent.harness_connection import HarnessConnection
from seatrial.core.control_connection.protocol import LEASE_S, Connection, ControlClient, ControlEndpoint
from seatrial.core.control_connection.server import ControlServer
from seatrial.core.files import write_json
from seatrial.core.paths import AttemptPaths
from seatrial.launch.agents import AgentProcess
from seatrial.machine.orphans import list_segments
from seatrial.records.codec import from_json, to_json
from seatrial.records.events import ENV_RUN_DIR
from seatrial.records.launch import AgentEndpoint, AgentOrder, AgentReport, Command
from seatrial.records.plan import TelemetrySpec
from tests.processes import pids_in
from tests.waiting import wait_until

# Ranks, each with a child in its own session; all write their pids to `pids`.
FAMILY = """\
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open("pids", "a") as out:
    out.write(f"{os.getpid()} {child.pid}\\n")
time.sleep(600)
"""


def agent_without_timeout(constant: str, call: Path) -> subprocess.CompletedProcess[str]:
    """The agent on a call, with one of its timeouts set to 0."""
    module, _, name = constant.rpartition(".")
    lines = (
        f"import sys, {module} as module",
        f"module.{name} = 0",
        "from seatrial.agent.__main__ import main",
        "sys.exit(main(sys.argv))",
    )
    code = "\n".join(lines)
    return subprocess.run([sys.executable, "-c", code, "--call", str(call)], capture_output=True, text=True, timeout=60)


def family(folder: Path, size: int = 4) -> list[int]:
    wait_until(lambda: len(pids_in(folder / "pids")) == size, "all ranks and their children are up")
    return pids_in(folder / "pids")


TIMEOUT_S = 60.0
NO_TELEMETRY = TelemetrySpec(gpu_s=None, host_s=None)


def order_for(folder: Path, text: str, *, ranks: int = 1, env: Mapping[str, str] | None = None, **more: object) -> AgentOrder:
    """Python running `text` once a rank, in an attempt's folder below `folder`."""
    attempt = folder / "run" / "attempt-1"
    attempt.mkdir(parents=True, exist_ok=True)
    command = Command(
        argv=(sys.executable, "-c", text),
        env={ENV_RUN_DIR: str(attempt), **(env or {})},
        cwd=str(folder),
        ranks=tuple({"RANK": str(rank)} for rank in range(ranks)),
    )
    order = AgentOrder(command=command, attempt_folder=str(attempt), term_s=2.0, telemetry=NO_TELEMETRY, shared_memory=list_segments())
    return replace(order, **more)  # type: ignore[arg-type]


@contextmanager
def agent_on(order: AgentOrder) -> Iterator[AgentProcess]:
    """A real agent carrying out `order`."""
    attempt = AttemptPaths(Path(order.attempt_folder))
    write_json(attempt.agent_order, to_json(order), 0o600)
    with AgentProcess.start(attempt) as agent:
        yield agent


def attempt_of(order: AgentOrder) -> AttemptPaths:
    return AttemptPaths(Path(order.attempt_folder))


def hear(agent: AgentProcess, kind: str, timeout_s: float = TIMEOUT_S) -> AgentReport:
    """The next report of a kind."""
    until = time.monotonic() + timeout_s
    heard: list[AgentReport] = []
    while time.monotonic() < until and agent.alive:
        for report in agent.wait(until - time.monotonic()):
            heard.append(report)
            if report.kind == kind:
                return report
    raise AssertionError(f"no report '{kind}' came, only {heard}")


def run_in_child(act: Callable[[], Any]) -> Any:
    """The result of `act` in a forked child, through JSON; its error is raised here."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            result = {"value": act()}
        except BaseException:
            result = {"error": traceback.format_exc()}
        os.write(write_end, json.dumps(result).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as source:
        result = json.loads(source.read() or b'{"error": "it ended without a result"}')
    os.waitpid(pid, 0)
    assert "error" not in result, result["error"]
    return result["value"]


class FakeHarness:
    """Keeps reports; `commands` arrive once, `ended` is why it is gone. Within the block, this process's own reports go there."""

    def __init__(self, *commands: str, ended: str = "") -> None:
        self.commands, self.ended = list(commands), ended
        self.sent: list[AgentReport] = []
        self.failures: list[str] = []
        self.is_closed = False
        self._readable, self._writable = os.pipe()

    def fileno(self) -> int:
        return -1 if self.is_closed else self._readable

    def started(self, now: float) -> None:
        """Nothing waits for it."""

    def receive(self, now: float) -> list[str]:
        commands, self.commands = self.commands, []
        return commands

    def send(self, report: AgentReport) -> None:
        self.sent.append(report)

    def flush(self, timeout_s: float = 0.0) -> bool:
        return True

    def why_gone(self, now: float) -> str:
        return self.ended

    def failed(self, why: str) -> None:
        self.failures.append(why)

    def close(self) -> None:
        self.is_closed = True
        for handle in (self._readable, self._writable):
            os.close(handle)

    def __enter__(self) -> FakeHarness:
        self._before = harness.set_report_target(self)
        return self

    def __exit__(self, *raised: object) -> None:
        harness.set_report_target(self._before)
        if not self.is_closed:
            self.close()


TOKEN = "a token"
NAME = "node2"


class Node(AbstractContextManager["Node"]):
    """`attempt` of the campaign in `folder`; the agent runs from `call` to the end of the block, where it is killed if it still lives."""

    def __init__(self, folder: Path, attempt: int = 1, lease_s: float = LEASE_S, **more: object) -> None:
        self.folder = folder
        self.attempt = AttemptPaths(folder / "run" / f"attempt-{attempt}")
        self.own = self.attempt.node(NAME)
        self.start_log = self.own.folder / "start.log"
        self.server = ControlServer(TOKEN, (NAME,))
        self._lease_s, self._more = lease_s, more
        self.heard: list[dict[str, Any]] = []
        self.agent: subprocess.Popen[bytes]

    def write_call(self, port: int) -> Path:
        call = AgentEndpoint(
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

    def call(self, env: Mapping[str, str] | None = None, port: int | None = None) -> Node:
        """Write call.json and start the agent, as a transport would; `port` is where it connects instead of the server's own."""
        path = self.write_call(port or self.server.port)
        argv = [sys.executable, "-P", "-m", "seatrial.agent", "--call", str(path)]
        with open(self.start_log, "ab") as log:
            self.agent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env)
        return self

    def __enter__(self) -> Node:
        self.server.__enter__()
        return self.call()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.server.close()
        try:
            self.agent.wait(TIMEOUT_S if kind is None else 1.0)
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
        self.server.send(NAME, {"kind": "go", "order": to_json(order), "env": env})

    def command(self, command: str) -> None:
        self.server.send(NAME, {"kind": "command", "command": command})

    def hear(self, kind: str) -> dict[str, Any]:
        """The next message of a kind; those before it are passed over."""
        return self._next(lambda message: message["kind"] == kind, kind)

    def report(self, kind: str) -> AgentReport:
        """The next report of a kind."""
        message = self._next(lambda message: message["kind"] == "report" and message["report"]["kind"] == kind, f"report {kind}")
        return from_json(AgentReport, message["report"])

    def _next(self, wanted: Any, what: str) -> dict[str, Any]:
        until, passed = time.monotonic() + TIMEOUT_S, []
        while time.monotonic() < until:
            self.heard += [message for _, message in self.server.wait(0.2)]
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
        return self.agent.wait(TIMEOUT_S)


def connection_pair(
    lease_s: float = LEASE_S, monotonic: Callable[[], float] = time.monotonic, heard_at: float | None = None
) -> tuple[HarnessConnection, Connection]:
    """An established connection, and the harness's end of it; the harness was last heard now, or at `heard_at`."""
    ours, other = socket.socketpair()
    call = ControlEndpoint(addresses=(), port=1, token=TOKEN, node=NAME, lease_s=lease_s)
    client = ControlClient(call, Connection(ours), {"kind": "welcome"}, monotonic() if heard_at is None else heard_at)
    return HarnessConnection(client, NAME, monotonic), Connection(other)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}
