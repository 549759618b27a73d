"""A campaign without ssh over loopback: node 0's server, the commands of the other nodes, and the doctor's queries to all of them.

Agents are small programs of the test's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.control_connection.protocol import ClockOffset, ControlClient
from seatrial.core.errors import CampaignError, LaunchError, PortTakenError, RefusedError, UsageError
from seatrial.core.paths import CampaignPaths
from seatrial.launch import pernode_server
from seatrial.launch.host_queries import NO_ANSWER, AnswerProcess
from seatrial.launch.pernode_client import PernodeClient, StartedAgents
from seatrial.launch.pernode_server import OWN_CLOCK, PernodeServer, QueryRounds, ServerFile, read_server_file, write_server_file
from tests import waiting
from tests.processes import is_gone, pids_in

TIMEOUT_S = 60.0
wait_until = partial(waiting.wait_until, timeout_s=TIMEOUT_S)
HELLO = {"host": "two", "python": "/venv/bin/python", "digest": "abc"}


class Terminal(list[str]):
    """The lines a user would have seen."""

    def has(self, text: str) -> bool:
        return any(text in line for line in self)


@pytest.fixture
def paths(tmp_path: Path) -> CampaignPaths:
    return CampaignPaths(tmp_path)


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def new_server(paths: CampaignPaths, terminal: Terminal, nodes: int = 2, port: int = 0, **more: Any) -> PernodeServer:
    given = {
        "address": "127.0.0.1",
        "plan": "demo",
        "digest": "abc",
        "report": terminal.append,
        "how_to_start": lambda rank: f"seatrial run {rank}",
    }
    return PernodeServer(paths, nodes=nodes, port=port, **{**given, **more})


@pytest.fixture
def server(paths: CampaignPaths, terminal: Terminal) -> Iterator[PernodeServer]:
    with new_server(paths, terminal) as opened:
        opened.write_file()
        yield opened


@pytest.fixture
def connect(paths: CampaignPaths) -> Iterator[Callable[..., ControlClient]]:
    """Commands of other nodes, as lines only."""
    with contextlib.ExitStack() as opened:

        def call(node: str = "node1", **hello: str) -> ControlClient:
            found = read_server_file(paths)
            assert found is not None
            return opened.enter_context(contextlib.closing(ControlClient.connect(found.endpoint(node), {**HELLO, **hello})))

        yield call


def received(connection: ControlClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    wait_until(lambda: found.extend(connection.receive(time.monotonic())) or found)
    return found


def test_a_taken_port_is_reported_before_anything_is_written(paths: CampaignPaths, terminal: Terminal) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"--master-port {port} is in use on this node"), new_server(paths, terminal, port=port):
            raise AssertionError("it was taken")
    assert not paths.pernode_server_file.exists()


def test_only_its_owner_reads_the_token_and_nothing_stays(paths: CampaignPaths, terminal: Terminal) -> None:
    with new_server(paths, terminal, nodes=1) as server:
        server.wait_for_nodes()
        stored = json.loads(paths.pernode_server_file.read_text())
        assert (stored["addresses"][0], stored["port"], stored["plan"]) == ("127.0.0.1", server.port, "demo")
        assert stat.S_IMODE(paths.pernode_server_file.stat().st_mode) == 0o600
    assert not paths.pernode_server_file.exists() and terminal == []


def test_a_server_of_another_campaign_stays(paths: CampaignPaths, terminal: Terminal) -> None:
    with new_server(paths, terminal, nodes=1) as server:
        server.wait_for_nodes()
        write_server_file(paths, ["127.0.0.1"], 1, "another's", "other")
    assert read_server_file(paths) is not None


def test_in_a_folder_of_everybody_no_node_is_waited_for(paths: CampaignPaths, terminal: Terminal) -> None:
    paths.folder.chmod(0o777)
    with pytest.raises(RefusedError, match="can be written by every user"), new_server(paths, terminal) as server:
        server.wait_for_nodes()
    assert not paths.pernode_server_file.exists()


def test_what_somebody_else_put_there_is_not_read(paths: CampaignPaths, terminal: Terminal) -> None:
    write_server_file(paths, ["127.0.0.1"], 1, "token", "demo")
    assert isinstance(read_server_file(paths), ServerFile)
    paths.pernode_server_file.chmod(0o644)
    with pytest.raises(CampaignError, match=r"node1: .*/\.gate\.json is open to other users"), new_client(paths, terminal) as client:
        client.run()


def test_all_are_waited_for_and_who_is_missing_is_reported(
    server: PernodeServer, terminal: Terminal, connect: Callable[..., ControlClient]
) -> None:
    looks = iter((False, True))

    def called_at_the_second_look() -> bool:
        if next(looks, False):
            connect()
        return False

    server.wait_for_nodes(called_at_the_second_look)
    assert terminal[0] == "waiting for node1 (start there: seatrial run 1)"
    assert terminal[-1] == "node1 connected (two)"
    assert (server.nodes, server.hostname_of("node1"), server.python_of("node1")) == (("node0", "node1"), "two", "/venv/bin/python")
    assert server.hostname_of("node0") == socket.gethostname()


def test_waiting_ends_at_the_timeout_or_with_the_user(paths: CampaignPaths, terminal: Terminal) -> None:
    with (
        pytest.raises(RefusedError, match="node1, node2, node3, node4 and 2 more did not connect within"),
        new_server(paths, terminal, nodes=7, timeout_s=0.0) as server,
    ):
        server.wait_for_nodes()
    with pytest.raises(KeyboardInterrupt), new_server(paths, terminal) as server:
        server.wait_for_nodes(lambda: True)
    assert terminal[-1] == "stopped while waiting for node1; nothing was run"
    assert not paths.pernode_server_file.exists()


def test_one_with_another_plan_is_reported_and_not_counted(
    server: PernodeServer, terminal: Terminal, connect: Callable[..., ControlClient]
) -> None:
    connection = connect(digest="other")
    wait_until(lambda: server.missing() and terminal.has("node1 (two) is refused"))
    assert (connection.first_message["digest"], connection.first_message["plan"]) == ("abc", "demo")
    assert server.missing() == ["node1"] and server.disconnected() == {}


def test_an_agent_is_started_by_the_command_there(
    server: PernodeServer, connect: Callable[..., ControlClient], paths: CampaignPaths
) -> None:
    connection = connect()
    wait_until(lambda: not server.missing())
    log = paths.folder / "start.log"
    server.start("node1", ["python", "-m", "seatrial.agent"], log)
    assert received(connection) == [{"kind": "start", "argv": ["python", "-m", "seatrial.agent"], "log": str(log)}]
    assert server.problem("node1") == ""
    connection.send({"kind": "trouble", "why": "of an earlier run", "log": "another"})
    connection.send({"kind": "trouble", "why": "no such file", "log": str(log)})
    wait_until(lambda: server.problem("node1") == "no such file")
    server.start("node1", ["again"], log)
    assert server.problem("node1") == ""


def test_a_command_that_ended_is_reported_and_may_come_back(
    server: PernodeServer, terminal: Terminal, connect: Callable[..., ControlClient], paths: CampaignPaths
) -> None:
    log = paths.folder / "log"
    with pytest.raises(LaunchError, match=r"the command on node1 has ended \(it never connected\)"):
        server.start("node1", ["agent"], log)
    first = connect()
    wait_until(lambda: not server.missing())
    first.close()
    wait_until(server.disconnected)
    with pytest.raises(LaunchError, match=r"node1 has ended \(.*\): .*: seatrial run 1"):
        server.start("node1", ["agent"], log)
    assert terminal.has("The command on node1 has ended") and server.problem("node1").startswith("the command on node1 has ended (")
    server.wait_for_reconnect(timeout_s=0.0)
    server.wait_for_reconnect()
    second = connect(host="two-again")
    wait_until(lambda: not server.missing())
    assert server.disconnected() == {} and server.hostname_of("node1") == "two-again"
    server.start("node1", ["agent"], log)
    assert received(second)[0]["argv"] == ["agent"]


def test_when_the_servers_own_end_fails_nobody_is_waited_for(server: PernodeServer, connect: Callable[..., ControlClient]) -> None:
    connect()
    wait_until(lambda: not server.missing())
    server.connections.send("node1", {"kind": "what no JSON can hold", "value": object()})
    wait_until(server.disconnected)
    server.wait_for_reconnect(lambda: pytest.fail("nobody can come back"))
    with pytest.raises(LaunchError, match=r"node1 cannot connect any more: .*TypeError"):
        server.wait_for_nodes()


@pytest.mark.parametrize(
    ("error", "code"), [(None, 3), (RefusedError("no"), 2), (KeyboardInterrupt(), 130), (RuntimeError("a fault of ours"), 1)]
)
def test_at_the_end_every_command_hears_the_exit_code(
    paths: CampaignPaths,
    terminal: Terminal,
    connect: Callable[..., ControlClient],
    error: BaseException | None,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seatrial.launch.pernode_server.LEAVE_TIMEOUT_S", 0.5)
    with contextlib.suppress(*((type(error),) if error else ())), new_server(paths, terminal) as server:
        server.write_file()
        connection = connect()
        wait_until(lambda: not server.missing())
        if error is not None:
            raise error
        server.finish(3)
    assert received(connection) == [{"kind": "over", "code": code}]
    wait_until(lambda: connection.receive(time.monotonic()) or connection.lost(time.monotonic()))


def test_the_next_run_waits_for_one_that_comes_back(server: PernodeServer, connect: Callable[..., ControlClient]) -> None:
    first = connect()
    wait_until(lambda: not server.missing())
    first.close()
    wait_until(server.disconnected)
    looks = iter((False, True))

    def back_at_the_second_look() -> bool:
        if next(looks, False):
            connect()
        return False

    server.wait_for_reconnect(back_at_the_second_look)
    assert server.disconnected() == {} and server.missing() == []
    server.wait_for_reconnect(lambda: pytest.fail("nobody is missing"))


CLOCK = ClockOffset(offset_s=0.5, round_trip_s=0.1)
QUERIES = {"node0": {"ask": "facts"}, "node1": {"ask": "facts"}, "node2": {"ask": "facts"}}


class FakeAnswers:
    """This node's own answering process."""

    def __init__(self) -> None:
        self.given: list[tuple[int, dict[str, Any]]] = []

    def ask(self, number: int, query: Any) -> None:
        """Answered by `given`."""

    def fileno(self) -> None:
        return None

    def answers(self) -> list[tuple[int, dict[str, Any]]]:
        given, self.given = self.given, []
        return given

    def close(self) -> None:
        """Nothing was started."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> FakeAnswers:
    one = FakeAnswers()
    monkeypatch.setattr(pernode_server, "AnswerProcess", lambda: one)
    return one


def test_replies_have_their_clock_and_how_long_they_took(here: FakeAnswers) -> None:
    now = [100.0]
    rounds = QueryRounds("node0", lambda: now[0])
    rounds.begin(QUERIES, lambda node, message: None)
    now[0] = 103.0
    here.given = [(1, {"host": "a"})]
    rounds.add_answer("node1", 1, {"host": "b"}, CLOCK)
    assert rounds.is_pending(QUERIES, {"node1", "node2"}) and rounds.left_s(10.0) == 7.0
    rounds.add_answer("node2", 1, {NO_ANSWER: "its process ended"}, None)
    assert not rounds.is_pending(QUERIES, {"node1", "node2"})
    replies = rounds.replies(QUERIES, {"node1", "node2"}, 10.0)
    assert (replies["node0"].answer, replies["node0"].clock) == ({"host": "a"}, OWN_CLOCK)
    assert (replies["node1"].answer, replies["node1"].clock, replies["node1"].took_s) == ({"host": "b"}, CLOCK, 3.0)
    assert (replies["node2"].answer, replies["node2"].trouble) == ({}, "its process ended")


def test_what_answers_an_earlier_round_or_is_no_answer_is_skipped(here: FakeAnswers) -> None:
    rounds = QueryRounds("node0")
    rounds.begin(QUERIES, lambda node, message: None)
    rounds.add_answer("node1", 1, {"host": "b"}, None)
    rounds.begin({"node1": {"ask": "clock"}}, lambda node, message: None)
    rounds.add_answer("node1", 1, {"host": "late"}, None)
    rounds.add_answer("node1", 2, "no object", None)
    assert rounds.is_pending({"node1": {}}, {"node1"})


def test_nobody_is_pending_whose_command_has_ended(here: FakeAnswers) -> None:
    rounds = QueryRounds("node0")
    rounds.begin({"node1": {}, "node2": {}}, lambda node, message: None)
    rounds.add_answer("node1", 1, {}, None)
    assert not rounds.is_pending({"node1": {}, "node2": {}}, {"node1"})
    replies = rounds.replies({"node0": {}, "node1": {}, "node2": {}}, {"node1"}, 60.0)
    assert replies["node2"].trouble == "the command on node2 has ended" and replies["node0"].trouble.startswith("no answer within ")


QUICK = [sys.executable, "-S", "-c", "print('from node 0')"]
ORDERLY = [
    sys.executable,
    "-S",
    "-c",
    """\
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
print("up", flush=True)
time.sleep(600)
""",
]
ECHOES = """\
import sys
for line in sys.stdin:
    if '"end"' in line:
        break
    print(line, end="", flush=True)
"""
ECHO = (sys.executable, "-S", "-c", ECHOES)


class Running(threading.Thread):
    """The command of node 1 in a thread."""

    def __init__(self, client: PernodeClient) -> None:
        super().__init__(daemon=True)
        self._client = client
        self.ended: Any = None
        self.start()

    def run(self) -> None:
        try:
            with self._client:
                self.ended = self._client.run()
        except Exception as error:
            self.ended = error


def new_client(paths: CampaignPaths, terminal: Terminal, digest: str = "abc", **more: Any) -> PernodeClient:
    return PernodeClient(paths, "node1", digest=digest, report=terminal.append, **more)


def running_client(server: PernodeServer, paths: CampaignPaths, terminal: Terminal, **more: Any) -> Running:
    part = Running(new_client(paths, terminal, **more))
    wait_until(lambda: not server.missing())
    return part


def log_of(paths: CampaignPaths, run: str = "mb8_r1") -> Path:
    log = paths.run(run).attempt(1).node("node1").folder / "start.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return log


def test_it_starts_what_it_is_reported_and_ends_with_the_campaigns_code(
    server: PernodeServer, paths: CampaignPaths, terminal: Terminal
) -> None:
    part = running_client(server, paths, terminal)
    server.start("node1", QUICK, log_of(paths))
    wait_until(lambda: "mb8_r1: finished on this node" in terminal)
    assert log_of(paths).read_text() == "from node 0\n"
    assert terminal.index("mb8_r1: started here") < terminal.index("mb8_r1: finished on this node")
    server.finish(3)
    part.join(TIMEOUT_S)
    assert part.ended == 3 and terminal[-1] == "node1: the campaign has ended (exit code 3)"


def test_an_agent_that_cannot_start_or_fails_is_reported_to_node_0(server: PernodeServer, paths: CampaignPaths, terminal: Terminal) -> None:
    part = running_client(server, paths, terminal)
    server.start("node1", ["/no/such/python"], log_of(paths))
    wait_until(lambda: "could not be started" in server.problem("node1"))
    server.start("node1", [sys.executable, "-S", "-c", "raise SystemExit(7)"], log_of(paths))
    wait_until(lambda: server.problem("node1") == "the agent on node1 exited with code 7")
    server.start("node1", QUICK, paths.folder / "not" / "there" / "start.log")
    wait_until(lambda: "No such file or directory" in server.problem("node1"))
    server.finish(0)
    part.join(TIMEOUT_S)
    assert part.ended == 0


def test_when_node_0_is_gone_nothing_stays(server: PernodeServer, paths: CampaignPaths, terminal: Terminal) -> None:
    part = running_client(server, paths, terminal)
    server.start("node1", ORDERLY, log_of(paths))
    wait_until(lambda: log_of(paths).exists() and log_of(paths).read_text() == "up\n")
    # As if it had been killed.
    server.connections.close()
    part.join(TIMEOUT_S)
    assert isinstance(part.ended, CampaignError) and "lost node 0" in str(part.ended)
    assert log_of(paths).read_text() == "up\ntold to end\n"


def test_a_command_that_is_stopped_ends_its_agent(server: PernodeServer, paths: CampaignPaths) -> None:
    def stopped_by_the_user(line: str) -> None:
        """Once its agent is up."""
        if line.endswith(": started here"):
            wait_until(lambda: log_of(paths).read_text() == "up\n")
            raise KeyboardInterrupt
        wait_until(lambda: not server.missing())
        server.start("node1", ORDERLY, log_of(paths))

    with pytest.raises(KeyboardInterrupt), PernodeClient(paths, "node1", digest="abc", report=stopped_by_the_user) as client:
        client.run()
    assert log_of(paths).read_text() == "up\ntold to end\n"
    wait_until(lambda: server.disconnected() or server.missing())


@pytest.mark.parametrize(
    ("digest", "version", "problem"),
    [("xyz", None, "hash xyz here, abc there"), ("abc", "9.9.9", r"node1 runs Seatrial \S+ and the harness runs 9\.9\.9")],
)
def test_another_plan_or_version_is_refused(
    server: PernodeServer,
    paths: CampaignPaths,
    terminal: Terminal,
    harness_version: Callable[[str], None],
    digest: str,
    version: str | None,
    problem: str,
) -> None:
    if version:
        harness_version(version)
    with pytest.raises(UsageError, match=problem), new_client(paths, terminal, digest) as client:
        client.run()
    wait_until(lambda: server.missing() == ["node1"] and terminal.has(" is refused: "))


def test_what_a_dead_campaign_left_is_skipped(paths: CampaignPaths, terminal: Terminal) -> None:
    write_server_file(paths, ["127.0.0.1"], 9, "an old token", "demo")
    seconds = iter(range(1000))
    with (
        pytest.raises(CampaignError, match=r"node 0 within 30.*same folder"),
        new_client(paths, terminal, timeout_s=30.0, monotonic=lambda: next(seconds), sleep=lambda s: None) as client,
    ):
        client.run()
    assert terminal[0].startswith("node1: waiting for node 0 (") and "127.0.0.1:9" in terminal[0]
    assert 1 < len(terminal) < 5, "terminal again now and then, not all the time"


def test_an_agent_that_exits_after_the_campaigns_end_is_reported_before_it(
    server: PernodeServer, paths: CampaignPaths, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.launch.pernode_client.LAST_AGENT_S", TIMEOUT_S)
    part = running_client(server, paths, terminal)
    server.start("node1", ["sleep", "0.3"], log_of(paths))
    wait_until(lambda: "mb8_r1: started here" in terminal)
    server.finish(0)
    part.join(TIMEOUT_S)
    assert terminal[-2:] == ["mb8_r1: finished on this node", "node1: the campaign has ended (exit code 0)"]


def test_it_waits_for_the_folder_and_then_goes_on(server: PernodeServer, paths: CampaignPaths, terminal: Terminal) -> None:
    hidden = paths.pernode_server_file.rename(paths.folder / "hidden")

    def found_later(seconds_s: float) -> None:
        hidden.rename(paths.pernode_server_file)

    client = new_client(paths, terminal, sleep=found_later)
    server.finish(0)
    with client:
        part = threading.Thread(
            target=lambda: (wait_until(lambda: not server.missing()), server.connections.send("node1", {"kind": "over", "code": 2}))
        )
        part.start()
        assert client.run() == 2
        part.join(TIMEOUT_S)
    shared = f"it must run, with {paths.folder} as the same shared folder"
    assert terminal[0] == f"node1: waiting for node 0 ({paths.pernode_server_file} does not exist; {shared})"


def test_questions_are_answered_by_a_child(paths: CampaignPaths, terminal: Terminal) -> None:
    with new_server(paths, terminal, answers=AnswerProcess(ECHO)) as server:
        server.write_file()
        part = running_client(server, paths, terminal, answers=AnswerProcess(ECHO))
        for question in ({"ask": "facts"}, {"ask": "again"}):
            replies = server.ask({"node0": question, "node1": question}, TIMEOUT_S)
            assert [replies[node].answer["ask"] for node in server.nodes] == [question["ask"]] * 2
            assert not any(reply.trouble for reply in replies.values())
        assert "has ended by itself" in server.ask({"node1": {"ask": "end"}}, TIMEOUT_S)["node1"].trouble
        server.finish(0)
        part.join(TIMEOUT_S)


DEAF = """\
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_a_child_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.host_queries.EXIT_TIMEOUT_S", 0.2)
    pid_file = tmp_path / "pid"
    answering = AnswerProcess(("sh", "-c", 'exec "$0" -S -c "$1" > "$2"', sys.executable, DEAF, str(pid_file)))
    answering.ask(1, {"ask": "facts"})
    wait_until(lambda: len(pids_in(pid_file)) == 1)
    (pid,) = pids_in(pid_file)
    answering.close()
    assert is_gone(pid)


def test_agents_that_do_not_end_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.pernode_client.AGENT_EXIT_TIMEOUT_S", 0.2)
    agents = StartedAgents(tmp_path)
    log = log_of(CampaignPaths(tmp_path))
    agents.start({"argv": [sys.executable, "-S", "-c", DEAF], "log": str(log)})
    wait_until(lambda: len(pids_in(log)) == 1)
    (pid,) = pids_in(log)
    assert os.getsid(pid) == pid, "Ctrl-C in the terminal must not reach it"
    agents.end()
    assert is_gone(pid) and agents.ended() == []


def test_a_message_that_is_none_is_only_trouble(server: PernodeServer, paths: CampaignPaths, terminal: Terminal) -> None:
    part = running_client(server, paths, terminal)
    for message in ({"kind": "start"}, {"kind": "start", "argv": 3, "log": "x"}, {"kind": "ask"}, {"kind": "unheard_of"}):
        server.connections.send("node1", json.loads(json.dumps(message)))
    wait_until(lambda: sum("could not be started" in line for line in terminal) == 2)
    server.finish(0)
    part.join(TIMEOUT_S)
    assert part.ended == 0
