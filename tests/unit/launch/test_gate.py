"""Node 0 of a campaign without ssh, over loopback: who is let in, what is said while somebody is missing, and how it ends."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seatrial import __version__
from seatrial.errors import LaunchError, PortTakenError, RefusedError
from seatrial.launch.answering import Answering
from seatrial.launch.gate import Gate
from seatrial.launch.gate_file import GateFile, read_gate, write_gate
from seatrial.line.caller import Caller
from seatrial.paths import CampaignPaths
from tests import waiting

PATIENCE_S = 60.0
wait_until = partial(waiting.wait_until, patience_s=PATIENCE_S)
HELLO = {"host": "two", "python": "/venv/bin/python", "digest": "abc", "version": __version__}


class Said(list[str]):
    """What a terminal would have shown."""

    def has(self, words: str) -> bool:
        return any(words in line for line in self)


@pytest.fixture
def paths(tmp_path: Path) -> CampaignPaths:
    return CampaignPaths(tmp_path)


@pytest.fixture
def said() -> Said:
    return Said()


def new_gate(paths: CampaignPaths, said: Said, nodes: int = 2, port: int = 0, **more: Any) -> Gate:
    given = {
        "address": "127.0.0.1",
        "plan": "demo",
        "digest": "abc",
        "say": said.append,
        "how_to_start": lambda rank: f"seatrial run {rank}",
    }
    return Gate(paths, nodes=nodes, port=port, **{**given, **more})


@pytest.fixture
def gate(paths: CampaignPaths, said: Said) -> Iterator[Gate]:
    with new_gate(paths, said) as opened:
        write_gate(paths, opened.addresses, opened.port, opened._token, "demo")
        yield opened


@pytest.fixture
def connect(paths: CampaignPaths) -> Iterator[Callable[..., Caller]]:
    """Commands of other nodes, as lines only."""
    with contextlib.ExitStack() as opened:

        def call(node: str = "node1", **hello: str) -> Caller:
            found = read_gate(paths)
            assert found is not None
            return opened.enter_context(contextlib.closing(Caller.connect(found.call(node), {**HELLO, **hello})))

        yield call


def received(caller: Caller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    wait_until(lambda: found.extend(caller.receive(time.monotonic())) or found)
    return found


def test_a_taken_port_is_told_before_anything_is_written(paths: CampaignPaths, said: Said) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"--master-port {port} is in use on this node"), new_gate(paths, said, port=port):
            raise AssertionError("it was taken")
    assert not paths.gate.exists()


def test_only_its_owner_reads_the_token_and_nothing_stays(paths: CampaignPaths, said: Said) -> None:
    with new_gate(paths, said, nodes=1) as gate:
        gate.gather()
        stored = json.loads(paths.gate.read_text())
        assert (stored["addresses"][0], stored["port"], stored["plan"]) == ("127.0.0.1", gate.port, "demo")
        assert stat.S_IMODE(paths.gate.stat().st_mode) == 0o600
    assert not paths.gate.exists() and said == []


def test_a_gate_of_another_campaign_stays(paths: CampaignPaths, said: Said) -> None:
    with new_gate(paths, said, nodes=1) as gate:
        gate.gather()
        write_gate(paths, ["127.0.0.1"], 1, "another's", "other")
    assert read_gate(paths) is not None


def test_what_somebody_else_put_there_is_not_read(paths: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gate(paths, ["127.0.0.1"], 1, "token", "demo")
    assert isinstance(read_gate(paths), GateFile)
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    assert read_gate(paths) is not None, "the folder's owner is trusted too"
    monkeypatch.setattr(Path, "stat", lambda path, follow_symlinks=True: paths.folder.lstat())
    monkeypatch.setattr(Path, "lstat", lambda path: type("Stat", (), {"st_uid": 1 if path == paths.gate else 2}))
    assert read_gate(paths) is None


def test_all_are_waited_for_and_who_is_missing_is_said(gate: Gate, said: Said, connect: Callable[..., Caller]) -> None:
    looks = iter((False, True))

    def called_at_the_second_look() -> bool:
        if next(looks, False):
            connect()
        return False

    gate.gather(called_at_the_second_look)
    assert said[0] == "waiting for node1 (start there: seatrial run 1)"
    assert said[-1] == "node1 is here (two)"
    assert (gate.nodes, gate.host_of("node1"), gate.python_of("node1")) == (("node0", "node1"), "two", "/venv/bin/python")
    assert gate.host_of("node0") == socket.gethostname()


def test_waiting_ends_with_patience_or_with_the_user(paths: CampaignPaths, said: Said) -> None:
    with (
        pytest.raises(RefusedError, match="node1, node2, node3, node4 and 2 more did not call within"),
        new_gate(paths, said, nodes=7, patience_s=0.0) as gate,
    ):
        gate.gather()
    with pytest.raises(KeyboardInterrupt), new_gate(paths, said) as gate:
        gate.gather(lambda: True)
    assert said[-1] == "stopped while waiting for node1; nothing was run"
    assert not paths.gate.exists()


@pytest.mark.parametrize("unlike", [{"digest": "other"}, {"version": "0.0.1"}])
def test_one_with_another_plan_or_version_is_said_and_not_counted(
    gate: Gate, said: Said, connect: Callable[..., Caller], unlike: dict[str, str]
) -> None:
    caller = connect(**unlike)
    wait_until(lambda: gate.missing() and said.has("node1 (two) is not let in"))
    assert (caller.welcome["digest"], caller.welcome["version"], caller.welcome["plan"]) == ("abc", __version__, "demo")
    assert gate.missing() == ["node1"] and gate.lost() == {}


def test_an_agent_is_started_by_the_command_there(gate: Gate, connect: Callable[..., Caller], paths: CampaignPaths) -> None:
    caller = connect()
    wait_until(lambda: not gate.missing())
    log = paths.folder / "start.log"
    gate.start("node1", ["python", "-m", "seatrial.agent"], {"PYTHONPATH": "/src"}, log)
    asked = {"kind": "start", "argv": ["python", "-m", "seatrial.agent"], "env": {"PYTHONPATH": "/src"}, "log": str(log)}
    assert received(caller) == [asked]
    assert gate.trouble("node1") == ""
    caller.send({"kind": "trouble", "why": "of an earlier run", "log": "another"})
    caller.send({"kind": "trouble", "why": "no such file", "log": str(log)})
    wait_until(lambda: gate.trouble("node1") == "no such file")
    gate.start("node1", ["again"], {}, log)
    assert gate.trouble("node1") == ""


def test_a_command_that_ended_is_told_and_may_come_back(
    gate: Gate, said: Said, connect: Callable[..., Caller], paths: CampaignPaths
) -> None:
    log = paths.folder / "log"
    with pytest.raises(LaunchError, match=r"the command on node1 has ended \(it never called\)"):
        gate.start("node1", ["agent"], {}, log)
    first = connect()
    wait_until(lambda: not gate.missing())
    first.close()
    wait_until(gate.lost)
    with pytest.raises(LaunchError, match=r"the command on node1 has ended \(.*\): start it again there: seatrial run 1"):
        gate.start("node1", ["agent"], {}, log)
    assert said.has("the command on node1 has ended") and gate.trouble("node1").startswith("the command on node1 has ended (")
    gate.wait_for_return(patience_s=0.0)
    gate.wait_for_return()
    second = connect(host="two-again")
    wait_until(lambda: not gate.missing())
    assert gate.lost() == {} and gate.host_of("node1") == "two-again"
    gate.start("node1", ["agent"], {}, log)
    assert received(second)[0]["argv"] == ["agent"]


def test_everybody_asked_has_a_reply(gate: Gate, connect: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch) -> None:
    caller = connect()
    wait_until(lambda: not gate.missing())
    monkeypatch.setattr(gate._questions._here, "ask", lambda number, question: None)
    monkeypatch.setattr(gate._questions._here, "answers", lambda: [(gate._questions._number, {"cpu": 2})])
    answer_in_between(gate, caller, {"no_answer": "the folder hangs"}, monkeypatch)
    replies = gate.ask({"node0": {"ask": "facts"}, "node1": {"ask": "facts"}}, 5.0)
    assert replies["node0"].told == {"cpu": 2} and replies["node0"].trouble == ""
    assert replies["node0"].clock is not None and replies["node0"].clock.offset_s == 0.0
    assert replies["node1"].told == {} and replies["node1"].trouble == "the folder hangs"
    monkeypatch.undo()
    assert gate.ask({"node1": {"ask": "facts"}}, 0.0)["node1"].trouble.startswith("no answer within")
    caller.close()
    wait_until(gate.lost)
    assert gate.ask({"node1": {"ask": "facts"}}, 5.0)["node1"].trouble == "the command on node1 has ended"


def test_node_0_s_own_answer_ends_the_wait(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[float, int | None]] = []
    hear = gate._hear

    def counted(timeout_s: float = 0.0, beside: int | None = None) -> None:
        waits.append((timeout_s, beside))
        hear(timeout_s, beside)

    monkeypatch.setattr(gate, "_hear", counted)
    gate._questions._here = Answering((sys.executable, "-S", "-c", "print(input(), flush=True)"))
    assert gate.ask({"node0": {"ask": "facts"}}, 60.0)["node0"].told["ask"] == "facts"
    assert waits and all(timeout_s > 30 and beside is not None for timeout_s, beside in waits), "not looked for turn by turn"
    gate._questions._here.close()
    waits.clear()
    gate._questions._here = Answering(("/no/such/program",))
    assert "questions cannot be answered" in gate.ask({"node0": {"ask": "facts"}}, 60.0)["node0"].trouble
    assert waits == [], "what is known already is not waited for"


def test_when_the_gate_s_own_end_fails_nobody_is_waited_for(gate: Gate, connect: Callable[..., Caller]) -> None:
    connect()
    wait_until(lambda: not gate.missing())
    gate._board._beat = lambda now: 1 / 0  # type: ignore[assignment, method-assign]
    wait_until(gate.lost)
    gate.wait_for_return(lambda: pytest.fail("nobody can come back"))
    with pytest.raises(LaunchError, match=r"node1 cannot call any more: .*ZeroDivisionError"):
        gate.gather()


def test_only_who_knows_the_token_takes_the_place_of_one_that_ended(gate: Gate, connect: Callable[..., Caller]) -> None:
    first = connect()
    wait_until(lambda: not gate.missing())
    first.close()
    wait_until(gate.lost)
    with socket.create_connection(("127.0.0.1", gate.port)) as stranger:
        stranger.settimeout(PATIENCE_S)
        stranger.recv(1000)
        stranger.sendall(b'{"kind": "hello", "node": "node1", "proof": "guess"}\n')
        assert stranger.recv(1000) == b""
    assert [line.node for line in gate._board._lines if line.node] == ["node1"]
    connect()
    wait_until(lambda: not gate.missing())


def answer_in_between(gate: Gate, caller: Caller, answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the other end answer while the gate waits."""
    hear = gate._hear

    def answered(timeout_s: float = 0.0, beside: int | None = None) -> None:
        for message in caller.receive(time.monotonic()):
            if message["kind"] == "ask":
                caller.send({"kind": "answer", "n": message["n"], "answer": answer})
        hear(min(timeout_s, 0.01))

    monkeypatch.setattr(gate, "_hear", answered)


@pytest.mark.parametrize(
    ("error", "code"), [(None, 3), (RefusedError("no"), 2), (KeyboardInterrupt(), 130), (RuntimeError("a fault of ours"), 1)]
)
def test_at_the_end_every_command_hears_the_exit_code(
    paths: CampaignPaths,
    said: Said,
    connect: Callable[..., Caller],
    error: BaseException | None,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seatrial.launch.gate.LEAVE_PATIENCE_S", 0.5)
    with contextlib.suppress(*((type(error),) if error else ())), new_gate(paths, said) as gate:
        write_gate(paths, gate.addresses, gate.port, gate._token, "demo")
        caller = connect()
        wait_until(lambda: not gate.missing())
        if error is not None:
            raise error
        gate.over(3)
    assert received(caller) == [{"kind": "over", "code": code}]
    wait_until(lambda: caller.receive(time.monotonic()) or caller.lost(time.monotonic()))


def test_the_next_run_waits_for_one_that_comes_back(gate: Gate, connect: Callable[..., Caller]) -> None:
    first = connect()
    wait_until(lambda: not gate.missing())
    first.close()
    wait_until(gate.lost)
    looks = iter((False, True))

    def back_at_the_second_look() -> bool:
        if next(looks, False):
            connect()
        return False

    gate.wait_for_return(back_at_the_second_look)
    assert gate.lost() == {} and gate.missing() == []
    gate.wait_for_return(lambda: pytest.fail("nobody is missing"))
