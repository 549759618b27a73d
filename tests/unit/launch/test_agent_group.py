"""64 hosts: real lines over loopback to simulated agents, which do what they are told to do in each test."""

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

from seatrial.launch.agent_group import AgentGroup
from seatrial.launch.transports.leftovers import Leftovers
from seatrial.launch.transports.transport import Ended, Start
from seatrial.line.caller import Caller
from seatrial.line.switchboard import Switchboard
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.command import AgentOrder, AgentReport, Command, Node
from seatrial.records.line import Call
from tests.unit.launch.factory import PATIENCE_S, until_over

NUM_HOSTS = 64
NAMES = tuple(f"n{number:02}" for number in range(NUM_HOSTS))
NODES = tuple(Node(name=name, node_rank=rank, ranks=8, first_rank=8 * rank) for rank, name in enumerate(NAMES))
ORDER = AgentOrder(command=Command(argv=("true",), env={}, cwd="/"), attempt_folder="/out")

Behaviour = Callable[["Simulated", str], None]
"""Told with an agent and what it hears: `go`, `stacks`, `stop` or `kill`."""


class Simulated:
    """One agent: a real line and what it has heard."""

    def __init__(self, caller: Caller, name: str) -> None:
        self.caller, self.name = caller, name
        self.heard: list[str] = []
        self.go: Mapping[str, Any] = {}
        self.is_silent = False

    def say(self, kind: str, **facts: Any) -> None:
        report = AgentReport(kind=kind, t=time.time(), m=time.monotonic(), host=self.name, **facts)
        self.caller.send({"kind": "report", "report": to_json(report)})

    def end(self, returncode: int) -> None:
        self.say("exited", returncode=returncode)
        self.say("gone")


def obeys(agent: Simulated, word: str) -> None:
    """Starts at once, ends well when told to stop, answers for stacks."""
    if word == "go":
        agent.say("started", pid=1)
    elif word == "stacks":
        agent.say("stacks", detail="all")
    elif agent.heard.count(word) == 1:
        agent.end(-15 if word == "stop" else -9)


def ends_well(agent: Simulated, word: str) -> None:
    if word == "go":
        agent.say("started", pid=1)
        agent.end(0)


class Hosts:
    """All simulated agents in one loop of a thread, as a stand-in for 64 machines."""

    def __init__(self, board: Switchboard, behaviours: Mapping[str, Behaviour], default: Behaviour) -> None:
        self._behaviours, self._default = behaviours, default
        call = {name: Call(addresses=("127.0.0.1",), port=board.port, token="secret", node=name) for name in NAMES}
        self.agents = {name: Simulated(Caller.connect(call[name], {"host": f"host-{name}"}), name) for name in NAMES}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            listening = {agent.caller.fileno(): agent for agent in self.agents.values() if not agent.is_silent and not _is_closed(agent)}
            ready, _, _ = select.select(list(listening), [], [], 0.05)
            for handle in ready:
                self._hear(listening[handle])

    def _hear(self, agent: Simulated) -> None:
        for message in agent.caller.receive(time.monotonic()):
            word = "go" if message["kind"] == "go" else str(message.get("word"))
            agent.go = message if word == "go" else agent.go
            agent.heard.append(word)
            self._behaviours.get(agent.name, self._default)(agent, word)

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
        for agent in self.agents.values():
            agent.caller.close()


def _is_closed(agent: Simulated) -> bool:
    return agent.caller.fileno() < 0


@contextmanager
def running(
    folder: Path, behaviours: Mapping[str, Behaviour] | None = None, default: Behaviour = ends_well, lease_s: float = 20.0, **more: Any
) -> Iterator[tuple[AgentGroup, Hosts]]:
    with Switchboard("secret", NAMES, lease_s=lease_s) as board:
        hosts = Hosts(board, behaviours or {}, default)
        group = AgentGroup(board, AttemptPaths(folder), NODES, {name: f"host-{name}" for name in NAMES}, **more)
        group.go({name: (ORDER, {"A": name}) for name in NAMES})
        try:
            yield group, hosts
        finally:
            group.close()
            hosts.close()


def _until(group: AgentGroup, kind: str) -> list[AgentReport]:
    until_m, said = time.monotonic() + PATIENCE_S, []
    while not any(report.kind == kind for report in said):
        said += group.wait(1.0)
        assert time.monotonic() < until_m, f"only {said}"
    return said


def test_a_good_run_of_64_hosts_is_that_of_one(tmp_path: Path) -> None:
    with running(tmp_path) as (group, hosts):
        said = until_over(group)
        records = group.nodes()
    assert sorted(report.host for report in said if report.kind == "started") == list(NAMES)
    assert [(report.kind, report.returncode) for report in said if report.kind != "started"] == [("exited", 0), ("gone", None)]
    assert [(record.name, record.host, record.returncode, record.ended) for record in records] == [
        (name, f"host-{name}", 0, "exited") for name in NAMES
    ]
    assert all(record.clock_offset_s is not None and abs(record.clock_offset_s) < 5.0 for record in records)
    assert hosts.agents["n07"].go["env"] == {"A": "n07"} and hosts.agents["n07"].go["order"]["attempt_folder"] == "/out"
    assert all(agent.heard == ["go"] for agent in hosts.agents.values()), "who has ended is told nothing"


def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.fold.FAILED_NODE_GRACE_S", 0.0)


def test_one_host_fails_and_the_others_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_once(monkeypatch)

    def fails(agent: Simulated, word: str) -> None:
        if word == "go":
            agent.say("started", pid=1)
            agent.end(137)

    with running(tmp_path, {"n13": fails}, default=obeys) as (group, hosts):
        said = until_over(group)
        records = {record.name: record for record in group.nodes()}
    assert [report.returncode for report in said if report.kind == "exited"] == [137]
    assert {name for name, agent in hosts.agents.items() if "stop" in agent.heard} == {*NAMES} - {"n13"}
    assert (records["n13"].returncode, records["n14"].returncode) == (137, -15)


def test_one_host_falls_silent_and_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_once(monkeypatch)

    def falls_silent(agent: Simulated, word: str) -> None:
        agent.say("started", pid=1)
        agent.is_silent = True

    # Fifteen beats in a lease: on a busy machine no other host is taken for silent.
    monkeypatch.setattr("seatrial.line.switchboard.BEAT_EVERY_S", 0.2)
    with running(tmp_path, {"n40": falls_silent}, default=obeys, lease_s=3.0) as (group, _):
        said = until_over(group)
        record = group.nodes()[40]
    (lost,) = [report for report in said if report.kind == "node_lost"]
    assert lost.host == "n40" and "nothing was heard of it" in lost.detail and lost.silent
    assert [report.kind for report in said if report.kind != "started"] == ["node_lost", "exited", "gone"]
    assert (record.ended, record.returncode) == ("lost", None)


def test_one_host_goes_and_its_last_words_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_once(monkeypatch)
    own = AttemptPaths(tmp_path).node("n05")
    own.folder.mkdir(parents=True)
    own.agent_log.write_text("MemoryError\n")

    def goes(agent: Simulated, word: str) -> None:
        agent.caller.close()

    with running(tmp_path, {"n05": goes}, default=obeys) as (group, _):
        said = until_over(group)
    assert [(report.host, report.detail) for report in said if report.kind == "node_lost"] == [
        ("n05", "the other side closed it; its last words: MemoryError")
    ]


def test_last_words_about_silence_are_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_once(monkeypatch)
    own = AttemptPaths(tmp_path).node("n05")
    own.folder.mkdir(parents=True)
    own.agent_log.write_text("nothing was heard of the harness for 21 s\n")
    with running(tmp_path, {"n05": lambda agent, word: agent.caller.close()}, default=obeys) as (group, _):
        said = until_over(group)
    (lost,) = [report for report in said if report.kind == "node_lost"]
    assert "its last words: nothing was heard" in lost.detail and not lost.silent


def test_when_the_harness_s_own_end_fails_all_are_lost(tmp_path: Path) -> None:
    with running(tmp_path, default=obeys) as (group, _):
        # A message that cannot be written as JSON.
        group._board.send("n00", {"kind": "order", "word": object()})
        said = until_over(group)
    lost = [report for report in said if report.kind == "node_lost"]
    assert {report.host for report in lost} == {*NAMES} and not any(report.silent for report in lost)
    assert all("the harness's own end of all lines failed (TypeError: " in report.detail for report in lost)
    assert said[-1].kind == "gone"


class _Errand:
    def __init__(self, errands: list[str]) -> None:
        self._errands = errands

    def ended(self) -> Ended | None:
        return None

    def drop(self) -> None:
        self._errands.append("dropped")


class _Transport:
    """Answers every errand as it is told to; no agent was started by it."""

    kind = "simulated"

    def __init__(self, log: Path, answer: str = "") -> None:
        self.log, self.answer = log, answer
        self.errands: list[str] = []

    def start(self, starts: Sequence[Start]) -> None:
        raise AssertionError

    def ended(self) -> dict[str, Ended]:
        return {}

    def errand(self, start: Start) -> _Errand:
        self.errands.append(start.host)
        start.log.write_text(self.answer)
        return _Errand(self.errands)

    def close(self, after_run: bool = True) -> None:
        raise AssertionError


def _leftovers(transport: _Transport, patience_s: float = 10.0) -> Leftovers:
    return Leftovers([(transport, NAMES)], lambda name: Start(host=name, words=("end",), log=transport.log), patience_s)


def test_what_a_host_that_went_has_left_is_ended_before_all_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_once(monkeypatch)
    report = to_json(AgentReport(kind="gone", t=0.0, killed=3))
    transport = _Transport(tmp_path / "log", json.dumps(report))

    def goes(agent: Simulated, word: str) -> None:
        agent.caller.close()

    with running(tmp_path, {"n05": goes}, default=obeys, leftovers=_leftovers(transport)) as (group, _):
        gone = until_over(group)[-1]
        record = group.nodes()[5]
    assert transport.errands == ["n05"]
    assert (gone.kind, gone.killed, record.killed) == ("gone", 3, 3)
    assert record.detail == "the other side closed it; killed 3 processes that ran on there"


def test_who_does_not_end_at_the_close_is_ended_by_the_other_way(tmp_path: Path) -> None:
    transport = _Transport(tmp_path / "log")
    with running(
        tmp_path, {"n01": lambda agent, word: None}, default=obeys, close_patience_s=2.0, leftovers=_leftovers(transport, 0.0)
    ) as (group, _):
        group.close()
        record = group.nodes()[1]
    assert transport.errands == ["n01", "dropped"] and not group.alive
    assert "it could not be reached to end what is left there: no answer within 0 s" in record.detail


def test_a_silent_host_is_cared_for_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_once(monkeypatch)
    monkeypatch.setattr("seatrial.line.switchboard.BEAT_EVERY_S", 0.2)
    transport = _Transport(tmp_path / "log")
    others_lived: list[bool] = []

    def stays(agent: Simulated, word: str) -> None:
        if word == "stop":
            others_lived.append(not transport.errands)
        obeys(agent, word)

    def falls_silent(agent: Simulated, word: str) -> None:
        agent.is_silent = True

    with running(tmp_path, {"n40": falls_silent}, default=stays, lease_s=3.0, leftovers=_leftovers(transport, 0.0)) as (group, _):
        until_over(group)
        record = group.nodes()[40]
    assert len(others_lived) == NUM_HOSTS - 1 and all(others_lived) and transport.errands == ["n40", "dropped"]
    assert record.detail.endswith("its agent ends it when it hears nothing for 20 s")


def test_a_slow_host_is_waited_for(tmp_path: Path) -> None:
    def only_starts(agent: Simulated, word: str) -> None:
        agent.say("started", pid=1)

    with running(tmp_path, {"n63": only_starts}) as (group, hosts):
        until_m, started = time.monotonic() + PATIENCE_S, 0
        while started < NUM_HOSTS and time.monotonic() < until_m:
            reports = group.wait(0.2)
            assert not any(report.kind == "exited" for report in reports)
            started += sum(report.kind == "started" for report in reports)
        assert started == NUM_HOSTS and group.alive
        hosts.agents["n63"].end(0)
        assert [report.kind for report in until_over(group)] == ["exited", "gone"]


def test_stacks_of_all_are_one_report(tmp_path: Path) -> None:
    with running(tmp_path, default=obeys) as (group, hosts):
        group.stacks()
        said = _until(group, "stacks")
        assert sum(report.kind == "stacks" for report in said) == 1
        assert all("stacks" in agent.heard for agent in hosts.agents.values())
        group.stop()
        assert [report.kind for report in until_over(group) if report.kind != "started"] == ["exited", "gone"]


def test_closing_kills_what_runs(tmp_path: Path) -> None:
    with running(tmp_path, default=obeys) as (group, hosts):
        group.close()
        assert all(agent.heard[-1] == "kill" for agent in hosts.agents.values())
        assert not group.alive and group.close() == [] and group.wait(0.0) == []


def test_who_does_not_end_at_the_close_is_lost(tmp_path: Path) -> None:
    with running(tmp_path, {"n01": lambda agent, word: None}, default=obeys, close_patience_s=2.0) as (group, _):
        said = group.close()
        record = group.nodes()[1]
    assert "n01" in [report.host for report in said if report.kind == "node_lost"]
    assert "did not end within 2 s" in record.detail


def test_what_is_no_report_is_passed_over(tmp_path: Path) -> None:
    def babbles(agent: Simulated, word: str) -> None:
        agent.caller.send({"kind": "report", "report": {"kind": 5}})
        agent.caller.send({"kind": "report"})
        agent.caller.send({"kind": "greeting"})
        ends_well(agent, word)

    with running(tmp_path, default=babbles) as (group, _):
        assert until_over(group)[-1].kind == "gone"
