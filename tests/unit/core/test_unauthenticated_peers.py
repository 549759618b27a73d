"""Peers that connect and never authenticate: however much they send, and however many they are, the nodes are served."""

from __future__ import annotations

import contextlib
import errno
import json
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from seatrial import __version__
from seatrial.core.control_connection.encryption import EncryptedChannel, Handshake, new_nonce
from seatrial.core.control_connection.protocol import MAX_READ_BYTES, Connection, Message
from seatrial.core.control_connection.server import (
    ACCEPT_AGAIN_AFTER_S,
    AUTHENTICATE_TIMEOUT_S,
    MAX_HELLO_BYTES,
    MAX_UNAUTHENTICATED,
    MAX_UNAUTHENTICATED_PER_ADDRESS,
    ControlServer,
    Listener,
    listen,
)

TIMEOUT_S = 60.0
NODES = ("node1", "node2")
Connect = Callable[..., socket.socket]


class Driven(ControlServer):
    """Without its thread: turns are taken by the test, at times of its own."""

    def __init__(self) -> None:
        self.now_m = 0.0
        self.listening = listen(("127.0.0.1",))
        self.received: list[tuple[str, Message]] = []
        super().__init__("secret", NODES, listening=self.listening, monotonic=lambda: self.now_m)

    def turn(self, later_s: float = 0.0) -> None:
        self.now_m += later_s
        super().turn()
        self.received += self.poll()

    @property
    def num_unauthenticated(self) -> int:
        return len(self._unauthenticated)

    def turns_until(self, happened: Callable[[], bool]) -> None:
        for _ in range(1000):
            if happened():
                return
            self.turn()
        raise AssertionError("it did not happen")


@pytest.fixture
def server() -> Iterator[Driven]:
    with contextlib.closing(Driven()) as opened:
        yield opened


@pytest.fixture
def connect(server: Driven) -> Iterator[Connect]:
    with contextlib.ExitStack() as opened:

        def connect(source: str = "127.0.0.1") -> socket.socket:
            connected = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), source_address=(source, 0)))
            connected.settimeout(TIMEOUT_S)
            return connected

        yield connect


def sealed(token: str, greeting: dict[str, str], *messages: dict[str, object], node: str = "node1") -> bytes:
    """What a node that knows `token` sends after the greeting: its introduction, then encrypted messages."""
    introduction = {"kind": "introduction", "node": node, "nonce": new_nonce(), "version": __version__}
    handshake = Handshake(
        node=node,
        harness_nonce=greeting["nonce"],
        node_nonce=introduction["nonce"],
        harness_version=greeting["version"],
        node_version=__version__,
    )
    channel = EncryptedChannel(token, handshake, is_harness=False)
    return b"\n".join([json.dumps(introduction).encode(), *(channel.seal(json.dumps(message).encode()) for message in messages), b""])


def introduce(server: Driven, connect: Connect, *messages: dict[str, object]) -> None:
    """A node that sends `messages` once it is let in."""
    client = connect()
    server.turn()
    introduction, hello, *others = sealed("secret", json.loads(client.recv(1000)), {"kind": "hello"}, *messages).splitlines(keepends=True)
    client.sendall(introduction + hello)
    server.turns_until(lambda: server.connected == {"node1"})
    client.sendall(b"".join(others))


def unaccepted(server: Driven) -> int:
    """Connections that wait in the kernel."""
    with select.epoll() as waiting:
        for one in server.listening:
            waiting.register(one, select.EPOLLIN)
        return len(waiting.poll(0))


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
        counts.append(len(list(connection.receive())))
    assert sum(counts) == 5 and max(counts) <= 3 and connection.closed == "the peer closed the connection"


INTRODUCTION = {"kind": "introduction", "node": "node1", "nonce": "0" * 64, "version": __version__}
NESTED = b'{"kind": "introduction", "node": "node1", "nonce": ' + b"[" * 900 + b"]" * 900 + b"}"


@pytest.mark.parametrize(
    "first",
    [
        *({**INTRODUCTION, "kind": kind} for kind in ("a", "hello", "heartbeat")),
        *({**INTRODUCTION, "nonce": nonce} for nonce in ("", "0" * 63, "0" * 65, "G" * 64, "0" * 63 + "\n", "\u0660" * 64, [1], None)),
        *({**INTRODUCTION, "version": version} for version in ("", "1" * 41, "1\n", None)),
        *({**INTRODUCTION, "node": node} for node in ("node9", "", None, ["node1"])),
    ],
    ids=str,
)
def test_an_introduction_has_one_form(server: Driven, connect: Connect, first: dict[str, object]) -> None:
    peer = connect()
    server.turn()
    assert b"nonce" in peer.recv(1000)
    peer.sendall(json.dumps(first).encode() + b"\n")
    server.turns_until(lambda: server.num_unauthenticated == 0)
    assert server.received == [] and not server.connected


@pytest.mark.parametrize(
    "behind",
    [b'{"kind": "hello"}', NESTED, b"", b"AAAA", b"*", json.dumps(INTRODUCTION).encode()],
    ids=["plain", "nested", "empty", "short", "no base64", "introduction"],
)
def test_what_is_not_encrypted_with_the_token_is_not_read(server: Driven, connect: Connect, behind: bytes) -> None:
    peer = connect()
    server.turn()
    assert b"nonce" in peer.recv(1000)
    peer.sendall(json.dumps(INTRODUCTION).encode() + b"\n" + behind + b"\n")
    server.turns_until(lambda: server.num_unauthenticated == 0)
    assert server.received == [] and not server.connected


def test_a_line_without_an_end_is_cut(server: Driven, connect: Connect) -> None:
    peer = connect()
    server.turn()
    with contextlib.suppress(OSError):
        peer.sendall(b"x" * (MAX_HELLO_BYTES + 1))
    server.turns_until(lambda: server.num_unauthenticated == 0)


def test_an_authenticated_node_may_send_more_at_once(server: Driven, connect: Connect) -> None:
    introduce(server, connect, {"kind": "report", "text": "x" * MAX_HELLO_BYTES}, {"kind": "report", "text": "y" * 2 * MAX_HELLO_BYTES})
    server.turns_until(lambda: len(server.received) == 3)
    assert [message["kind"] for _, message in server.received] == ["hello", "report", "report"]


def test_unauthenticated_peers_are_few_and_a_node_still_gets_in(server: Driven, connect: Connect) -> None:
    most = MAX_UNAUTHENTICATED_PER_ADDRESS + len(NODES)
    waiting = connect("127.0.0.9")
    peers = [connect() for _ in range(2 * most)]
    server.turns_until(lambda: unaccepted(server) == 0)
    assert server.num_unauthenticated == most + 1, "nobody waits in the kernel"
    assert b"nonce" in waiting.recv(1000)
    assert peers[0].recv(1000) and peers[0].recv(1000) == b"", "the first was closed"
    assert peers[-1].recv(1000)
    introduce(server, connect)
    assert [message["kind"] for _, message in server.received] == ["hello"]


def test_unauthenticated_of_many_addresses_are_limited_too(server: Driven, connect: Connect) -> None:
    waiting = connect("127.0.0.9")
    server.turns_until(lambda: server.num_unauthenticated == 1)
    for _ in range(MAX_UNAUTHENTICATED // 2 + 10):
        for source in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            connect(source)
        server.turn()
    server.turns_until(lambda: unaccepted(server) == 0)
    assert server.num_unauthenticated == MAX_UNAUTHENTICATED + len(NODES)
    waiting.sendall(sealed("secret", json.loads(waiting.recv(1000)), {"kind": "hello"}))
    server.turns_until(lambda: bool(server.connected))
    assert [name for name, _ in server.received] == ["node1"], "the oldest of all, but alone at its address"


def test_a_silent_peer_is_closed(server: Driven, connect: Connect) -> None:
    peer = connect()
    server.turn()
    server.turn(AUTHENTICATE_TIMEOUT_S - 0.5)
    assert server.num_unauthenticated == 1
    server.turn(0.6)
    assert b"nonce" in peer.recv(1000) and peer.recv(1000) == b"" and server.num_unauthenticated == 0


def test_a_port_is_the_same_on_every_address_and_on_no_other() -> None:
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(one) for one in listen(("127.0.0.1", "127.0.0.2"))]
        (port,) = {one.getsockname()[1] for one in sockets}
        for address in ("127.0.0.1", "127.0.0.2"):
            socket.create_connection((address, port), TIMEOUT_S).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.3", port), TIMEOUT_S)
        with pytest.raises(OSError):
            listen(("127.0.0.1",), port)


class _NoDescriptors(socket.socket):
    tries = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.tries += 1
        raise OSError(errno.EMFILE, "Too many open files")


def test_without_file_descriptors_nothing_is_accepted_for_a_moment() -> None:
    with _NoDescriptors() as server:
        server.bind(("127.0.0.1", 0))
        listener = Listener([server])
        assert listener.is_open(0.0) and list(listener.accept(0.0, 5)) == []
        assert not listener.is_open(ACCEPT_AGAIN_AFTER_S / 2) and list(listener.accept(ACCEPT_AGAIN_AFTER_S / 2, 5)) == []
        assert server.tries == 1
        assert listener.is_open(ACCEPT_AGAIN_AFTER_S) and list(listener.accept(ACCEPT_AGAIN_AFTER_S, 5)) == [] and server.tries == 2
