"""Both ends of the control connection over loopback: authentication, heartbeats, messages, and every way in which it ends."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from seatrial.core.control_connection.encryption import EncryptedChannel
from seatrial.core.control_connection.protocol import ClockOffset, Connection, ControlClient, ControlConnectionError, ControlEndpoint
from seatrial.core.control_connection.server import OFFSET_WINDOW, ClockOffsetEstimator, ControlServer, Waker, listen
from seatrial.core.errors import LaunchError
from tests.waiting import wait_until

TIMEOUT_S = 60.0


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer("secret", ("node1", "node2"), first_message=lambda node: {"env": {"NAME": node}}) as opened:
        yield opened


def endpoint(server: ControlServer, node: str = "node1", token: str = "secret") -> ControlEndpoint:
    return ControlEndpoint(addresses=("127.0.0.1",), port=server.port, token=token, node=node)


def wait_for(server: ControlServer, count: int) -> list[tuple[str, dict[str, object]]]:
    received: list[tuple[str, dict[str, object]]] = []

    def has_all() -> bool:
        received.extend(server.wait(0.2))
        return len(received) >= count

    wait_until(has_all, f"{count} messages")
    return received


@pytest.fixture
def connect() -> Iterator[Callable[[ControlEndpoint], ControlClient]]:
    """Connects clients that are closed when the test is over."""
    with contextlib.ExitStack() as opened:
        yield lambda call: opened.enter_context(contextlib.closing(ControlClient.connect(call, {"host": "n1"})))


def received(client: ControlClient) -> list[dict[str, object]]:
    return wait_until(lambda: client.receive(time.monotonic()), "a message")


def wait_until_lost(client: ControlClient) -> str:
    def lost() -> str:
        client.receive(time.monotonic())
        return client.lost(time.monotonic())

    return wait_until(lost, "the connection is lost")


def test_a_node_connects_and_messages_go_both_ways(server: ControlServer, connect: Callable[[ControlEndpoint], ControlClient]) -> None:
    client = connect(endpoint(server))
    assert client.first_message["env"] == {"NAME": "node1"}
    client.send({"kind": "report", "report": {"kind": "gone"}})
    (name, hello), (_, report) = wait_for(server, 2)
    assert (name, hello["host"]) == ("node1", "n1")
    assert report == {"kind": "report", "report": {"kind": "gone"}}
    server.send("node1", {"kind": "order", "word": "stop"})
    assert received(client) == [{"kind": "order", "word": "stop"}]
    assert client.lost(time.monotonic()) == ""


def test_the_clock_is_measured_by_the_first_heartbeat(server: ControlServer, connect: Callable[[ControlEndpoint], ControlClient]) -> None:
    client = connect(endpoint(server))

    def measured() -> ClockOffset | None:
        client.receive(time.monotonic())
        return server.offset("node1")

    offset = wait_until(measured, "the clock is measured")
    assert offset is not None
    assert abs(offset.offset_s) <= offset.round_trip_s + 0.05


@pytest.mark.parametrize(("node", "token"), [("node1", "guess"), ("node9", "secret"), ("node2", "secret")])
def test_a_wrong_token_and_an_unexpected_or_connected_node_are_refused(
    server: ControlServer, connect: Callable[[ControlEndpoint], ControlClient], node: str, token: str
) -> None:
    connect(endpoint(server, "node2"))
    with pytest.raises(ControlConnectionError, match=node):
        ControlClient.connect(endpoint(server, node, token), {}, timeout_s=0.0)
    assert [name for name, _ in wait_for(server, 1)] == ["node2"]


def test_an_address_of_the_node_itself_is_not_tried(server: ControlServer) -> None:
    """Whoever listens at 172.17.0.1 of this host is not the harness of another."""
    with pytest.raises(ControlConnectionError, match="an address of this host, but the harness runs elsewhere"):
        ControlClient.connect(endpoint(server), {}, timeout_s=0.0, is_own=lambda address: address == "127.0.0.1")
    assert server.poll() == []


def test_without_encryption_there_is_no_connection(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ControlConnectionError, match=r"node1 cannot encrypt .*ModuleNotFoundError.*`cryptography`"):
        ControlClient.connect(endpoint(server), {})
    with pytest.raises(LaunchError, match="cannot encrypt"):
        ControlServer("secret", ("node1",))


def test_a_node_that_disconnects_is_lost(server: ControlServer) -> None:
    ControlClient.connect(endpoint(server), {}).close()
    received = wait_for(server, 2)
    assert [(name, message["kind"]) for name, message in received] == [("node1", "hello"), ("node1", "lost")]
    assert received[1][1]["silent"] is False


def test_a_harness_that_disconnects_is_lost_to_the_node(server: ControlServer, connect: Callable[[ControlEndpoint], ControlClient]) -> None:
    client = connect(endpoint(server))
    server.close()
    assert "ended" in wait_until_lost(client)


def test_silence_is_the_end_after_the_lease(connect: Callable[[ControlEndpoint], ControlClient]) -> None:
    with ControlServer("secret", ("node1",), listening=listen(("127.0.0.1",))) as server:
        client = connect(endpoint(server))
        now = time.monotonic()
        assert client.lost(now + 19) == ""
        assert "no heartbeat from the harness for 25 s" in client.lost(now + 25)


def test_what_is_no_message_closes_the_connection(server: ControlServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        peer.settimeout(TIMEOUT_S)
        assert b"nonce" in peer.recv(1000)
        assert peer.recv(1000) == b""


def test_what_comes_right_behind_the_welcome_is_not_lost(connect: Callable[[ControlEndpoint], ControlClient]) -> None:
    def welcome(node: str) -> dict[str, object]:
        server.send(node, {"kind": "go"})
        return {}

    with ControlServer("secret", ("node1",), first_message=welcome) as server:
        assert received(connect(endpoint(server))) == [{"kind": "go"}]


def test_a_harness_without_the_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program listens where a harness was, takes anybody in, and would be obeyed."""

    class Welcoming(EncryptedChannel):
        def open(self, line: bytes) -> bytes:
            return b'{"kind": "hello"}'

    monkeypatch.setattr("seatrial.core.control_connection.server.EncryptedChannel", Welcoming)
    with ControlServer("guess", ("node1",)) as server, pytest.raises(ControlConnectionError, match="authentication failed: wrong token"):
        ControlClient.connect(endpoint(server), {}, timeout_s=0.0)


def test_heartbeats_of_any_kind_break_nothing(server: ControlServer, connect: Callable[[ControlEndpoint], ControlClient]) -> None:
    client = connect(endpoint(server))
    for wrong in ({"n": [1], "t": 1}, {"n": 1, "t": "late"}, {}, *({"n": number, "t": 10**400} for number in range(9))):
        client.send({"kind": "heartbeat", **wrong})
    client.send({"kind": "report"})
    assert [message["kind"] for _, message in wait_for(server, 2)] == ["hello", "report"]


def test_last_messages_are_received_though_nothing_can_be_sent_any_more() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    theirs.sendall(b'{"kind": "report"}\n')
    theirs.close()
    connection.send({"kind": "heartbeat"})
    connection.send({"kind": "heartbeat"})
    assert connection.closed
    assert list(connection.receive()) == [{"kind": "report"}]


def test_a_harness_that_was_suspended_loses_nobody() -> None:
    now_m = [0.0]
    # Not started: turns are taken here, at times of this test.
    server = ControlServer("secret", ("node1",), listening=listen(("127.0.0.1",)), lease_s=20.0, monotonic=lambda: now_m[0])
    with contextlib.closing(server), ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(ControlClient.connect, endpoint(server), {}, now=lambda: now_m[0])
        while not connecting.done():
            server.turn()
        with contextlib.closing(connecting.result()) as client:
            assert [message["kind"] for _, message in server.poll()] == ["hello"]
            now_m[0] = 1.5
            server.turn()
            client.receive(now_m[0])
            server.turn()
            now_m[0] = 100.0
            server.turn()
            assert server.poll() == [], "the node had nobody to answer to"
            assert client.lost(now_m[0])
            client.receive(now_m[0])
            assert client.lost(now_m[0]) == "", "and hears at once that there is somebody again"
            # Awake for the lease, turn by turn, is another matter.
            for _ in range(7):
                now_m[0] += 4.0
                server.turn()
            assert [(message["kind"], message["silent"]) for _, message in server.poll()] == [("lost", True)]


def test_when_its_thread_fails_every_node_is_lost_with_the_reason(connect: Callable[[ControlEndpoint], ControlClient]) -> None:
    with ControlServer("secret", ("node1", "node2", "node3")) as server:
        clients = [connect(endpoint(server, name)) for name in ("node1", "node2")]
        assert len(wait_for(server, 2)) == 2 and server.failed == ""
        server.send("node1", {"kind": "go", "env": object()})
        lost = wait_for(server, 2)
        assert [(name, message["kind"], message["silent"]) for name, message in lost] == [
            ("node1", "lost", False),
            ("node2", "lost", False),
        ]
        assert "TypeError" in server.failed and {message["why"] for _, message in lost} == {server.failed}
        assert all("ended" in wait_until_lost(client) for client in clients)
        assert server.poll() == [] and server.wait(0.01) == []


def test_a_lost_node_may_connect_again_where_that_is_wanted(connect: Callable[[ControlEndpoint], ControlClient]) -> None:
    with ControlServer("secret", ("node1",), may_return=True) as server:
        first = connect(endpoint(server))
        with pytest.raises(ControlConnectionError):
            ControlClient.connect(endpoint(server), {}, timeout_s=0.0)
        first.close()
        assert [message["kind"] for _, message in wait_for(server, 2)] == ["hello", "lost"]
        connect(endpoint(server))
        assert [message["kind"] for _, message in wait_for(server, 1)] == ["hello"]


@pytest.fixture
def waker() -> Iterator[Waker]:
    with contextlib.closing(Waker()) as opened:
        yield opened


def test_a_wait_ends_when_another_thread_wakes_it_before_or_during(waker: Waker) -> None:
    assert not waker.wait(0.0) and not waker.wait(0.001)
    waking = threading.Thread(target=waker.wake)
    waking.start()
    assert waker.wait(TIMEOUT_S) and waker.wait(TIMEOUT_S), "until it is cleared"
    waking.join()
    # More than the socket holds.
    for _ in range(100_000):
        waker.wake()
    waker.clear()
    assert not waker.wait(0.0)


def test_a_wait_ends_when_another_file_is_readable(waker: Waker) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not waker.wait(0.0, ours.fileno())
        theirs.sendall(b"!")
        assert waker.wait(TIMEOUT_S, ours.fileno()) and not waker.wait(0.0)


def test_a_wait_does_not_poll(monkeypatch: pytest.MonkeyPatch, waker: Waker) -> None:
    waits_ms: list[float] = []

    class Poll:
        def register(self, file: object, events: int) -> None: ...

        def poll(self, timeout_ms: float) -> list[object]:
            waits_ms.append(timeout_ms)
            return []

    monkeypatch.setattr("seatrial.core.control_connection.server.select.poll", Poll)
    assert not waker.wait(3.0) and waits_ms == [3000.0]


def test_a_closed_waker_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    waker, slept = Waker(), []
    monkeypatch.setattr("seatrial.core.control_connection.server.time.sleep", slept.append)
    waker.close()
    waker.wake()
    waker.clear()
    assert not waker.wait(3.0)
    assert slept == [3.0]


class Heartbeats:
    """A node whose clock is `ahead_s` ahead, asked by a harness whose wall clock began at 1000."""

    def __init__(self) -> None:
        self.now_m, self.ahead_s, self.number = 0.0, 0.0, 0
        self.watch = ClockOffsetEstimator(wall=lambda: 1000.0 + self.now_m, monotonic=lambda: self.now_m)

    def send(self, there_s: float = 0.001, back_s: float = 0.001) -> None:
        self.number += 1
        self.watch.record_sent(self.number)
        self.now_m += there_s
        node_t = 1000.0 + self.now_m + self.ahead_s
        self.now_m += back_s
        self.watch.record_answer({"kind": "heartbeat", "n": self.number, "t": node_t})
        self.now_m += 2.0

    def offset_s(self) -> float:
        assert self.watch.offset is not None
        return self.watch.offset.offset_s


@pytest.fixture
def heartbeats() -> Heartbeats:
    return Heartbeats()


def test_the_quickest_of_the_last_heartbeats_counts(heartbeats: Heartbeats) -> None:
    assert heartbeats.watch.offset is None and heartbeats.watch.moved_s == 0.0
    heartbeats.ahead_s = 5.0
    heartbeats.send(there_s=3.0, back_s=0.0)
    assert heartbeats.offset_s() == pytest.approx(6.5)
    heartbeats.send()
    heartbeats.send(there_s=0.5)
    assert heartbeats.offset_s() == pytest.approx(5.0)
    assert heartbeats.watch.moved_s == 0.0, "all of them can be true of a clock that stood still"


def test_a_clock_that_was_set_is_followed_at_once(heartbeats: Heartbeats) -> None:
    heartbeats.send()
    heartbeats.ahead_s = 3600.0
    heartbeats.send(there_s=0.2, back_s=0.2)
    assert heartbeats.offset_s() == pytest.approx(3600.0)
    assert 3599.0 < heartbeats.watch.moved_s <= 3600.0
    heartbeats.ahead_s = 0.0
    heartbeats.send()
    assert heartbeats.offset_s() == pytest.approx(0.0) and heartbeats.watch.moved_s > 3599.0, "that it was set stays known"


def test_a_slow_drift_is_followed_though_the_network_grew_busy(heartbeats: Heartbeats) -> None:
    heartbeats.send()
    for _ in range(OFFSET_WINDOW):
        heartbeats.ahead_s += 0.01
        heartbeats.send(there_s=0.2, back_s=0.2)
    assert heartbeats.offset_s() == pytest.approx(heartbeats.ahead_s, abs=0.2)
    assert heartbeats.watch.offset is not None and heartbeats.watch.offset.round_trip_s == pytest.approx(0.4), (
        "the first one is out of the window"
    )


@pytest.mark.parametrize(
    ("number", "node_t"),
    [*((1, node_t) for node_t in (10**400, float("nan"), float("inf"), "late", None, [1])), *((n, 1000.0) for n in (None, [1], 7, "1"))],
)
def test_an_answer_without_a_time_or_to_no_heartbeat_is_ignored(heartbeats: Heartbeats, number: object, node_t: object) -> None:
    heartbeats.watch.record_sent(1)
    heartbeats.watch.record_answer({"kind": "heartbeat", "n": number, "t": node_t})
    assert heartbeats.watch.offset is None
    heartbeats.send()
    assert heartbeats.watch.offset is not None
