"""Peers that connect and never authenticate: however much they send, and however many they are, the nodes are served."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
from collections.abc import Callable, Iterator

import pytest

from seatrial.core.control_connection.protocol import MAX_READ_BYTES, Connection, node_proof
from seatrial.core.control_connection.server import (
    ACCEPT_AGAIN_AFTER_S,
    AUTHENTICATE_TIMEOUT_S,
    AUTHENTICATE_TIMEOUT_WHEN_FULL_S,
    MAX_HELLO_BYTES,
    MAX_UNAUTHENTICATED,
    ControlServer,
    Listener,
)
from seatrial.core.timeouts import SuspendAwareClock

TIMEOUT_S = 60.0
Connect = Callable[[], socket.socket]


class Driven(ControlServer):
    """Without its thread: turns are taken by the test, at times of its own."""

    def __init__(self) -> None:
        super().__init__("secret", ("node1", "node2"), listening=socket.create_server(("127.0.0.1", 0), backlog=256))
        self.now_m = 0.0
        self._clock = SuspendAwareClock(lambda: self.now_m)

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
        for peer in self._peers:
            peer.connection.close()
        super().close()


@pytest.fixture
def server() -> Iterator[Driven]:
    with contextlib.closing(Driven()) as opened:
        yield opened


@pytest.fixture
def connect(server: Driven) -> Iterator[Connect]:
    with contextlib.ExitStack() as opened:

        def connect() -> socket.socket:
            connected = opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connected.settimeout(TIMEOUT_S)
            return connected

        yield connect


def introduce(server: Driven, connect: Connect, node: str = "node1") -> socket.socket:
    client = connect()
    server.turn()
    nonce = json.loads(client.recv(1000))["nonce"]
    client.sendall(json.dumps({"kind": "hello", "node": node, "proof": node_proof("secret", nonce, node), "nonce": "n"}).encode() + b"\n")
    server.turns_until(lambda: any(peer.node == node for peer in server._peers))
    return client


def unauthenticated(server: Driven) -> int:
    return len(server._unauthenticated())


def test_a_read_is_bounded() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.setblocking(False)
        connection, line = Connection(ours), b'{"kind": "a"}\n'
        sent = 0
        while sent < 3 * MAX_READ_BYTES:
            with contextlib.suppress(BlockingIOError):
                sent += theirs.send(line * 1000)
            assert sum(len(line) for _ in connection.receive()) <= MAX_READ_BYTES + len(line)
        connection.close()


def test_more_is_read_turn_by_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.core.control_connection.protocol.MAX_READ_BYTES", 30)
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    theirs.sendall(b'{"kind": "a"}\n' * 5)
    theirs.close()
    counts = []
    while not connection.closed:
        counts.append(len(connection.receive()))
    assert sum(counts) == 5 and max(counts) <= 3 and connection.closed == "the peer closed the connection"


@pytest.mark.parametrize(
    "first",
    [
        b'{"kind": "a"}\n{"kind": "hello", "node": "node1", "proof": "PROOF"}\n',
        b'{"kind": "heartbeat", "node": "node1", "proof": "PROOF"}\n',
        b'{"kind": "hello", "node": "node1", "proof": ' + b"[" * 900 + b"]" * 900 + b"}\n",
    ],
)
def test_a_wrong_first_message_closes_the_connection(server: Driven, connect: Connect, first: bytes) -> None:
    peer = connect()
    server.turn()
    proof = node_proof("secret", json.loads(peer.recv(1000))["nonce"], "node1")
    peer.sendall(first.replace(b"PROOF", proof.encode()))
    server.turns_until(lambda: not server._peers)
    assert server.poll() == []


def test_a_line_without_an_end_is_cut(server: Driven, connect: Connect) -> None:
    peer = connect()
    server.turn()
    with contextlib.suppress(OSError):
        peer.sendall(b"x" * (MAX_HELLO_BYTES + 1))
    server.turns_until(lambda: not server._peers)


def test_an_authenticated_node_may_send_more(server: Driven, connect: Connect) -> None:
    client = introduce(server, connect)
    client.sendall(json.dumps({"kind": "report", "text": "x" * 2 * MAX_HELLO_BYTES}).encode() + b"\n")
    server.turns_until(lambda: len(server._received) == 2)
    assert [message["kind"] for _, message in server.poll()] == ["hello", "report"]


def test_unauthenticated_peers_are_few_and_a_node_still_gets_in(server: Driven, connect: Connect) -> None:
    kept = [connect() for _ in range(2 * MAX_UNAUTHENTICATED)]
    server.turns_until(lambda: unauthenticated(server) == MAX_UNAUTHENTICATED)
    server.turn()
    assert unauthenticated(server) == MAX_UNAUTHENTICATED, "the others wait in the kernel"
    client = connect()
    server.turn(AUTHENTICATE_TIMEOUT_WHEN_FULL_S + 0.1)
    assert unauthenticated(server) == MAX_UNAUTHENTICATED, "the first ones timed out"
    server.turn(AUTHENTICATE_TIMEOUT_WHEN_FULL_S + 0.1)
    server.turns_until(lambda: unauthenticated(server) == 1)
    assert b"nonce" in client.recv(1000) and len(kept) == 2 * MAX_UNAUTHENTICATED


def test_a_silent_peer_is_closed(server: Driven, connect: Connect) -> None:
    peer = connect()
    server.turn()
    server.turn(AUTHENTICATE_TIMEOUT_S - 1.0)
    assert unauthenticated(server) == 1
    server.turn(1.1)
    assert b"nonce" in peer.recv(1000) and peer.recv(1000) == b"" and server._peers == []


class _NoDescriptors(socket.socket):
    tries = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.tries += 1
        raise OSError(errno.EMFILE, "Too many open files")


def test_without_file_descriptors_nothing_is_accepted_for_a_moment() -> None:
    with _NoDescriptors() as server:
        server.bind(("127.0.0.1", 0))
        listener = Listener(server)
        assert listener.is_open(0.0) and listener.accept(0.0, 5) == []
        assert not listener.is_open(ACCEPT_AGAIN_AFTER_S / 2) and listener.accept(ACCEPT_AGAIN_AFTER_S / 2, 5) == []
        assert server.tries == 1
        assert listener.is_open(ACCEPT_AGAIN_AFTER_S) and listener.accept(ACCEPT_AGAIN_AFTER_S, 5) == [] and server.tries == 2
