"""Who connects to a switchboard and is no node of it: however much he says, or how often he comes, the nodes are heard."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
from collections.abc import Callable, Iterator

import pytest

from seatrial.line.awake_clock import AwakeClock
from seatrial.line.connection import MOST_AT_ONCE_BYTES, Connection
from seatrial.line.door import SHUT_S, Door
from seatrial.line.protocol import proof
from seatrial.line.switchboard import (
    INTRODUCE_WITHIN_S,
    INTRODUCE_WITHIN_WHEN_FULL_S,
    LONGEST_HELLO_BYTES,
    MOST_STRANGERS,
    Switchboard,
)

PATIENCE_S = 60.0
Knock = Callable[[], socket.socket]


class Driven(Switchboard):
    """Without its thread: turns are taken by the test, at times of its own."""

    def __init__(self) -> None:
        super().__init__("secret", ("node1", "node2"), listening=socket.create_server(("127.0.0.1", 0), backlog=256))
        self.now_m = 0.0
        self._clock = AwakeClock(lambda: self.now_m)

    def turn(self, later_s: float = 0.0) -> None:
        self.now_m += later_s
        self._turn()

    def turns_until(self, happened: Callable[[], bool]) -> None:
        for _ in range(1000):
            if happened():
                return
            self.turn()
        raise AssertionError("it did not happen")

    def close(self) -> None:
        for line in self._lines:
            line.connection.close()
        super().close()


@pytest.fixture
def board() -> Iterator[Driven]:
    with contextlib.closing(Driven()) as opened:
        yield opened


@pytest.fixture
def knock(board: Driven) -> Iterator[Knock]:
    with contextlib.ExitStack() as opened:

        def connect() -> socket.socket:
            connected = opened.enter_context(socket.create_connection(("127.0.0.1", board.port)))
            connected.settimeout(PATIENCE_S)
            return connected

        yield connect


def introduce(board: Driven, knock: Knock, node: str = "node1") -> socket.socket:
    caller = knock()
    board.turn()
    nonce = json.loads(caller.recv(1000))["nonce"]
    caller.sendall(json.dumps({"kind": "hello", "node": node, "proof": proof("secret", nonce, node), "nonce": "n"}).encode() + b"\n")
    board.turns_until(lambda: any(line.node == node for line in board._lines))
    return caller


def strangers(board: Driven) -> int:
    return len(board._strangers())


def test_only_so_much_is_read_at_once() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.setblocking(False)
        connection, line = Connection(ours), b'{"kind": "a"}\n'
        sent = 0
        while sent < 3 * MOST_AT_ONCE_BYTES:
            with contextlib.suppress(BlockingIOError):
                sent += theirs.send(line * 1000)
            assert sum(len(line) for _ in connection.receive()) <= MOST_AT_ONCE_BYTES + len(line)
        connection.close()


def test_more_than_is_there_for_all_is_read_turn_by_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.line.connection.MOST_AT_ONCE_BYTES", 30)
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    theirs.sendall(b'{"kind": "a"}\n' * 5)
    theirs.close()
    counts = []
    while not connection.closed:
        counts.append(len(connection.receive()))
    assert sum(counts) == 5 and max(counts) <= 3 and connection.closed == "the other side closed it"


def test_the_first_wrong_word_is_the_last(board: Driven, knock: Knock) -> None:
    stranger = knock()
    board.turn()
    nonce = json.loads(stranger.recv(1000))["nonce"]
    right = json.dumps({"kind": "hello", "node": "node1", "proof": proof("secret", nonce, "node1")}).encode()
    stranger.sendall(b'{"kind": "a"}\n' + right + b"\n")
    board.turns_until(lambda: not board._lines)
    assert board.poll() == []


@pytest.mark.parametrize("kind", ["beat", "report"])
def test_a_proof_without_a_hello_is_none(board: Driven, knock: Knock, kind: str) -> None:
    stranger = knock()
    board.turn()
    nonce = json.loads(stranger.recv(1000))["nonce"]
    stranger.sendall(json.dumps({"kind": kind, "node": "node1", "proof": proof("secret", nonce, "node1")}).encode() + b"\n")
    board.turns_until(lambda: not board._lines)


def test_a_line_without_an_end_is_cut(board: Driven, knock: Knock) -> None:
    stranger = knock()
    board.turn()
    with contextlib.suppress(OSError):
        stranger.sendall(b"x" * (LONGEST_HELLO_BYTES + 1))
    board.turns_until(lambda: not board._lines)


def test_a_node_may_say_more(board: Driven, knock: Knock) -> None:
    caller = introduce(board, knock)
    caller.sendall(json.dumps({"kind": "report", "text": "x" * 2 * LONGEST_HELLO_BYTES}).encode() + b"\n")
    board.turns_until(lambda: len(board._said) == 2)
    assert [message["kind"] for _, message in board.poll()] == ["hello", "report"]


def test_a_proof_that_cannot_be_put_into_words_is_only_wrong(board: Driven, knock: Knock) -> None:
    stranger = knock()
    board.turn()
    stranger.sendall(b'{"kind": "hello", "node": "node1", "proof": ' + b"[" * 900 + b"]" * 900 + b"}\n")
    board.turns_until(lambda: not board._lines)


def test_there_is_room_for_few_and_a_node_still_comes_in(board: Driven, knock: Knock) -> None:
    kept = [knock() for _ in range(2 * MOST_STRANGERS)]
    board.turns_until(lambda: strangers(board) == MOST_STRANGERS)
    board.turn()
    assert strangers(board) == MOST_STRANGERS, "the others wait with the kernel"
    caller = knock()
    board.turn(INTRODUCE_WITHIN_WHEN_FULL_S + 0.1)
    assert strangers(board) == MOST_STRANGERS, "the first ones have had their time"
    board.turn(INTRODUCE_WITHIN_WHEN_FULL_S + 0.1)
    board.turns_until(lambda: strangers(board) == 1)
    assert b"nonce" in caller.recv(1000) and len(kept) == 2 * MOST_STRANGERS


def test_who_says_nothing_is_closed_after_a_while(board: Driven, knock: Knock) -> None:
    stranger = knock()
    board.turn()
    board.turn(INTRODUCE_WITHIN_S - 1.0)
    assert strangers(board) == 1
    board.turn(1.1)
    assert b"nonce" in stranger.recv(1000) and stranger.recv(1000) == b"" and board._lines == []


class _NoHandles(socket.socket):
    tries = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.tries += 1
        raise OSError(errno.EMFILE, "Too many open files")


def test_without_file_handles_the_door_is_shut_for_a_moment() -> None:
    with _NoHandles() as server:
        server.bind(("127.0.0.1", 0))
        door = Door(server)
        assert door.is_open(0.0) and door.arrived(0.0, 5) == []
        assert not door.is_open(SHUT_S / 2) and door.arrived(SHUT_S / 2, 5) == []
        assert server.tries == 1
        assert door.is_open(SHUT_S) and door.arrived(SHUT_S, 5) == [] and server.tries == 2
