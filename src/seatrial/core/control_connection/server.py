"""The harness's end of the control connection: a thread that accepts and authenticates nodes, sends heartbeats, and queues what they send.

    with ControlServer(token, expected=("node1", "node2"), welcome=…) as server:
        … start the nodes with ControlEndpoint(addresses, server.port, token, node) …
        for node, message in server.poll(): …          # hello, the node's messages, and `lost` with its why

A thread, so that a harness whose main thread waits for a slow disk still sends heartbeats, and no run ends because of that. Any program may
connect: a peer that is not authenticated yet gets few bytes and little time, and is closed at its first wrong message. If the thread fails,
every node is lost.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import select
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from seatrial.core.control_connection.protocol import (
    HEARTBEAT,
    HEARTBEAT_EVERY_S,
    LEASE_S,
    ClockOffset,
    Connection,
    Message,
    harness_proof,
    node_proof,
    proof_matches,
)
from seatrial.core.timeouts import SuspendAwareClock

# Longest delay of a message that the main thread sends.
TURN_S = 0.1
AUTHENTICATE_TIMEOUT_S = 5.0
AUTHENTICATE_TIMEOUT_WHEN_FULL_S = 1.0
# Few of the file descriptors that a run needs.
MAX_UNAUTHENTICATED = 64
# Enough for the hello of a host with hundreds of virtual interfaces, each with its addresses.
MAX_HELLO_BYTES = 64 * 1024
# For the thread to finish its turn and send what is queued.
CLOSE_TIMEOUT_S = 2.0
ACCEPT_AGAIN_AFTER_S = 1.0
DRAIN_BYTES = 4096
# Half a minute of heartbeats: long enough for a quick one among them, short enough to follow a drift.
OFFSET_WINDOW = 16

Welcome = Callable[[str], Mapping[str, Any]]
"""Node → its first message, beside `kind`."""


class ClockOffsetEstimator:
    """How far the clock of one node is ahead of ours, by heartbeats that it answers with its time.

    A node reads its clock at some moment between the sending of a heartbeat and the answer, so the offset is within half a round trip of
    the midpoint. The quickest of the last answers is the best. One that a newer answer contradicts is dropped: the clock was set since, or
    has drifted. Intervals that do not overlap show how far the clock has moved at least.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._sent: dict[int, tuple[float, float]] = {}
        self._window: deque[ClockOffset] = deque(maxlen=OFFSET_WINDOW)
        self._highest_low, self._lowest_high = -math.inf, math.inf

    def record_sent(self, number: int) -> None:
        """A heartbeat is sent now. Answers may be late, but never by more than the lease."""
        # In this order: a pause between the two lengthens the round trip, and leaves the offset right.
        sent_m = self._monotonic()
        self._sent = dict(list(self._sent.items())[-OFFSET_WINDOW:])
        self._sent[number] = (self._wall(), sent_m)

    def record_answer(self, heartbeat: Message) -> None:
        number, node_t = heartbeat.get("n"), _finite(heartbeat.get("t"))
        sent = self._sent.pop(number, None) if isinstance(number, int) else None
        if sent is None or node_t is None:
            return
        trip_s = self._monotonic() - sent[1]
        newest = ClockOffset(offset_s=node_t - (sent[0] + trip_s / 2), round_trip_s=trip_s)
        agree = (old for old in self._window if abs(old.offset_s - newest.offset_s) <= (old.round_trip_s + trip_s) / 2)
        self._window = deque(agree, maxlen=OFFSET_WINDOW)
        self._window.append(newest)
        self._highest_low = max(self._highest_low, newest.offset_s - trip_s / 2)
        self._lowest_high = min(self._lowest_high, newest.offset_s + trip_s / 2)

    @property
    def offset(self) -> ClockOffset | None:
        """By the quickest of the last heartbeats; None before the first."""
        return min(self._window, key=lambda measured: measured.round_trip_s, default=None)

    @property
    def moved_s(self) -> float:
        """Least distance that the offset has moved since the first heartbeat."""
        return max(0.0, self._highest_low - self._lowest_high)


def _finite(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


class Waker:
    """Wakes one thread from another, through a socket that `poll` can wait for together with other files."""

    def __init__(self) -> None:
        self._write_end, self._read_end = socket.socketpair()
        self._write_end.setblocking(False)
        self._read_end.setblocking(False)

    def wake(self) -> None:
        # A full socket wakes already; a closed one has nobody to wake.
        with contextlib.suppress(OSError):
            self._write_end.send(b"!")

    def wait(self, timeout_s: float, beside: int | None = None) -> bool:
        """True as soon as it is woken or `beside` is readable; False when the time is over."""
        if self._read_end.fileno() < 0:
            time.sleep(timeout_s)
            return False
        waiting = select.poll()
        waiting.register(self._read_end, select.POLLIN)
        if beside is not None:
            waiting.register(beside, select.POLLIN)
        return bool(waiting.poll(timeout_s * 1000))

    def clear(self) -> None:
        """Call this before reading what was announced: what arrives in between wakes again."""
        with contextlib.suppress(OSError):
            while self._read_end.recv(DRAIN_BYTES):
                pass

    def close(self) -> None:
        self._write_end.close()
        self._read_end.close()


class Listener:
    """The listening socket. `now` is any monotonic clock.

    When a connection cannot be accepted, usually because all file descriptors are in use, nothing is accepted for a moment: the pending
    connection would wake the server again and again.
    """

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._socket.setblocking(False)
        self.port = int(listening.getsockname()[1])
        self._accept_from = -math.inf

    def fileno(self) -> int:
        return self._socket.fileno()

    def is_open(self, now: float) -> bool:
        return now >= self._accept_from

    def accept(self, now: float, room: int) -> list[socket.socket]:
        """New connections, at most `room` of them."""
        found: list[socket.socket] = []
        try:
            while len(found) < room and self.is_open(now):
                found.append(self._socket.accept()[0])
        except BlockingIOError:
            pass
        except OSError:
            self._accept_from = now + ACCEPT_AGAIN_AFTER_S
        return found

    def close(self) -> None:
        self._socket.close()


@dataclass
class _Peer:
    """One connection; `node` is empty until it is authenticated."""

    connection: Connection
    nonce: str
    since: float
    node: str = ""
    heard_at: float = 0.0
    silent: bool = False
    """Closed by us, since nothing was received for too long."""
    is_lost: bool = False
    """Its loss was reported."""
    clock: ClockOffsetEstimator = field(default_factory=ClockOffsetEstimator)


class ControlServer:
    """All control connections of one run, or of one campaign."""

    def __init__(
        self,
        token: str,
        expected: Collection[str],
        welcome: Welcome = lambda node: {},
        listening: socket.socket | None = None,
        lease_s: float = LEASE_S,
        may_return: bool = False,
    ) -> None:
        """`may_return`: a node whose connection has ended may connect again."""
        self._token, self._expected, self._welcome, self._lease_s = token, frozenset(expected), welcome, lease_s
        self._may_return = may_return
        self._listener = Listener(listening or socket.create_server(("", 0), backlog=256))
        self._peers: list[_Peer] = []
        self._received: deque[tuple[str, Message]] = deque()
        self._to_send: deque[tuple[str, Message]] = deque()
        self._heartbeats = 0
        self._heartbeat_at = -math.inf
        # While the harness is suspended it receives nothing, which must not count against the nodes.
        self._clock = SuspendAwareClock()
        self._stopping = False
        self.failed = ""
        """Why the server thread failed; empty while it works."""
        self._waker = Waker()
        self._thread = threading.Thread(target=self._run, name="seatrial-control-server", daemon=True)

    @property
    def port(self) -> int:
        return self._listener.port

    def __enter__(self) -> ControlServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection, so that the harness counts as gone."""
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        else:
            self._listener.close()
        self._waker.close()

    def send(self, node: str, message: Mapping[str, Any]) -> None:
        self._to_send.append((node, dict(message)))

    def send_all(self, message: Mapping[str, Any]) -> None:
        for node in self._expected:
            self.send(node, message)

    def poll(self) -> list[tuple[str, Message]]:
        """(node, message) in order of arrival; `{"kind": "lost", "why": …, "silent": …}` is the last of a node."""
        self._waker.clear()
        received = []
        while self._received:
            received.append(self._received.popleft())
        return received

    def wait(self, timeout_s: float, beside: int | None = None) -> list[tuple[str, Message]]:
        """`poll` as soon as there is a message or `beside` is readable; [] when the time is over."""
        self._waker.wait(timeout_s, beside)
        return self.poll()

    def offset(self, node: str) -> ClockOffset | None:
        """How far its clock is ahead of ours; None where that is unknown."""
        return next((peer.clock.offset for peer in self._peers if peer.node == node), None)

    def clock_moved_s(self, node: str) -> float:
        """Least distance that the offset has moved since it connected."""
        return next((peer.clock.moved_s for peer in self._peers if peer.node == node), 0.0)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
            self._send_queued()
        except Exception as error:
            self._fail(error)
        finally:
            for peer in self._peers:
                with contextlib.suppress(Exception):
                    peer.connection.finish()
            self._listener.close()

    def _fail(self, error: Exception) -> None:
        """Without heartbeats all nodes end their runs, and the harness must know that they are lost."""
        *_, frame = traceback.extract_tb(error.__traceback__)
        problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self.failed = f"the harness's control server failed ({problem}, in {frame.name}, line {frame.lineno})"
        for peer in self._peers:
            if peer.node:
                self._lose(peer, self.failed)

    def _turn(self) -> None:
        open_peers = [peer for peer in self._peers if not peer.connection.closed]
        self._sleep(open_peers)
        if self._clock.tick(TURN_S):
            # The nodes got no heartbeat either, and their lease may be nearly over.
            self._heartbeat_at = -math.inf
        now = self._clock.now()
        self._accept(now)
        self._send_queued()
        self._send_heartbeats(now)
        for peer in open_peers:
            peer.connection.flush()
            self._receive(peer, now)
        self._peers = [peer for peer in self._peers if not peer.connection.closed or peer.node]

    def _sleep(self, open_peers: list[_Peer]) -> None:
        """Until something can be read or written, or a turn is over. `select` takes no thousand connections; `poll` does."""
        waiting = select.poll()
        if self._room() and self._listener.is_open(self._clock.now()):
            waiting.register(self._listener, select.POLLIN)
        for peer in open_peers:
            waiting.register(peer.connection, select.POLLIN | (select.POLLOUT if peer.connection.has_unsent else 0))
        waiting.poll(TURN_S * 1000)

    def _unauthenticated(self) -> list[_Peer]:
        return [peer for peer in self._peers if not peer.node and not peer.connection.closed]

    def _room(self) -> int:
        """How many more may connect; the others wait in the backlog."""
        return MAX_UNAUTHENTICATED - len(self._unauthenticated())

    def _accept(self, now: float) -> None:
        timeout_s = AUTHENTICATE_TIMEOUT_S if self._room() else AUTHENTICATE_TIMEOUT_WHEN_FULL_S
        for peer in self._unauthenticated():
            if now - peer.since > timeout_s:
                peer.connection.close("it did not authenticate")
        for connected in self._listener.accept(now, self._room()):
            peer = _Peer(Connection(connected, MAX_HELLO_BYTES), secrets.token_hex(16), now)
            peer.connection.send({"kind": "nonce", "nonce": peer.nonce})
            self._peers.append(peer)

    def _send_queued(self) -> None:
        while self._to_send:
            node, message = self._to_send.popleft()
            for peer in self._peers:
                if peer.node == node:
                    peer.connection.send(message)

    def _send_heartbeats(self, now: float) -> None:
        if now - self._heartbeat_at < HEARTBEAT_EVERY_S:
            return
        self._heartbeat_at, self._heartbeats = now, self._heartbeats + 1
        for peer in self._peers:
            if peer.node:
                self._send_heartbeat(peer)

    def _send_heartbeat(self, peer: _Peer) -> None:
        peer.clock.record_sent(self._heartbeats)
        peer.connection.send({"kind": HEARTBEAT, "n": self._heartbeats})

    def _receive(self, peer: _Peer, now: float) -> None:
        for message in peer.connection.receive():
            peer.heard_at = now
            if not peer.node:
                if not self._authenticate(peer, message):
                    break
            elif message["kind"] == HEARTBEAT:
                peer.clock.record_answer(message)
            else:
                self._queue(peer.node, message)
        if not peer.node:
            return
        if not peer.connection.closed and now - peer.heard_at > self._lease_s:
            peer.silent = True
            peer.connection.close(f"no heartbeat from it for {now - peer.heard_at:.0f} s")
        if peer.connection.closed:
            self._lose(peer, peer.connection.closed)

    def _lose(self, peer: _Peer, why: str) -> None:
        if not peer.is_lost:
            peer.is_lost = True
            self._queue(peer.node, {"kind": "lost", "why": why, "silent": peer.silent})

    def _authenticate(self, peer: _Peer, message: Message) -> bool:
        """Whether its first message proves that it is one of our nodes; otherwise it is closed."""
        node = message.get("node")
        is_proved = isinstance(node, str) and proof_matches(message.get("proof"), node_proof(self._token, peer.nonce, node))
        if message["kind"] != "hello" or not is_proved or not self._may_connect(str(node)):
            peer.connection.close("not a node of ours")
            return False
        peer.node = str(node)
        peer.connection.lift_limit()
        ours = harness_proof(self._token, str(message.get("nonce")), peer.node)
        peer.connection.send({**self._welcome(peer.node), "kind": "welcome", "proof": ours})
        self._heartbeats += 1
        self._send_heartbeat(peer)
        self._queue(peer.node, message)
        return True

    def _may_connect(self, node: str) -> bool:
        """Whether a node of this name is expected and not connected; a lost one is dropped where it may return."""
        if self._may_return:
            self._peers = [peer for peer in self._peers if peer.node != node or not peer.is_lost]
        return node in self._expected and all(peer.node != node for peer in self._peers)

    def _queue(self, node: str, message: Message) -> None:
        self._received.append((node, message))
        self._waker.wake()
