"""The agents of many hosts, used like one (`launch.agents.Agents`).

    group = AgentGroup(server, attempt, allocation.nodes, hostnames, transports)
    group.start({"node1": (order, env), …})
    while group.alive: for report in group.wait(1.0): …

Commands go to every host that is still connected, and their reports are merged into those of one agent (`ReportMerger`). An agent that
loses its connection for any reason kills everything on its host, so closing the connections is the last and most reliable command. Where
an agent itself is gone, `RemoteCleanup` ends what it left, and `gone` waits for that.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.core.control_connection.protocol import LEASE_S, ClockOffset, Message
from seatrial.core.control_connection.server import ControlServer
from seatrial.core.errors import LaunchError
from seatrial.core.files import json_object, tail_lines
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import join_names
from seatrial.launch.agents import LOG_TAIL_LINES
from seatrial.launch.transports import AGENT_EXIT_TIMEOUT_S, RemoteCommand, StartRequest, Transport
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.launch import (
    AFTER_EFFECT_CODES,
    AGENT_GOT_TERM,
    FAILED_GRACE_S,
    AgentOrder,
    AgentReport,
    Node,
    NodeRecord,
    RendezvousView,
)

EXITED, LOST, NOT_STARTED = "exited", "lost", "not_started"
MAX_DETAILS = 4
# Beyond this the times of two hosts cannot be compared.
CLOCK_MOVED_S = 1.0
# To connect, start an interpreter from a shared disk, and kill processes that fork meanwhile.
CLEANUP_TIMEOUT_S = 10.0
REPORT_LINES = 40
# How often deadlines (a host that failed, a cleanup that is over) are checked.
POLL_S = 0.5

Environment = Mapping[str, str]
OffsetOf = Callable[[str], ClockOffset | None]
ClockMoved = Callable[[str], float]
"""Host → the seconds by which its clock has moved against ours during the run."""


@dataclass
class _NodeState:
    """What is known of one host."""

    node: Node
    hostname: str
    started: bool = False
    exited: bool = False
    returncode: int | None = None
    gone: bool = False
    lost: str = ""
    detail: str = ""
    killed: int = 0
    oom_kills: str = ""
    cleaned_up: bool = True
    """On a lost host: whether its processes were ended, or could not be."""

    @property
    def is_over(self) -> bool:
        return self.gone or bool(self.lost)

    @property
    def ended(self) -> str:
        if self.lost:
            return LOST
        return EXITED if self.exited else ("" if self.started else NOT_STARTED)


class ReportMerger:
    """Merges the reports of many agents into those of one. Pure: reports, losses and times in, reports out.

        started   each host's, as it comes
        exited    once, when every host is lost or its launcher has ended; the most informative nonzero code, 0 only if all are 0
        stacks    once, when all hosts that can have answered
        node_lost each host that was lost before it had reported `gone`
        gone      once, when every host is gone or lost, and the lost ones are cleaned up (`cleaned_up`)

    When one host fails or is lost, the others get a short while to end by themselves, often with a better message than ours, and are then
    to be stopped (`is_stop_due`).
    """

    def __init__(self, nodes: Sequence[Node], hostnames: Mapping[str, str], waits_for_cleanup: bool = False) -> None:
        """`waits_for_cleanup`: `cleaned_up` will be called for every host that is lost."""
        self._waits_for_cleanup = waits_for_cleanup
        self._states = {node.name: _NodeState(node, hostnames.get(node.name, "")) for node in nodes}
        self._codes: list[tuple[int, str]] = []
        self._stacks_pending: set[str] = set()
        self._stacks_details: list[str] = []
        self._stacks_requested = self._exited_reported = self._gone_reported = False
        self._stop_at = math.inf
        self._is_failing = self._is_stopping = False

    @property
    def is_over(self) -> bool:
        """Whether `gone` was reported."""
        return self._gone_reported

    def connected(self) -> list[str]:
        """Hosts that can be sent an order."""
        return [name for name, state in self._states.items() if not state.is_over]

    def running(self) -> list[str]:
        return [name for name in self.connected() if not self._states[name].exited]

    def awaiting_cleanup(self) -> list[str]:
        """Lost hosts on which something may still run."""
        return [name for name, state in self._states.items() if not state.cleaned_up]

    def is_stop_due(self, now_m: float) -> bool:
        """Whether the others are to be stopped now because one has failed; true once."""
        if now_m < self._stop_at:
            return False
        self._stop_at, self._is_stopping = math.inf, True
        return True

    def stacks_requested(self) -> None:
        self._stacks_requested, self._stacks_pending, self._stacks_details = True, set(self.connected()), []

    def add(self, name: str, report: AgentReport, now_t: float, now_m: float) -> list[AgentReport]:
        """Add one host's report; returns the merged reports that follow from it."""
        state = self._states.get(name)
        if state is None or state.is_over:
            return []
        reports: list[AgentReport] = []
        if report.kind == "started":
            state.started = True
            reports = [AgentReport(kind="started", t=now_t, m=now_m, pid=report.pid, host=name)]
        elif report.kind == "exited":
            self._exited(state, report, now_m)
        elif report.kind == "stacks" and name in self._stacks_pending:
            self._stacks_pending.discard(name)
            self._stacks_details += [f"{name}: {report.detail}"] if report.detail else []
        elif report.kind == "lost":
            # Its agent failed and reported that itself.
            return self.node_lost(name, report.detail, now_t, now_m)
        elif report.kind == "gone":
            state.gone, state.killed = True, report.killed
            state.detail = state.detail or report.detail
        return [*reports, *self._due(now_t, now_m)]

    def node_lost(self, name: str, why: str, now_t: float, now_m: float, silent: bool = False) -> list[AgentReport]:
        """A host's connection ended, or was `silent` for too long; ignored where the host had reported `gone`."""
        state = self._states.get(name)
        if state is None or state.is_over:
            return []
        state.lost = state.detail = why
        state.cleaned_up = not self._waits_for_cleanup
        self._fail(now_m)
        lost = AgentReport(kind="node_lost", t=now_t, m=now_m, host=name, detail=why, silent=silent)
        return [lost, *self._due(now_t, now_m)]

    def cleaned_up(self, name: str, killed: int, text: str, now_t: float, now_m: float) -> list[AgentReport]:
        """The cleanup of a lost host is over; `text` is how it ended."""
        state = self._states[name]
        state.cleaned_up, state.killed = True, state.killed + killed
        state.detail = f"{state.detail}; {text}"
        return list(self._due(now_t, now_m))

    def records(self, offset_of: OffsetOf, clock_moved: ClockMoved = lambda name: 0.0) -> tuple[NodeRecord, ...]:
        """The record of every host, by node_rank."""
        return tuple(_record(state, offset_of(name), clock_moved(name)) for name, state in self._states.items())

    def _exited(self, state: _NodeState, report: AgentReport, now_m: float) -> None:
        state.exited, state.returncode = True, report.returncode
        state.detail, state.oom_kills = report.detail, report.oom_kills
        if report.returncode != 0:
            self._fail(now_m)
        if report.returncode and not self._is_stopping:
            self._codes.append((report.returncode, state.node.name))

    def _fail(self, now_m: float) -> None:
        # Only the first failure starts the grace period.
        if not self._is_failing:
            self._is_failing, self._stop_at = True, now_m + FAILED_GRACE_S

    def _due(self, now_t: float, now_m: float) -> Iterator[AgentReport]:
        """Reports that are due now."""
        self._stacks_pending &= set(self.connected())
        if self._stacks_requested and not self._stacks_pending:
            self._stacks_requested = False
            yield AgentReport(kind="stacks", t=now_t, m=now_m, detail="; ".join(self._stacks_details[:MAX_DETAILS]))
        if not self._exited_reported and not self.running():
            self._exited_reported = True
            code, host = self._returncode()
            # The campaign recognises an agent that received TERM by this text, on any host.
            got_term = any(state.detail == AGENT_GOT_TERM for state in self._states.values())
            detail = AGENT_GOT_TERM if got_term else self._details()
            oom_kills = "; ".join(f"{name}: {state.oom_kills}" for name, state in self._states.items() if state.oom_kills)
            yield AgentReport(kind="exited", t=now_t, m=now_m, returncode=code, host=host, detail=detail, oom_kills=oom_kills)
        if not self._gone_reported and not self.connected() and not self.awaiting_cleanup():
            self._gone_reported = True
            killed = sum(state.killed for state in self._states.values())
            yield AgentReport(kind="gone", t=now_t, m=now_m, killed=killed, detail=self._details())

    def _returncode(self) -> tuple[int | None, str]:
        """The most informative code and its host. Codes of hosts that we stopped count only where no other host has failed."""
        causes = [(code, host) for code, host in self._codes if code not in AFTER_EFFECT_CODES]
        if causes or self._codes:
            return (causes or self._codes)[0]
        stopped = next((state.returncode for state in self._states.values() if state.returncode), None)
        all_well = all(state.returncode == 0 and not state.lost for state in self._states.values())
        return 0 if all_well else stopped, ""

    def _details(self) -> str:
        details = [f"{name}: {state.detail}" for name, state in self._states.items() if state.detail]
        return join_names(details, MAX_DETAILS, "; ")


def _record(state: _NodeState, offset: ClockOffset | None, moved_s: float) -> NodeRecord:
    node = state.node
    return NodeRecord(
        name=node.name,
        host=state.hostname,
        node_rank=node.node_rank,
        first_rank=node.first_rank,
        ranks=node.ranks,
        devices=node.devices,
        returncode=state.returncode,
        ended=state.ended,
        detail=_with_clock_move(state.detail, moved_s),
        clock_offset_s=offset.offset_s if offset else None,
        clock_round_trip_s=offset.round_trip_s if offset else None,
        killed=state.killed,
        oom_kills=state.oom_kills,
    )


def _with_view(record: NodeRecord, view: RendezvousView | None) -> NodeRecord:
    if view is None:
        return record
    return replace(record, rendezvous=view.resolved[0] if view.resolved else "", interface=view.interface, address=view.address)


def _with_clock_move(detail: str, moved_s: float) -> str:
    # An agent that received TERM is recognised by this text.
    if moved_s <= CLOCK_MOVED_S or detail == AGENT_GOT_TERM:
        return detail
    moved = f"its clock moved by {moved_s:.1f} s against the harness's during the run"
    return f"{detail}; {moved}" if detail else moved


@dataclass(frozen=True)
class _Cleanup:
    request: StartRequest
    silent: bool
    command: RemoteCommand
    until_m: float


@dataclass(frozen=True)
class CleanupResult:
    """How the cleanup of a lost host ended."""

    name: str
    killed: int
    text: str


class RemoteCleanup:
    """Ends the remaining processes of lost hosts: a killed agent leaves those that ignore TERM.

    cleanup = RemoteCleanup(choice.by, request_for)
    cleanup.start("node2", silent=False)       # runs `seatrial.agent --end ATTEMPT` there, by the transport that started its agent
    for result in cleanup.finished(): …        # after CLEANUP_TIMEOUT_S at the latest, whatever that host does

    The result is in the report that it prints, which ends up in the host's start.log.
    """

    def __init__(
        self,
        by: Sequence[tuple[Transport, Sequence[str]]],
        request_for: Callable[[str], StartRequest],
        timeout_s: float = CLEANUP_TIMEOUT_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`request_for` gives the command for a host of this name."""
        self._by = {name: transport for transport, names in by for name in names}
        self._request_for, self._timeout_s, self._monotonic = request_for, timeout_s, monotonic
        self._started: set[str] = set()
        self._running: list[_Cleanup] = []
        self._finished: list[CleanupResult] = []

    def start(self, name: str, silent: bool) -> None:
        """Start it, once for each host; `silent`: its agent may live, and then ends everything by itself."""
        if name in self._started:
            return
        self._started.add(name)
        request = self._request_for(name)
        try:
            command = self._by[name].run_command(request)
        except LaunchError as error:
            self._finished.append(CleanupResult(name, 0, _unreached(request, silent, str(error))))
            return
        self._running.append(_Cleanup(request, silent, command, self._monotonic() + self._timeout_s))

    def finished(self) -> list[CleanupResult]:
        running = []
        for cleanup in self._running:
            result = self._result(cleanup)
            if result is None:
                running.append(cleanup)
            else:
                self._finished.append(result)
        self._running = running
        finished, self._finished = self._finished, []
        return finished

    def _result(self, cleanup: _Cleanup) -> CleanupResult | None:
        # Polled before the log is read: the command writes its report before it ends.
        exited = cleanup.command.poll()
        name, log = cleanup.request.host, cleanup.request.log
        killed = killed_by_last_report(log)
        if killed is not None:
            text = (
                f"killed {killed} process{'' if killed == 1 else 'es'} still running there" if killed else "nothing was left running there"
            )
            return CleanupResult(name, killed, text)
        if exited is not None:
            lines = [line.strip() for line in tail_lines(log, REPORT_LINES) if line.strip()]
            why = f"{exited.text} ({lines[-1]})" if lines else exited.text
        elif self._monotonic() >= cleanup.until_m:
            cleanup.command.abandon()
            why = f"no answer within {self._timeout_s:.0f} s"
        else:
            return None
        return CleanupResult(name, 0, _unreached(cleanup.request, cleanup.silent, why))


def _unreached(request: StartRequest, silent: bool, why: str) -> str:
    by_agent = f"its agent ends it after {LEASE_S:.0f} s without a message"
    by_hand = f"processes that ignore TERM may run on until you run `{shlex.join(request.argv)}` there"
    return f"it could not be reached to end what is left there: {why}; {by_agent if silent else by_hand}"


def killed_by_last_report(log: Path) -> int | None:
    """`killed` of the last report in a host's start.log; None where there is none."""
    for line in reversed(tail_lines(log, REPORT_LINES)):
        if report := from_json_or_none(AgentReport, json_object(line)):
            return report.killed
    return None


class AgentGroup:
    """The connected agents of all hosts of one attempt."""

    def __init__(
        self,
        server: ControlServer,
        attempt: AttemptPaths,
        nodes: Sequence[Node],
        hostnames: Mapping[str, str],
        transports: Sequence[Transport] = (),
        cleanup: RemoteCleanup | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        close_timeout_s: float = AGENT_EXIT_TIMEOUT_S,
    ) -> None:
        """`hostnames`: name in the hostfile → the host's own name."""
        self._server, self._attempt, self._transports = server, attempt, tuple(transports)
        self._monotonic, self._close_timeout_s = monotonic, close_timeout_s
        self._cleanup, self._hostnames = cleanup, dict(hostnames)
        self._merger = ReportMerger(nodes, hostnames, waits_for_cleanup=cleanup is not None)
        self.views: Mapping[str, RendezvousView] = {}
        """How each host sees the rendezvous."""
        self._silent: set[str] = set()
        self._has_started = self._closed = False

    def start(self, orders: Mapping[str, tuple[AgentOrder, Environment | None]]) -> None:
        """Send each host its order and base environment; None for the host's own."""
        self._has_started = True
        for name, (order, env) in orders.items():
            self._server.send(name, {"kind": "go", "order": to_json(order), "env": None if env is None else dict(env)})

    @property
    def alive(self) -> bool:
        return not self._merger.is_over

    def poll(self) -> list[AgentReport]:
        return self._merge(self._server.poll())

    def wait(self, timeout_s: float) -> list[AgentReport]:
        until_m = self._monotonic() + timeout_s
        while self.alive:
            left_s = max(0.0, until_m - self._monotonic())
            reports = self._merge(self._server.wait(min(POLL_S, left_s)))
            if reports or left_s <= 0:
                return reports
        return []

    def stacks(self) -> None:
        self._merger.stacks_requested()
        self._send("stacks", self._merger.connected())

    def stop(self) -> None:
        self._send("stop", self._merger.connected())

    def kill(self) -> None:
        self._send("kill", self._merger.connected())

    def close(self) -> list[AgentReport]:
        if self._closed:
            return []
        self._closed = True
        reports = self._end_all() if self._has_started else []
        self._server.close()
        for transport in self._transports:
            transport.close(self._has_started)
        return reports

    def nodes(self) -> tuple[NodeRecord, ...]:
        records = self._merger.records(self._server.offset, self._server.clock_moved_s)
        return tuple(_with_view(record, self.views.get(record.name)) for record in records)

    def _end_all(self) -> list[AgentReport]:
        if self.alive:
            self.kill()
        reports = self._wait_until_over(self._close_timeout_s)
        for name in self._merger.connected():
            reports += self._node_lost(name, f"it did not end within {self._close_timeout_s:.0f} s of the kill order")
        return reports + self._wait_until_over(CLEANUP_TIMEOUT_S + POLL_S)

    def _wait_until_over(self, timeout_s: float) -> list[AgentReport]:
        reports: list[AgentReport] = []
        until_m = self._monotonic() + timeout_s
        while self.alive and self._monotonic() < until_m:
            reports += self.wait(until_m - self._monotonic())
        return reports

    def _send(self, command: str, names: Sequence[str]) -> None:
        for name in names:
            self._server.send(name, {"kind": "command", "command": command})

    def _merge(self, messages: Sequence[tuple[str, Message]]) -> list[AgentReport]:
        """Merged reports from new messages, and those due by now."""
        reports: list[AgentReport] = []
        for name, message in messages:
            if message["kind"] == "lost":
                reports += self._connection_lost(name, message)
            elif message["kind"] == "report" and (report := from_json_or_none(AgentReport, message.get("report"))):
                reports += self._merger.add(name, report, time.time(), self._monotonic())
        if self._merger.is_stop_due(self._monotonic()):
            self._send("stop", self._merger.running())
        return reports + self._clean_up()

    def _connection_lost(self, name: str, message: Message) -> list[AgentReport]:
        # The log of a silent host does not explain the silence.
        silent, why = message.get("silent") is True, str(message.get("why"))
        if silent:
            self._silent.add(name)
        return self._node_lost(name, why if silent else self._with_log_tail(name, why), silent)

    def _node_lost(self, name: str, why: str, silent: bool = False) -> list[AgentReport]:
        return self._merger.node_lost(name, why, time.time(), self._monotonic(), silent)

    def _clean_up(self) -> list[AgentReport]:
        """Clean up lost hosts, and report it."""
        if self._cleanup is None:
            return []
        for name in self._merger.awaiting_cleanup():
            if self._may_clean_up(name):
                self._cleanup.start(name, name in self._silent)
        reports: list[AgentReport] = []
        for result in self._cleanup.finished():
            reports += self._merger.cleaned_up(result.name, result.killed, result.text, time.time(), self._monotonic())
        return reports

    def _may_clean_up(self, name: str) -> bool:
        """Not while another node of the run lives on the same host. A silent host may come back, or end by itself."""
        connected = self._merger.connected()
        shared = any(self._hostnames.get(other) == self._hostnames.get(name) for other in connected)
        return not connected or (name not in self._silent and not shared)

    def _with_log_tail(self, name: str, why: str) -> str:
        """`why` with the exit of its transport and the end of its log."""
        with contextlib.suppress(OSError):
            exits = [found[name].text for transport in self._transports if name in (found := transport.exits())]
            tail = " / ".join(tail_lines(self._attempt.node(name).agent_log, LOG_TAIL_LINES))
            return "; ".join([why, *exits, *([f"end of its log: {tail}"] if tail else [])])
        return why
