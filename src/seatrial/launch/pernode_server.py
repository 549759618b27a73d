"""Node 0 of a campaign without ssh: one command runs on every node, and the others (`launch.pernode_client`) connect to this one.

    with PernodeServer(paths, nodes=2, address="10.0.0.1", port=29500, plan=…, digest=…, report=…, how_to_start=…) as server:
        server.wait_for_nodes(is_stopped)          # until the commands of all other nodes have connected
        server.start("node1", argv, log)           # has one start an agent, which then has a connection of its own
        server.finish(exit_code)                   # ends them all with that exit code

The port is bound first; OUT/.gate.json holds its address. A command that ended may be started again: it reconnects, and the next run, which
waits for it for a while, uses it. A run in progress on its node belongs to its agent, which does not need the command.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from seatrial.core import files
from seatrial.core.control_connection.protocol import ClockOffset, ControlEndpoint, Message, new_token
from seatrial.core.control_connection.server import ControlServer, listen
from seatrial.core.errors import INTERRUPTED, WRONG_USE, CampaignError, HostError, LaunchError, PortTakenError, RefusedError, SeatrialError
from seatrial.core.paths import CampaignPaths
from seatrial.core.private_files import NotPrivateError, is_world_writable, read_private_json, world_writable_text
from seatrial.core.text import format_duration, join_names
from seatrial.launch.host_queries import NO_ANSWER, AnswerProcess
from seatrial.machine.network import interface_addresses, is_reachable_address, list_interfaces, listening_addresses, network_stack
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.launch import Reply
from seatrial.records.plan import CampaignPlan

# Node 0 waits this long for the others, and they for it: time for a person to go from terminal to terminal.
JOIN_TIMEOUT_S = 600.0
REMIND_EVERY_S = 10.0
DIGEST_DIGITS = 16
# How soon Ctrl-C is noticed.
POLL_S = 0.25
# Longer than any query takes on the slowest host.
ANSWER_TIMEOUT_S = 60.0
# Time for the user to notice that a command has ended, and to restart it.
REJOIN_TIMEOUT_S = 120.0
# For a message in flight, and a busy command.
LEAVE_TIMEOUT_S = 5.0
# Characters shown of what another program may have sent.
MAX_SHOWN = 40
# A cause in the registry of signatures.
NOT_STARTED = "node_not_started"
OWN_CLOCK = ClockOffset(offset_s=0.0, round_trip_s=0.0)

Queries = Mapping[str, Mapping[str, Any]]
Send = Callable[[str, Message], None]
ReportLine = Callable[[str], None]
"""Shows one line to the user."""


@dataclass(frozen=True, kw_only=True)
class ServerFile:
    """OUT/.gate.json: where node 0 listens, in the folder that all nodes share.

    Node 0 writes it and removes it at its end. It holds the authentication token, so only its owner may read it. The file of a dead
    campaign is recognised by its port, where nothing answers, not by its age, since clocks of hosts differ.
    """

    token: str
    addresses: tuple[str, ...]
    """Node 0's addresses, the user's first."""
    port: int
    since_t: float = 0.0
    plan: str = ""
    host: str = ""
    network_stack: str = ""

    def endpoint(self, node: str, first: str = "") -> ControlEndpoint:
        """How `node` connects to it; `first` is an address to try before the others."""
        addresses = tuple(dict.fromkeys(filter(None, (first, *self.addresses))))
        return ControlEndpoint(addresses=addresses, port=self.port, token=self.token, node=node, network_stack=self.network_stack)


def node_names(count: int) -> tuple[str, ...]:
    """`node0`, `node1` and so on: there is no hostfile that names them."""
    return tuple(f"node{rank}" for rank in range(count))


def plan_digest(plan: CampaignPlan) -> str:
    """Equal on nodes with the same plan: every run with its hash, which includes scripts and settings, and its number of nodes.

    The output folder, the budget and the selection of runs are node 0's alone.
    """
    what = [plan.name, [[spec.run, spec.hash, spec.place.nodes] for spec in plan.runs]]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:DIGEST_DIGITS]


def write_server_file(paths: CampaignPaths, addresses: Sequence[str], port: int, token: str, plan: str) -> None:
    if is_world_writable(paths.folder):
        raise RefusedError(world_writable_text(paths.folder))
    stored = ServerFile(
        token=token,
        addresses=tuple(addresses),
        port=port,
        since_t=time.time(),
        plan=plan,
        host=socket.gethostname(),
        network_stack=network_stack(),
    )
    try:
        files.write_private_json(paths.pernode_server_file, to_json(stored))
    except OSError as error:
        raise CampaignError(
            f"{paths.pernode_server_file} cannot be written ({error.strerror}): the commands on the other nodes need it"
        ) from error


def read_server_file(paths: CampaignPaths) -> ServerFile | None:
    """None where there is none yet; NotPrivateError unless this user wrote it, since its writer controls what this host starts."""
    return from_json_or_none(ServerFile, read_private_json(paths.pernode_server_file))


def remove_server_file(paths: CampaignPaths, token: str) -> None:
    """Remove it, unless it is a later campaign's."""
    with contextlib.suppress(OSError, NotPrivateError):
        present = read_server_file(paths)
        if present is not None and present.token == token:
            paths.pernode_server_file.unlink(missing_ok=True)


def own_addresses(named: str, interface: str = "") -> list[str]:
    """The address that the user named, then all others of this host, or those of `place.interface`: a name may resolve to loopback, or to
    a network that the others cannot reach."""
    interfaces = list_interfaces()
    others = [address for addresses in interfaces.values() for address in addresses if is_reachable_address(address)]
    return list(dict.fromkeys([named, *(interface_addresses(interface, interfaces) or others)]))


class QueryRounds:
    """The doctor's queries to all nodes, in rounds: node 0 answers through a child, the others over the connection.

    Answers may come in any order; those to an earlier round are dropped.
    """

    def __init__(self, first: str, monotonic: Callable[[], float] = time.monotonic, here: AnswerProcess | None = None) -> None:
        """`first` is node 0, where this process runs and `here` answers."""
        self._first, self._monotonic = first, monotonic
        self._here = here or AnswerProcess()
        self._number = 0
        self._sent_m = 0.0
        self._replies: dict[str, Reply] = {}

    def begin(self, queries: Queries, send: Send) -> None:
        self._number, self._sent_m, self._replies = self._number + 1, self._monotonic(), {}
        for node, query in queries.items():
            if node == self._first:
                self._here.ask(self._number, query)
            else:
                send(node, {"kind": "ask", "n": self._number, "query": dict(query)})

    def fileno(self) -> int | None:
        """Becomes readable when node 0's own answer is there; None where none can come."""
        return self._here.fileno()

    def left_s(self, timeout_s: float) -> float:
        return self._sent_m + timeout_s - self._monotonic()

    def add_answer(self, node: str, number: object, answer: object, clock: ClockOffset | None) -> None:
        """`clock` is how far the node's own is ahead of ours."""
        # A late one belongs to an earlier round.
        if number == self._number and isinstance(answer, dict):
            trouble, took_s = str(answer.get(NO_ANSWER, "")), self._monotonic() - self._sent_m
            self._replies[node] = Reply(answer={} if trouble else answer, trouble=trouble, took_s=took_s, clock=clock)

    def is_pending(self, queries: Queries, connected: Collection[str]) -> bool:
        """Whether an answer may still come; this node's own are read first."""
        for number, answer in self._here.answers():
            self.add_answer(self._first, number, answer, OWN_CLOCK)
        return any(node not in self._replies and self._is_connected(node, connected) for node in queries)

    def replies(self, queries: Queries, connected: Collection[str], timeout_s: float) -> dict[str, Reply]:
        return {node: self._replies.get(node) or Reply(trouble=self._why_none(node, connected, timeout_s)) for node in queries}

    def close(self) -> None:
        self._here.close()

    def _is_connected(self, node: str, connected: Collection[str]) -> bool:
        return node == self._first or node in connected

    def _why_none(self, node: str, connected: Collection[str], timeout_s: float) -> str:
        if self._is_connected(node, connected):
            return f"no answer within {format_duration(timeout_s)}"
        return f"the command on {node} has ended"


class PernodeServer:
    """Node 0's server, to which the commands of all other nodes connect."""

    def __init__(
        self,
        paths: CampaignPaths,
        *,
        nodes: int,
        address: str,
        port: int,
        plan: str,
        digest: str,
        report: ReportLine,
        how_to_start: Callable[[int], str],
        interface: str = "",
        timeout_s: float = JOIN_TIMEOUT_S,
        monotonic: Callable[[], float] = time.monotonic,
        answers: AnswerProcess | None = None,
    ) -> None:
        """`answers` answers the doctor's queries to node 0."""
        self._paths, self._plan, self._digest, self._report, self._how_to_start = paths, plan, digest, report, how_to_start
        self._timeout_s, self._monotonic = timeout_s, monotonic
        self.nodes = node_names(nodes)
        self.master_addr = address
        """The user's address of node 0, also of the rendezvous, unless the plan names another."""
        self.addresses = own_addresses(address, interface)
        """All addresses of node 0, or those of `interface` (place.interface); `address` first."""
        self._port, self._token, self._interface = port, new_token(), interface
        self._hellos: dict[str, Message] = {}
        self._disconnected: dict[str, str] = {}
        self._given_up: set[str] = set()
        self._problems: dict[str, str] = {}
        self._logs: dict[str, str] = {}
        self._is_finished = False
        self._queries = QueryRounds(self.nodes[0], monotonic, answers)

    def __enter__(self) -> PernodeServer:
        listening = _listen(self._port, listening_addresses(self._interface, self.master_addr))
        first_message = {"plan": self._plan, "digest": self._digest}
        self.connections = ControlServer(
            self._token, self.nodes[1:], first_message=lambda _: first_message, listening=listening, may_return=True
        )
        self.connections.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.finish(_exit_code(error))
        finally:
            remove_server_file(self._paths, self._token)
            self.connections.close()
            self._queries.close()

    @property
    def port(self) -> int:
        return self.connections.port

    def write_file(self) -> None:
        """OUT/.gate.json, by which the other commands find this one."""
        write_server_file(self._paths, self.addresses, self.port, self._token, self._plan)

    def wait_for_nodes(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Return when all have connected. KeyboardInterrupt when `is_stopped` first, RefusedError after the timeout."""
        self.write_file()
        until_m = self._monotonic() + self._timeout_s
        remind_at_m = self._monotonic()
        while missing := self.missing():
            if is_stopped():
                self._report(f"stopped while waiting for {join_names(missing)}; nothing was run")
                raise KeyboardInterrupt
            if self.connections.failed:
                raise LaunchError(f"{join_names(missing)} cannot connect any more: {self.connections.failed}")
            if self._monotonic() >= until_m:
                raise RefusedError(self._timeout_text(missing))
            if self._monotonic() >= remind_at_m:
                remind_at_m = self._monotonic() + REMIND_EVERY_S
                self._report(f"waiting for {join_names(missing)} (start there: {self._how(missing[0])})")
            self._receive(POLL_S)

    def wait_for_reconnect(self, is_stopped: Callable[[], bool] = lambda: False, timeout_s: float = REJOIN_TIMEOUT_S) -> None:
        """Before a run: give the user time to restart a command that has ended, once for each end."""
        until_m = self._monotonic() + timeout_s
        while (awaited := {*self.disconnected()} - self._given_up) and not self.connections.failed:
            if self._monotonic() >= until_m or is_stopped():
                break
            self._receive(POLL_S)
        self._given_up |= awaited

    def missing(self) -> list[str]:
        """Nodes whose command has not connected, or has ended."""
        self._receive()
        return [node for node in self.nodes[1:] if node not in self._hellos]

    def disconnected(self) -> dict[str, str]:
        """Nodes whose command connected and has ended since → why it counts as ended."""
        self._receive()
        return dict(self._disconnected)

    def hostname_of(self, node: str) -> str:
        """What the node's host calls itself; empty where its command never connected."""
        return socket.gethostname() if node == self.nodes[0] else str(self._hellos.get(node, {}).get("host", ""))

    def python_of(self, node: str) -> str:
        """The interpreter of the node's command; empty for this node and where it never connected."""
        return str(self._hellos.get(node, {}).get("python", ""))

    def start(self, node: str, argv: Sequence[str], log: Path) -> None:
        """Let the node's command start an agent; LaunchError where the command has ended."""
        if node in self.missing():
            why = self._disconnected.get(node, "it never connected")
            problem = f"the command on {node} has ended ({why}): start it again there: {self._how(node)}"
            raise HostError(problem, host=node, cause=NOT_STARTED)
        self._problems.pop(node, None)
        self._logs[node] = str(log)
        self.connections.send(node, {"kind": "start", "argv": list(argv), "log": str(log)})

    def problem(self, node: str) -> str:
        """Why the agent last started there can no longer connect; empty while it may."""
        self._receive()
        ended = f"the command on {node} has ended ({self._disconnected[node]})" if node in self._disconnected else ""
        return self._problems.get(node, ended)

    def ask(self, queries: Queries, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Reply]:
        """The reply of every node in `queries`, this one included (`records.launch.AskHosts`): how the doctor works without ssh."""
        rounds = self._queries
        rounds.begin(queries, self.connections.send)
        while rounds.is_pending(queries, self._hellos) and (left_s := rounds.left_s(timeout_s)) > 0:
            self._receive(left_s, rounds.fileno())
        return rounds.replies(queries, self._hellos, timeout_s)

    def finish(self, code: int) -> None:
        """End every command with this exit code, and wait until they have received it."""
        if self._is_finished:
            return
        self._is_finished = True
        self.connections.send_all({"kind": "over", "code": code})
        until_m = self._monotonic() + LEAVE_TIMEOUT_S
        while self._hellos and self._monotonic() < until_m:
            self._receive(POLL_S)

    def _receive(self, timeout_s: float = 0.0, beside: int | None = None) -> None:
        """Handle messages of the nodes; wait for them, or until the file descriptor `beside` is readable."""
        for node, message in self.connections.wait(timeout_s, beside) if timeout_s else self.connections.poll():
            self._handle(node, message)

    def _handle(self, node: str, message: Message) -> None:
        kind = message["kind"]
        if kind == "hello":
            self._connected(node, message)
        elif kind == "refused":
            self._report(f"{node} is refused: {message.get('why')}")
        elif kind == "lost":
            self._lost(node, str(message.get("why")))
        elif kind == "trouble" and message.get("log") == self._logs.get(node):
            # Not of an agent of an earlier run, which may end while the next one starts.
            self._problems[node] = str(message.get("why"))
        elif kind == "answer":
            self._queries.add_answer(node, message.get("n"), message.get("answer"), self.connections.offset(node))

    def _connected(self, node: str, hello: Message) -> None:
        """A command with another plan is reported and not counted; it ends by itself."""
        if hello.get("digest") != self._digest:
            plan = str(hello.get("digest"))[:MAX_SHOWN]
            self._report(f"{node} ({hello.get('host')}) is refused: it has plan {plan}, here it is plan {self._digest}")
            return
        self._hellos[node] = hello
        self._disconnected.pop(node, None)
        self._given_up.discard(node)
        self._report(f"{node} connected ({hello.get('host')})")

    def _lost(self, node: str, why: str) -> None:
        if self._hellos.pop(node, None) is None or self._is_finished:
            return
        self._disconnected[node] = why
        self._report(f"The command on {node} has ended ({why}). The next run waits for it. Restart it there: {self._how(node)}")

    def _timeout_text(self, missing: Sequence[str]) -> str:
        return (
            f"{join_names(missing)} did not connect within {format_duration(self._timeout_s)}: start there {self._how(missing[0])}, check "
            f"that {self._paths.folder} is the same folder there, and that port {self.port} of {self.master_addr} can be reached from there"
        )

    def _how(self, node: str) -> str:
        return self._how_to_start(self.nodes.index(node))


def _listen(port: int, addresses: Sequence[str]) -> list[socket.socket]:
    try:
        return listen(addresses, port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise LaunchError(f"cannot listen on --master-port {port}: {error.strerror}") from error
        raise PortTakenError(
            f"--master-port {port} is in use on this node, or not permitted; end what holds it, or choose another on all nodes"
        ) from error


def _exit_code(error: BaseException | None) -> int:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return error.exit_code if isinstance(error, SeatrialError) else WRONG_USE
