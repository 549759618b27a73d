"""Both ends of a line over loopback: introduction, beats, messages both ways, and every way in which it ends."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from seatrial.line.awake_clock import AwakeClock
from seatrial.line.caller import Caller, LineError
from seatrial.line.connection import Connection
from seatrial.line.switchboard import Switchboard, _Line
from seatrial.records.line import Call

PATIENCE_S = 60.0


@pytest.fixture
def board() -> Iterator[Switchboard]:
    with Switchboard("secret", ("node1", "node2"), welcome=lambda node: {"env": {"NAME": node}}) as opened:
        yield opened


def call(board: Switchboard, node: str = "node1", token: str = "secret") -> Call:
    return Call(addresses=("127.0.0.1",), port=board.port, token=token, node=node)


def heard(board: Switchboard, count: int) -> list[tuple[str, dict[str, object]]]:
    until, said = time.monotonic() + PATIENCE_S, []
    while len(said) < count and time.monotonic() < until:
        said += board.wait(0.2)
    return said


@pytest.fixture
def connect() -> Iterator[Callable[[Call], Caller]]:
    """Callers that are closed when the test is over."""
    with contextlib.ExitStack() as opened:
        yield lambda call: opened.enter_context(contextlib.closing(Caller.connect(call, {"host": "n1"})))


def received(caller: Caller) -> list[dict[str, object]]:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if messages := caller.receive(time.monotonic()):
            return messages
        time.sleep(0.01)
    return []


def test_a_node_is_let_in_and_both_are_heard(board: Switchboard, connect: Callable[[Call], Caller]) -> None:
    caller = connect(call(board))
    assert caller.welcome["env"] == {"NAME": "node1"}
    caller.send({"kind": "report", "report": {"kind": "gone"}})
    (name, hello), (_, report) = heard(board, 2)
    assert (name, hello["host"]) == ("node1", "n1")
    assert report == {"kind": "report", "report": {"kind": "gone"}}
    board.send("node1", {"kind": "order", "word": "stop"})
    assert received(caller) == [{"kind": "order", "word": "stop"}]
    assert caller.lost(time.monotonic()) == ""


def test_the_clock_is_measured_by_the_first_beat(board: Switchboard, connect: Callable[[Call], Caller]) -> None:
    caller = connect(call(board))
    until = time.monotonic() + PATIENCE_S
    while board.offset("node1") is None and time.monotonic() < until:
        caller.receive(time.monotonic())
        time.sleep(0.01)
    offset = board.offset("node1")
    assert offset is not None
    assert abs(offset.offset_s) <= offset.round_trip_s + 0.05


@pytest.mark.parametrize(("node", "token"), [("node1", "guess"), ("node9", "secret")])
def test_who_does_not_know_the_token_or_is_not_expected_stays_out(board: Switchboard, node: str, token: str) -> None:
    with pytest.raises(LineError, match=r"node\d cannot reach the harness at 127\.0\.0\.1:\d+ .* somebody answers there"):
        Caller.connect(call(board, node, token), {}, patience_s=0.0)
    assert board.poll() == []


def test_a_second_caller_of_one_name_stays_out(board: Switchboard, connect: Callable[[Call], Caller]) -> None:
    connect(call(board))
    with pytest.raises(LineError):
        Caller.connect(call(board), {}, patience_s=0.0)


def test_a_node_that_goes_is_said_to_be_lost(board: Switchboard) -> None:
    Caller.connect(call(board), {}).close()
    said = heard(board, 2)
    assert [(name, message["kind"]) for name, message in said] == [("node1", "hello"), ("node1", "lost")]
    assert said[1][1]["silent"] is False


def test_a_harness_that_goes_is_lost_to_the_node(board: Switchboard, connect: Callable[[Call], Caller]) -> None:
    caller = connect(call(board))
    board.close()
    until = time.monotonic() + PATIENCE_S
    while not caller.lost(time.monotonic()) and time.monotonic() < until:
        caller.receive(time.monotonic())
    assert "the line to the harness ended" in caller.lost(time.monotonic())


def test_silence_is_the_end_after_the_lease(connect: Callable[[Call], Caller]) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with Switchboard("secret", ("node1",), listening=server) as board:
        caller = connect(call(board))
        now = time.monotonic()
        assert caller.lost(now + 19) == ""
        assert "nothing was heard of the harness for 25 s" in caller.lost(now + 25)


def test_what_is_no_message_closes_the_line(board: Switchboard) -> None:
    with socket.create_connection(("127.0.0.1", board.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger.settimeout(PATIENCE_S)
        assert b"nonce" in stranger.recv(1000)
        assert stranger.recv(1000) == b""


def test_what_comes_right_behind_the_welcome_is_not_lost(board: Switchboard, connect: Callable[[Call], Caller]) -> None:
    board._welcome = lambda node: board.send(node, {"kind": "go"}) or {}  # type: ignore[func-returns-value]
    caller = connect(call(board))
    assert received(caller) == [{"kind": "go"}]


def test_a_proof_of_any_text_is_only_wrong(board: Switchboard, connect: Callable[[Call], Caller]) -> None:
    for wrong in ('"\\u00e9"', '"\\ud800"', "[1]", "null"):
        with socket.create_connection(("127.0.0.1", board.port)) as stranger:
            stranger.settimeout(PATIENCE_S)
            stranger.recv(1000)
            stranger.sendall(b'{"kind": "hello", "node": "node1", "proof": ' + wrong.encode() + b"}\n")
            assert stranger.recv(1000) == b""
    connect(call(board))
    assert [name for name, _ in heard(board, 1)] == ["node1"]


def test_who_does_not_know_the_token_is_no_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another's program listens where a harness was, lets in anybody, and would be obeyed."""
    monkeypatch.setattr("seatrial.line.switchboard.is_same", lambda told, expected: True)
    with Switchboard("guess", ("node1",)) as board, pytest.raises(LineError, match="does not know the token"):
        Caller.connect(call(board), {}, patience_s=0.0)


def test_beats_of_any_kind_break_nothing(board: Switchboard, connect: Callable[[Call], Caller]) -> None:
    caller = connect(call(board))
    for wrong in ({"n": [1], "t": 1}, {"n": 1, "t": "late"}, {}, *({"n": number, "t": 10**400} for number in range(9))):
        caller.send({"kind": "beat", **wrong})
    caller.send({"kind": "report"})
    assert [message["kind"] for _, message in heard(board, 2)] == ["hello", "report"]


def test_last_words_are_heard_though_nothing_can_be_sent_any_more() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    theirs.sendall(b'{"kind": "report"}\n')
    theirs.close()
    connection.send({"kind": "beat"})
    connection.send({"kind": "beat"})
    assert connection.closed
    assert connection.receive() == [{"kind": "report"}]


def test_a_harness_that_was_suspended_loses_nobody() -> None:
    now_m = [0.0]
    board = Switchboard("secret", ("node1",), lease_s=20.0)
    board._clock = AwakeClock(lambda: now_m[0])
    ours, theirs = socket.socketpair()
    with theirs:
        board._lines = [_Line(Connection(ours), "nonce", since=0.0, node="node1", heard=0.0)]
        board._turn()
        assert b'"beat"' in theirs.recv(1000)
        now_m[0] = 100.0
        board._turn()
        assert board.poll() == [], "the node had nobody to answer to"
        assert b'"beat"' in theirs.recv(1000), "and hears at once that there is somebody again"
        # Awake for the lease, turn by turn, is another matter.
        for _ in range(6):
            now_m[0] += 4.0
            board._turn()
        assert [(message["kind"], message["silent"]) for _, message in board.poll()] == [("lost", True)]
    board.close()


def test_when_its_thread_fails_every_node_is_lost_with_the_reason(connect: Callable[[Call], Caller]) -> None:
    with Switchboard("secret", ("node1", "node2", "node3")) as board:
        callers = [connect(call(board, name)) for name in ("node1", "node2")]
        assert len(heard(board, 2)) == 2 and board.failed == ""
        board.send("node1", {"kind": "go", "env": object()})
        said = heard(board, 2)
        assert [(name, message["kind"], message["silent"]) for name, message in said] == [
            ("node1", "lost", False),
            ("node2", "lost", False),
        ]
        assert all("the harness's own end of all lines failed (TypeError: " in str(message["why"]) for _, message in said)
        assert board.failed == said[0][1]["why"]
        for caller in callers:
            until = time.monotonic() + PATIENCE_S
            while not caller.lost(time.monotonic()) and time.monotonic() < until:
                caller.receive(time.monotonic())
            assert "the line to the harness ended" in caller.lost(time.monotonic())
        assert board.poll() == [] and board.wait(0.01) == []


def test_a_node_that_ended_may_call_again_where_that_is_wanted(connect: Callable[[Call], Caller]) -> None:
    with Switchboard("secret", ("node1",), may_return=True) as board:
        first = connect(call(board))
        with pytest.raises(LineError):
            Caller.connect(call(board), {}, patience_s=0.0)
        first.close()
        assert [message["kind"] for _, message in heard(board, 2)] == ["hello", "lost"]
        connect(call(board))
        assert [message["kind"] for _, message in heard(board, 1)] == ["hello"]


def test_waiting_ends_when_another_file_can_be_read(board: Switchboard) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"!")
        before_m = time.monotonic()
        assert board.wait(600.0, ours.fileno()) == []
        assert time.monotonic() - before_m < PATIENCE_S
