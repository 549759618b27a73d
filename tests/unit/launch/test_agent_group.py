"""The agents of many hosts: their reports merged, hosts lost, and what they left ended."""

from __future__ import annotations

import json
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.control_connection.protocol import ClockOffset, ControlClient, ControlEndpoint
from seatrial.core.control_connection.server import ControlServer
from seatrial.core.errors import HostError
from seatrial.core.paths import AttemptPaths
from seatrial.launch.agent_group import (
    CLEANUP_TIMEOUT_S,
    AgentGroup,
    CleanupResult,
    RemoteCleanup,
    ReportMerger,
    killed_by_last_report,
)
from seatrial.launch.transports import Exit, RemoteCommand, StartRequest, describe_exit
from seatrial.records.codec import to_json
from seatrial.records.launch import AGENT_GOT_TERM, FAILED_GRACE_S, AgentOrder, AgentReport, Command, Node
from tests.facts import states
from tests.unit.launch.factory import reports_until, until_over

NAMES = ("node0", "node1", "node2")
MERGED = [Node(name=name, node_rank=rank, ranks=2, first_rank=2 * rank) for rank, name in enumerate(NAMES)]


@pytest.fixture
def merger() -> ReportMerger:
    return ReportMerger(MERGED, {"node0": "gpu-17"})


def _report_from(merger: ReportMerger, name: str, kind: str, at_s: float = 0.0, **facts: Any) -> list[AgentReport]:
    return merger.add(name, AgentReport(kind=kind, t=1.0, m=99.0, **facts), 1000.0 + at_s, at_s)


def _kinds(reports: list[AgentReport]) -> list[str]:
    return [report.kind for report in reports]


def test_one_good_run(merger: ReportMerger) -> None:
    (first,) = _report_from(merger, "node1", "started", pid=7)
    assert (first.kind, first.host, first.pid, first.t, first.m) == ("started", "node1", 7, 1000.0, 0.0)
    assert _report_from(merger, "node0", "exited", returncode=0) == _report_from(merger, "node1", "exited", returncode=0) == []
    (exited,) = _report_from(merger, "node2", "exited", returncode=0, at_s=5.0)
    assert (exited.kind, exited.returncode, exited.m) == ("exited", 0, 5.0)
    assert _report_from(merger, "node0", "gone", killed=1) == _report_from(merger, "node1", "gone", killed=2) == []
    (gone,) = _report_from(merger, "node2", "gone")
    assert (gone.kind, gone.killed) == ("gone", 3)
    assert merger.is_over and merger.connected() == [] and not merger.is_stop_due(1e9)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [((0, 0, 0), 0), ((1, -9, 1), -9), ((-15, 1, 0), -15), ((7, 9, 1), 7), ((None, 0, 0), None)],
)
def test_the_most_informative_code_is_the_runs(merger: ReportMerger, codes: tuple[int | None, ...], expected: int | None) -> None:
    reports = [report for name, code in zip(NAMES, codes, strict=True) for report in _report_from(merger, name, "exited", returncode=code)]
    assert [report.returncode for report in reports] == [expected]


def test_a_failed_host_ends_the_others_after_a_while(merger: ReportMerger) -> None:
    _report_from(merger, "node1", "exited", returncode=3, at_s=10.0)
    assert not merger.is_stop_due(10.0 + FAILED_GRACE_S - 0.1)
    assert merger.is_stop_due(10.0 + FAILED_GRACE_S)
    assert merger.running() == ["node0", "node2"]
    assert not merger.is_stop_due(1e9), "only once"
    _report_from(merger, "node0", "exited", returncode=-15, at_s=20.0)
    assert not merger.is_stop_due(1e9)


def test_a_host_that_ends_well_before_the_others_ends_nobody(merger: ReportMerger) -> None:
    _report_from(merger, "node1", "exited", returncode=0)
    assert not merger.is_stop_due(1e9)


def test_a_lost_host_is_reported_and_ends_the_others(merger: ReportMerger) -> None:
    (lost,) = merger.node_lost("node2", "no heartbeat from it for 21 s", 1030.0, 30.0)
    assert (lost.kind, lost.host, lost.detail) == ("node_lost", "node2", "no heartbeat from it for 21 s")
    assert merger.is_stop_due(30.0 + FAILED_GRACE_S)
    _report_from(merger, "node0", "exited", returncode=0)
    (exited,) = _report_from(merger, "node1", "exited", returncode=0)
    assert exited.returncode is None, "nobody knows how node2's ended"
    assert exited.detail == "node2: no heartbeat from it for 21 s"
    _report_from(merger, "node0", "gone")
    assert _kinds(_report_from(merger, "node1", "gone")) == ["gone"]
    assert merger.node_lost("node2", "again", 0.0, 0.0) == [] and _report_from(merger, "node2", "gone") == []


def test_gone_waits_for_the_cleanup_of_a_lost_host() -> None:
    merger = ReportMerger(MERGED[:2], {}, waits_for_cleanup=True)
    assert _kinds(merger.node_lost("node1", "it went", 0.0, 0.0)) == ["node_lost"] and merger.awaiting_cleanup() == ["node1"]
    assert _kinds(_report_from(merger, "node0", "exited", returncode=-15)) == ["exited"], "how it ended is known already"
    assert _report_from(merger, "node0", "gone", killed=1) == [] and not merger.is_over
    (gone,) = merger.cleaned_up("node1", 3, "killed 3 processes", 0.0, 0.0)
    assert (gone.kind, gone.killed, merger.is_over, merger.awaiting_cleanup()) == ("gone", 4, True, [])
    record = merger.records(lambda name: None)[1]
    assert (record.ended, record.killed, record.detail) == ("lost", 3, "it went; killed 3 processes")


def test_a_connection_that_ends_after_the_last_report_is_no_loss(merger: ReportMerger) -> None:
    _report_from(merger, "node0", "exited", returncode=0)
    _report_from(merger, "node0", "gone")
    assert merger.node_lost("node0", "the peer closed the connection", 0.0, 0.0) == []
    assert not merger.is_stop_due(1e9)


def test_all_hosts_lost_is_an_end_too(merger: ReportMerger) -> None:
    reports = [report for name in NAMES for report in merger.node_lost(name, "cut", 0.0, 0.0)]
    assert _kinds(reports) == ["node_lost", "node_lost", "node_lost", "exited", "gone"]
    assert reports[-2].returncode is None


def test_an_agent_that_reports_its_failure_is_lost(merger: ReportMerger) -> None:
    (lost,) = _report_from(merger, "node1", "lost", detail="its agent failed: KeyError")
    assert (lost.kind, lost.host) == ("node_lost", "node1")


def test_stacks_are_there_when_all_that_live_have_answered(merger: ReportMerger) -> None:
    _report_from(merger, "node0", "exited", returncode=0)
    _report_from(merger, "node0", "gone")
    merger.stacks_requested()
    assert _report_from(merger, "node1", "stacks", detail="by signal: rank 2") == []
    reports = merger.node_lost("node2", "cut", 0.0, 0.0)
    assert _kinds(reports) == ["node_lost", "stacks"]
    assert reports[1].detail == "node1: by signal: rank 2"
    assert _report_from(merger, "node1", "stacks") == [], "the request was answered already"


def test_an_agent_that_was_sent_term_is_reported_by_that_very_text(merger: ReportMerger) -> None:
    _report_from(merger, "node0", "exited", returncode=-15, detail=AGENT_GOT_TERM)
    merger.node_lost("node1", "cut", 0.0, 0.0)
    (exited,) = _report_from(merger, "node2", "exited", returncode=1)
    assert exited.detail == AGENT_GOT_TERM


def test_what_is_known_of_each_host(merger: ReportMerger) -> None:
    _report_from(merger, "node0", "started")
    _report_from(merger, "node0", "exited", returncode=9, oom_kills="oom_kill 0 → 1")
    _report_from(merger, "node0", "gone", killed=4, detail="slow to die")
    merger.node_lost("node2", "cut", 0.0, 0.0)
    offsets = {"node0": ClockOffset(offset_s=3600.0, round_trip_s=0.001)}
    first, second, third = merger.records(offsets.get)
    assert (first.host, first.returncode, first.ended, first.killed, first.clock_offset_s) == ("gpu-17", 9, "exited", 4, 3600.0)
    assert (first.oom_kills, first.detail) == ("oom_kill 0 → 1", "slow to die")
    assert (second.ended, second.clock_offset_s, second.first_rank) == ("not_started", None, 2)
    assert (third.ended, third.detail, third.returncode) == ("lost", "cut", None)


def test_who_was_silent_is_reported_by_a_field(merger: ReportMerger) -> None:
    (closed,) = merger.node_lost("node1", "it closed; end of its log: no heartbeat from the harness for 21 s", 0.0, 0.0)
    (silent,) = merger.node_lost("node2", "any reason", 0.0, 0.0, silent=True)
    assert (closed.silent, silent.silent) == (False, True)


@pytest.mark.parametrize(
    ("reported", "moved_s", "detail"),
    [
        ("", 0.9, ""),
        ("", 3600.0, "its clock moved by 3600.0 s against the harness's during the run"),
        ("slow to die", 2.0, "slow to die; its clock moved by 2.0 s against the harness's during the run"),
        (AGENT_GOT_TERM, 2.0, AGENT_GOT_TERM),
    ],
)
def test_a_clock_that_moved_is_reported(merger: ReportMerger, reported: str, moved_s: float, detail: str) -> None:
    _report_from(merger, "node0", "exited", returncode=0, detail=reported)
    first, second, _ = merger.records(lambda name: None, {"node0": moved_s, "node1": 0.0, "node2": 0.0}.__getitem__)
    assert (first.detail, second.detail) == (detail, "")


def test_reports_of_an_unexpected_node_are_skipped(merger: ReportMerger) -> None:
    assert _report_from(merger, "stranger", "gone") == [] and merger.node_lost("stranger", "x", 0.0, 0.0) == []


def test_codes_of_hosts_that_were_stopped_do_not_count_where_another_failed_by_itself(merger: ReportMerger) -> None:
    for name in NAMES:
        _report_from(merger, name, "started", pid=1)
    _report_from(merger, "node0", "exited", returncode=0)
    _report_from(merger, "node2", "exited", returncode=1, at_s=1.0)
    assert merger.is_stop_due(1.0 + FAILED_GRACE_S)
    (exited,) = _report_from(merger, "node1", "exited", returncode=-9, at_s=20.0)
    assert (exited.returncode, exited.host) == (1, "node2")


NUM_HOSTS = 64
HOSTS = tuple(f"n{number:02}" for number in range(NUM_HOSTS))
NODES = tuple(Node(name=name, node_rank=rank, ranks=8, first_rank=8 * rank) for rank, name in enumerate(HOSTS))
ORDER = AgentOrder(command=Command(argv=("true",), env={}, cwd="/"), attempt_folder="/out")

Behaviour = Callable[["Simulated", str], None]
"""Called with an agent and the command it received: `go`, `stacks`, `stop` or `kill`."""


class Simulated:
    """One agent: a real connection and the commands it has received."""

    def __init__(self, connection: ControlClient, name: str) -> None:
        self.connection, self.name = connection, name
        self.heard: list[str] = []
        self.go: Mapping[str, Any] = {}
        self.is_silent = False

    def send(self, kind: str, **facts: Any) -> None:
        report = AgentReport(kind=kind, t=time.time(), m=time.monotonic(), host=self.name, **facts)
        self.connection.send({"kind": "report", "report": to_json(report)})

    def end(self, returncode: int) -> None:
        self.send("exited", returncode=returncode)
        self.send("gone")


def obeys(agent: Simulated, command: str) -> None:
    """Starts at once, ends when stopped, answers for stacks."""
    if command == "go":
        agent.send("started", pid=1)
    elif command == "stacks":
        agent.send("stacks", detail="all")
    elif agent.heard.count(command) == 1:
        agent.end(-15 if command == "stop" else -9)


def ends_well(agent: Simulated, command: str) -> None:
    if command == "go":
        agent.send("started", pid=1)
        agent.end(0)


class Hosts:
    """All simulated agents in one loop of a thread, as a stand-in for 64 machines."""

    def __init__(self, server: ControlServer, behaviours: Mapping[str, Behaviour], default: Behaviour) -> None:
        self._behaviours, self._default = behaviours, default
        call = {name: ControlEndpoint(addresses=("127.0.0.1",), port=server.port, token="secret", node=name) for name in HOSTS}
        self.agents = {name: Simulated(ControlClient.connect(call[name], {"host": f"host-{name}"}), name) for name in HOSTS}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            listening = {
                agent.connection.fileno(): agent for agent in self.agents.values() if not agent.is_silent and not _is_closed(agent)
            }
            ready, _, _ = select.select(list(listening), [], [], 0.05)
            for handle in ready:
                self._hear(listening[handle])

    def _hear(self, agent: Simulated) -> None:
        for message in agent.connection.receive(time.monotonic()):
            command = "go" if message["kind"] == "go" else str(message.get("command"))
            agent.go = message if command == "go" else agent.go
            agent.heard.append(command)
            self._behaviours.get(agent.name, self._default)(agent, command)

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
        for agent in self.agents.values():
            agent.connection.close()


def _is_closed(agent: Simulated) -> bool:
    return agent.connection.fileno() < 0


@contextmanager
def running(
    folder: Path, behaviours: Mapping[str, Behaviour] | None = None, default: Behaviour = ends_well, lease_s: float = 20.0, **more: Any
) -> Iterator[tuple[AgentGroup, Hosts]]:
    with ControlServer("secret", HOSTS, lease_s=lease_s) as server:
        hosts = Hosts(server, behaviours or {}, default)
        group = AgentGroup(server, AttemptPaths(folder), NODES, {name: f"host-{name}" for name in HOSTS}, **more)
        group.start({name: (ORDER, {"A": name}) for name in HOSTS})
        try:
            yield group, hosts
        finally:
            group.close()
            hosts.close()


def _until(group: AgentGroup, kind: str) -> list[AgentReport]:
    return reports_until(group, lambda reports: any(report.kind == kind for report in reports))


def test_a_good_run_of_64_hosts_is_that_of_one(tmp_path: Path) -> None:
    with running(tmp_path) as (group, hosts):
        reports = until_over(group)
        records = group.nodes()
    assert sorted(report.host for report in reports if report.kind == "started") == list(HOSTS)
    assert [(report.kind, report.returncode) for report in reports if report.kind != "started"] == [("exited", 0), ("gone", None)]
    assert [(record.name, record.host, record.returncode, record.ended) for record in records] == [
        (name, f"host-{name}", 0, "exited") for name in HOSTS
    ]
    assert all(record.clock_offset_s is not None and abs(record.clock_offset_s) < 5.0 for record in records)
    assert hosts.agents["n07"].go["env"] == {"A": "n07"} and hosts.agents["n07"].go["order"]["attempt_folder"] == "/out"
    assert all(agent.heard == ["go"] for agent in hosts.agents.values()), "an ended agent gets no order"


def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.agent_group.FAILED_GRACE_S", 0.0)


def test_one_host_fails_and_the_others_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_once(monkeypatch)

    def fails(agent: Simulated, command: str) -> None:
        if command == "go":
            agent.send("started", pid=1)
            agent.end(137)

    with running(tmp_path, {"n13": fails}, default=obeys) as (group, hosts):
        reports = until_over(group)
        records = {record.name: record for record in group.nodes()}
    assert [report.returncode for report in reports if report.kind == "exited"] == [137]
    assert {name for name, agent in hosts.agents.items() if "stop" in agent.heard} == {*HOSTS} - {"n13"}
    assert (records["n13"].returncode, records["n14"].returncode) == (137, -15)


def test_a_host_that_disconnects_is_reported_with_its_log_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_once(monkeypatch)
    own = AttemptPaths(tmp_path).node("n05")
    own.folder.mkdir(parents=True)
    own.agent_log.write_text("MemoryError\n")

    def goes(agent: Simulated, command: str) -> None:
        agent.connection.close()

    with running(tmp_path, {"n05": goes}, default=obeys) as (group, _):
        reports = until_over(group)
    assert [(report.host, report.detail) for report in reports if report.kind == "node_lost"] == [
        ("n05", "the peer closed the connection; end of its log: MemoryError")
    ]


class FakeCommand:
    def __init__(self) -> None:
        self.exit: Exit | None = None
        self.abandoned = False

    def poll(self) -> Exit | None:
        return self.exit

    def abandon(self) -> None:
        self.abandoned = True


class FakeTransport:
    """Runs cleanup commands that print `output`, or fail to start with `error`; no agent was started by it."""

    kind = "simulated"

    def __init__(self, output: str | None = None, error: str = "") -> None:
        self.output, self.error = output, error
        self.commands: dict[str, FakeCommand] = {}

    def start(self, requests: Sequence[StartRequest]) -> None:
        raise AssertionError

    def exits(self) -> dict[str, Exit]:
        return {}

    def run_command(self, request: StartRequest) -> RemoteCommand:
        if self.error:
            raise HostError(self.error, host=request.host, cause="node_not_started")
        assert request.host not in self.commands
        if self.output is not None:
            request.log.write_text(self.output)
        return self.commands.setdefault(request.host, FakeCommand())

    def close(self, after_run: bool = True) -> None:
        raise AssertionError


def cleanup_by(transport: FakeTransport, folder: Path, timeout_s: float = 10.0) -> RemoteCleanup:
    return RemoteCleanup([(transport, HOSTS)], lambda name: StartRequest(host=name, argv=("end",), log=folder / name), timeout_s)


def test_who_does_not_end_at_the_close_is_ended_by_the_other_way(tmp_path: Path) -> None:
    transport = FakeTransport()
    with running(
        tmp_path, {"n01": lambda agent, command: None}, default=obeys, close_timeout_s=0.5, cleanup=cleanup_by(transport, tmp_path, 0.0)
    ) as (group, _):
        group.close()
        record = group.nodes()[1]
    assert transport.commands["n01"].abandoned and not group.alive
    assert states(record.detail, "could not be reached", "no answer within 0 s")


def test_a_silent_host_is_lost_and_cleaned_up_once_the_others_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_once(monkeypatch)
    # Fifteen heartbeats in a lease: on a busy machine no other host counts as silent.
    monkeypatch.setattr("seatrial.core.control_connection.server.HEARTBEAT_EVERY_S", 0.2)
    transport = FakeTransport()
    others_lived: list[bool] = []

    def stays(agent: Simulated, command: str) -> None:
        if command == "stop":
            others_lived.append(not transport.commands)
        obeys(agent, command)

    def falls_silent(agent: Simulated, command: str) -> None:
        agent.send("started", pid=1)
        agent.is_silent = True

    cleanup = cleanup_by(transport, tmp_path, 0.0)
    with running(tmp_path, {"n40": falls_silent}, default=stays, lease_s=3.0, cleanup=cleanup) as (group, _):
        reports = until_over(group)
        record = group.nodes()[40]
    assert [report.kind for report in reports if report.kind != "started"] == ["node_lost", "exited", "gone"]
    (lost,) = [report for report in reports if report.kind == "node_lost"]
    assert lost.host == "n40" and lost.silent
    assert (record.ended, record.returncode) == ("lost", None)
    assert len(others_lived) == NUM_HOSTS - 1 and all(others_lived) and transport.commands["n40"].abandoned
    assert record.detail.endswith("its agent ends it after 20 s without a message")


def test_stacks_of_all_are_one_report(tmp_path: Path) -> None:
    with running(tmp_path, default=obeys) as (group, hosts):
        group.stacks()
        reports = _until(group, "stacks")
        assert sum(report.kind == "stacks" for report in reports) == 1
        assert all("stacks" in agent.heard for agent in hosts.agents.values())
        group.stop()
        assert [report.kind for report in until_over(group) if report.kind != "started"] == ["exited", "gone"]


def test_closing_kills_what_runs(tmp_path: Path) -> None:
    with running(tmp_path, default=obeys) as (group, hosts):
        group.close()
        assert all(agent.heard[-1] == "kill" for agent in hosts.agents.values())
        assert not group.alive and group.close() == [] and group.wait(0.0) == []


def test_what_is_no_report_is_skipped(tmp_path: Path) -> None:
    def babbles(agent: Simulated, command: str) -> None:
        agent.connection.send({"kind": "report", "report": {"kind": 5}})
        agent.connection.send({"kind": "report"})
        agent.connection.send({"kind": "greeting"})
        ends_well(agent, command)

    with running(tmp_path, default=babbles) as (group, _):
        assert until_over(group)[-1].kind == "gone"


ARGV = ("python", "--end", "/my out/attempt-1")


class CleanupLab:
    """Cleanups of three hosts, with a clock that is a number."""

    def __init__(self, folder: Path, error: str = "") -> None:
        self.folder, self.transport, self.now = folder, FakeTransport(error=error), 0.0
        self.cleanup = RemoteCleanup([(self.transport, ("n1", "n2", "n3"))], self.request_for, monotonic=lambda: self.now)

    def request_for(self, name: str) -> StartRequest:
        return StartRequest(host=name, argv=ARGV, log=self.folder / name)

    def prints(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)


def _report(killed: int) -> str:
    return f"Warning: a banner\n{json.dumps(to_json(AgentReport(kind='gone', t=0.0, killed=killed)))}\n"


def test_all_at_once_and_each_result_once(tmp_path: Path) -> None:
    lab = CleanupLab(tmp_path)
    for name in ("n1", "n2", "n3", "n1"):
        lab.cleanup.start(name, silent=False)
    assert list(lab.transport.commands) == ["n1", "n2", "n3"] and lab.cleanup.finished() == []
    lab.prints("n2", _report(0))
    assert lab.cleanup.finished() == [CleanupResult("n2", 0, "nothing was left running there")]
    lab.prints("n3", _report(1))
    lab.prints("n1", _report(12))
    assert lab.cleanup.finished() == [
        CleanupResult("n1", 12, "killed 12 processes still running there"),
        CleanupResult("n3", 1, "killed 1 process still running there"),
    ]
    lab.now = 1e9
    assert lab.cleanup.finished() == []


def test_a_host_that_does_not_answer_times_out(tmp_path: Path) -> None:
    lab = CleanupLab(tmp_path)
    lab.cleanup.start("n1", silent=True)
    lab.now = CLEANUP_TIMEOUT_S - 0.1
    assert lab.cleanup.finished() == []
    lab.now = CLEANUP_TIMEOUT_S
    (result,) = lab.cleanup.finished()
    assert (result.name, result.killed, lab.transport.commands["n1"].abandoned) == ("n1", 0, True)
    assert "no answer within 10 s; its agent ends it after 20 s" in result.text


def test_an_ssh_that_fails_is_reported_with_its_text_and_what_to_do(tmp_path: Path) -> None:
    lab = CleanupLab(tmp_path)
    lab.cleanup.start("n1", silent=False)
    lab.prints("n1", "ssh: connect to host n1 port 22: No route to host\r\n")
    lab.transport.commands["n1"].exit = describe_exit("ssh", 255)
    (result,) = lab.cleanup.finished()
    assert states(result.text, "exit code 255", "ssh: connect to host n1 port 22: No route to host")
    assert "`python --end '/my out/attempt-1'`" in result.text


def test_what_cannot_even_be_tried_is_reported(tmp_path: Path) -> None:
    lab = CleanupLab(tmp_path, error="the command on n1 has ended")
    lab.cleanup.start("n1", silent=False)
    (result,) = lab.cleanup.finished()
    assert (result.name, result.killed) == ("n1", 0) and "the command on n1 has ended" in result.text


@pytest.mark.parametrize("text", ["", "{}\n", "[" * 5000, "{" * 5000])
def test_what_is_no_report_counts_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    assert killed_by_last_report(tmp_path / "log") is None and killed_by_last_report(tmp_path / "none") is None
