"""The harness's end of the control connection: a thread that accepts and authenticates nodes, sends heartbeats, and queues what they send.

    with ControlServer(token, expected=("node1", "node2"), first_message=…) as server:
        … start the nodes with ControlEndpoint(addresses, server.port, token, node) …
        for node, message in server.poll(): …          # hello, the node's messages, and `lost` with its why

It is a thread, so that a harness whose main thread waits for a slow disk still sends heartbeats and no run ends. Any program may connect:
an unauthenticated peer may send few bytes within a second, and is closed at its first wrong message. Where such peers are too many, the
oldest of the address that has the most is closed at once, so that a node always finds room. If the thread fails, every node is lost.
"""

from __future__ import annotations

import contextlib
import errno
import math
import select
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from seatrial import __version__
from seatrial.core.control_connection.encryption import EncryptedChannel, Handshake, encryption_problem, is_nonce, is_version, new_nonce
from seatrial.core.control_connection.protocol import (
    HEARTBEAT,
    HEARTBEAT_EVERY_S,
    LEASE_S,
    ClockOffset,
    Connection,
    Message,
    cannot_encrypt,
    version_mismatch,
)
from seatrial.core.errors import LaunchError
from seatrial.core.timeouts import SuspendAwareClock

# Longest delay of a message that the main thread sends.
TURN_S = 0.1
# A node answers as soon as it is greeted, and tries again where its host was too busy for that.
AUTHENTICATE_TIMEOUT_S = 1.0
# Plus one for each expected node: all of them may connect at once, even from one address. At 500 connections a second
# from one address that do not authenticate, each stays for a quarter of a second.
MAX_UNAUTHENTICATED = 256
MAX_UNAUTHENTICATED_PER_ADDRESS = 128
# Between two turns of heartbeats and messages.
MAX_ACCEPTED_PER_TURN = 64
BACKLOG = 1024
# Ports that are free on one address may be taken on another.
PORT_TRIES = 20
# Enough for the hello of a host with hundreds of virtual interfaces, each with its addresses, encrypted and in base64.
MAX_HELLO_BYTES = 96 * 1024
# For the thread to finish its turn and send what is queued.
CLOSE_TIMEOUT_S = 2.0
ACCEPT_AGAIN_AFTER_S = 1.0
DRAIN_BYTES = 4096
# Half a minute of heartbeats: long enough for a quick one among them, short enough to follow a drift.
OFFSET_WINDOW = 16

FirstMessage = Callable[[str], Mapping[str, Any]]
"""Node → the reply to its hello, without `kind`."""


class ClockOffsetEstimator:
    """How far the clock of one node is ahead of ours, by its answers to heartbeats.

    A node reads its clock at some moment between the sending of a heartbeat and the answer, so the offset is within half a round trip of
    the midpoint. The fastest of the last answers is the best. An answer that a newer one contradicts is dropped: the clock was set or has
    drifted since. Intervals that do not overlap show by how much the clock has moved at least.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._sent: dict[int, tuple[float, float]] = {}
        self._window: deque[ClockOffset] = deque(maxlen=OFFSET_WINDOW)
        self._highest_low, self._lowest_high = -math.inf, math.inf

    def record_sent(self, number: int) -> None:
        """A heartbeat is sent now; its answer may come as late as the lease allows."""
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
        """From the fastest of the last heartbeats; None before the first."""
        return min(self._window, key=lambda measured: measured.round_trip_s, default=None)

    @property
    def moved_s(self) -> float:
        """The least amount by which the offset has moved since the first heartbeat."""
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
        # A full socket wakes already; a closed one has no reader.
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
        """To be called before reading the queue: what arrives in between wakes again."""
        with contextlib.suppress(OSError):
            while self._read_end.recv(DRAIN_BYTES):
                pass

    def close(self) -> None:
        self._write_end.close()
        self._read_end.close()


def listen(addresses: Sequence[str] = ("",), port: int = 0) -> list[socket.socket]:
    """A listening socket for each address, all on the same port: `port`, or for 0 any that is free on every one. OSError where there is
    none. "" stands for all addresses of this host."""
    for tries_left in reversed(range(PORT_TRIES)):
        opened: list[socket.socket] = []
        try:
            for address in addresses:
                opened.append(socket.create_server((address, port or (opened[0].getsockname()[1] if opened else 0)), backlog=BACKLOG))
            return opened
        except OSError as error:
            for one in opened:
                one.close()
            if port or not tries_left or error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError("unreachable")


class Listener:
    """The listening sockets, all on one port. `now` is any monotonic clock.

    When a connection cannot be accepted, usually because all file descriptors are in use, nothing is accepted for a moment: the pending
    connection would wake the server again and again.
    """

    def __init__(self, listening: Sequence[socket.socket]) -> None:
        self._sockets = list(listening)
        for one in self._sockets:
            one.setblocking(False)
        self.port = int(self._sockets[0].getsockname()[1])
        self._accept_from = -math.inf

    def filenos(self) -> list[int]:
        return [one.fileno() for one in self._sockets]

    def is_open(self, now: float) -> bool:
        return now >= self._accept_from

    def accept(self, now: float, most: int) -> Iterator[tuple[socket.socket, str]]:
        """New connections, each with the address it came from; at most so many from each socket."""
        for one in self._sockets:
            for _ in range(most):
                if not self.is_open(now):
                    return
                try:
                    connected, source = one.accept()
                except BlockingIOError:
                    break
                except OSError:
                    self._accept_from = now + ACCEPT_AGAIN_AFTER_S
                else:
                    yield connected, str(source[0])

    def close(self) -> None:
        for one in self._sockets:
            one.close()


@dataclass
class _Peer:
    """One connection; `node` is empty until it is authenticated."""

    connection: Connection
    nonce: str
    since: float
    source: str = ""
    """The address that it came from."""
    introduction: Message | None = None
    """Its first message, in plain text and unauthenticated."""
    node: str = ""
    heard_at: float = 0.0
    silent: bool = False
    """Closed by us after a silence that was too long."""
    is_lost: bool = False
    """Its loss was reported."""
    clock: ClockOffsetEstimator = field(default_factory=ClockOffsetEstimator)


class UnauthenticatedPeers:
    """Peers that have not authenticated yet, by the address they come from: few of each, few in all, none for long."""

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most, self._most_per_address = most, most_per_address
        self._by_address: dict[str, dict[int, _Peer]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_Peer]:
        """In order of arrival within each address."""
        return (peer for peers in self._by_address.values() for peer in peers.values())

    def add(self, peer: _Peer) -> None:
        """If there are too many, close the oldest of this address, or of the address with the most."""
        own = self._by_address.get(peer.source, {})
        if len(own) >= self._most_per_address:
            self._close_oldest(own)
        elif self._count >= self._most:
            self._close_oldest(max(self._by_address.values(), key=len))
        self._by_address.setdefault(peer.source, {})[id(peer)] = peer
        self._count += 1

    def remove(self, peer: _Peer) -> None:
        peers = self._by_address[peer.source]
        del peers[id(peer)]
        self._count -= 1
        if not peers:
            del self._by_address[peer.source]

    def close_older(self, than: float) -> None:
        for peer in [peer for peer in self if peer.since < than]:
            self._close(peer, "it did not authenticate")

    def _close_oldest(self, peers: Mapping[int, _Peer]) -> None:
        self._close(next(iter(peers.values())), "too many unauthenticated connections")

    def _close(self, peer: _Peer, why: str) -> None:
        peer.connection.close(why)
        self.remove(peer)


class ControlServer:
    """All control connections of one run, or of one campaign."""

    def __init__(
        self,
        token: str,
        expected: Collection[str],
        first_message: FirstMessage = lambda node: {},
        listening: Sequence[socket.socket] = (),
        lease_s: float = LEASE_S,
        may_return: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`listening`: sockets of `listen`, by default on all addresses. `may_return`: a node whose connection has ended may connect
        again."""
        if problem := encryption_problem():
            raise LaunchError(cannot_encrypt(socket.gethostname(), problem))
        self._token, self._expected, self._first_message, self._lease_s = token, frozenset(expected), first_message, lease_s
        self._may_return = may_return
        self._listener = Listener(listening or listen())
        self._peers: list[_Peer] = []
        self._unauthenticated = UnauthenticatedPeers(
            MAX_UNAUTHENTICATED + len(self._expected), MAX_UNAUTHENTICATED_PER_ADDRESS + len(self._expected)
        )
        self._received: deque[tuple[str, Message]] = deque()
        self._to_send: deque[tuple[str, Message]] = deque()
        self._heartbeats = 0
        self._heartbeat_at = -math.inf
        # While the harness is suspended it receives nothing, which must not count against the nodes.
        self._clock = SuspendAwareClock(monotonic)
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
            self._close_connections()
        self._waker.close()

    def send(self, node: str, message: Mapping[str, Any]) -> None:
        self._to_send.append((node, dict(message)))

    def send_all(self, message: Mapping[str, Any]) -> None:
        for node in self._expected:
            self.send(node, message)

    def poll(self) -> list[tuple[str, Message]]:
        """(node, message) in order of arrival; `{"kind": "lost", "why": …, "silent": …}` is the last of a node, and `{"kind": "refused",
        "why": …}` comes from one that knows the token and has another version."""
        self._waker.clear()
        received = []
        while self._received:
            received.append(self._received.popleft())
        return received

    def wait(self, timeout_s: float, beside: int | None = None) -> list[tuple[str, Message]]:
        """`poll` as soon as there is a message or `beside` is readable; [] when the time is over."""
        self._waker.wait(timeout_s, beside)
        return self.poll()

    @property
    def connected(self) -> frozenset[str]:
        """The nodes that are connected now."""
        return frozenset(peer.node for peer in list(self._peers) if not peer.is_lost)

    def offset(self, node: str) -> ClockOffset | None:
        """How far its clock is ahead of ours; None where that is unknown."""
        return next((peer.clock.offset for peer in self._peers if peer.node == node), None)

    def clock_moved_s(self, node: str) -> float:
        """The least amount by which its offset has moved since it connected."""
        return next((peer.clock.moved_s for peer in self._peers if peer.node == node), 0.0)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self.turn()
            self._send_queued()
        except Exception as error:
            self._fail(error)
        finally:
            self._close_connections()

    def _close_connections(self) -> None:
        for peer in [*self._peers, *self._unauthenticated]:
            with contextlib.suppress(Exception):
                peer.connection.finish()
        self._listener.close()

    def _fail(self, error: Exception) -> None:
        """Report all nodes as lost: without heartbeats they end their runs."""
        *_, frame = traceback.extract_tb(error.__traceback__)
        problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self.failed = f"the harness's control server failed ({problem}, in {frame.name}, line {frame.lineno})"
        for peer in self._peers:
            self._report_loss(peer, self.failed)

    def turn(self) -> None:
        """One turn of the thread: wait a moment for something to come, then serve, authenticate and accept."""
        ready = self._sleep()
        if self._clock.tick(TURN_S):
            # The nodes got no heartbeat either, and their lease may be nearly over.
            self._heartbeat_at = -math.inf
        now = self._clock.now()
        self._send_queued()
        self._send_heartbeats(now)
        for peer in [*self._peers]:
            if not peer.is_lost:
                self._serve(peer, now, ready)
        # Before others are accepted, which might displace the oldest.
        for peer in [peer for peer in self._unauthenticated if peer.connection.fileno() in ready]:
            self._authenticate(peer, now)
            if peer.node or peer.connection.closed:
                self._unauthenticated.remove(peer)
        self._accept(now)

    def _sleep(self) -> frozenset[int]:
        """File descriptors that can be read or written, or none after a turn. By `poll`, since `select` is limited to 1,024."""
        waiting = select.poll()
        if self._listener.is_open(self._clock.now()):
            for fd in self._listener.filenos():
                waiting.register(fd, select.POLLIN)
        for peer in (*self._peers, *self._unauthenticated):
            if not peer.connection.closed:
                waiting.register(peer.connection, select.POLLIN | (select.POLLOUT if peer.connection.has_unsent else 0))
        return frozenset(fd for fd, _ in waiting.poll(TURN_S * 1000))

    def _accept(self, now: float) -> None:
        self._unauthenticated.close_older(now - AUTHENTICATE_TIMEOUT_S)
        for connected, source in self._listener.accept(now, MAX_ACCEPTED_PER_TURN):
            peer = _Peer(Connection(connected, MAX_HELLO_BYTES), new_nonce(), now, source)
            peer.connection.send({"kind": "nonce", "nonce": peer.nonce, "version": __version__})
            if not peer.connection.closed:
                self._unauthenticated.add(peer)

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
            self._send_heartbeat(peer)

    def _send_heartbeat(self, peer: _Peer) -> None:
        peer.clock.record_sent(self._heartbeats)
        peer.connection.send({"kind": HEARTBEAT, "n": self._heartbeats})

    def _serve(self, peer: _Peer, now: float, ready: Collection[int]) -> None:
        """Exchange messages with a node; notice its end."""
        peer.connection.flush()
        # A closed connection may still hold its last messages.
        if peer.connection.closed or peer.connection.fileno() in ready:
            self._receive(peer, now)
        if not peer.connection.closed and now - peer.heard_at > self._lease_s:
            peer.silent = True
            peer.connection.close(f"no heartbeat from it for {now - peer.heard_at:.0f} s")
        if peer.connection.closed:
            self._report_loss(peer, peer.connection.closed)

    def _receive(self, peer: _Peer, now: float) -> None:
        for message in peer.connection.receive():
            peer.heard_at = now
            if message["kind"] == HEARTBEAT:
                peer.clock.record_answer(message)
            else:
                self._queue(peer.node, message)

    def _report_loss(self, peer: _Peer, why: str) -> None:
        if not peer.is_lost:
            peer.is_lost = True
            self._queue(peer.node, {"kind": "lost", "why": why, "silent": peer.silent})

    def _authenticate(self, peer: _Peer, now: float) -> None:
        """Read an unauthenticated peer's introduction and hello, which may come at once; it is closed at anything else."""
        for message in peer.connection.receive():
            if peer.introduction is None:
                is_right = self._handshake(peer, message)
            else:
                is_right = message["kind"] == "hello" and self._accept_node(peer, message, now)
            if not is_right:
                peer.connection.close("not an expected node")
                return
            if peer.node:
                # Messages may follow the hello at once.
                self._receive(peer, now)
                return

    def _handshake(self, peer: _Peer, message: Message) -> bool:
        """Encrypt from here on, with keys that only the node it claims to be can have. It is not authenticated yet."""
        node, nonce, version = (message.get(key) for key in ("node", "nonce", "version"))
        is_well_formed = message["kind"] == "introduction" and is_nonce(nonce) and is_version(version)
        if not is_well_formed or not isinstance(node, str) or node not in self._expected:
            return False
        handshake = Handshake(
            node=node, harness_nonce=peer.nonce, node_nonce=str(nonce), harness_version=__version__, node_version=str(version)
        )
        peer.introduction = message
        peer.connection.encrypt(EncryptedChannel(self._token, handshake, is_harness=True))
        return True

    def _accept_node(self, peer: _Peer, hello: Message, now: float) -> bool:
        """Accept the node of a hello, which proved its token by decrypting; False where it is refused nevertheless."""
        assert peer.introduction is not None
        node, version = str(peer.introduction["node"]), str(peer.introduction["version"])
        why = version_mismatch(node, version, __version__) if version != __version__ else ""
        if why:
            self._queue(node, {"kind": "refused", "why": why})
        elif not self._may_connect(node):
            why = f"{node} is connected already"
        if why:
            peer.connection.send({"kind": "refused", "why": why})
            peer.connection.finish()
            return False
        peer.node, peer.heard_at = node, now
        self._peers.append(peer)
        peer.connection.lift_limit()
        peer.connection.send({**self._first_message(node), "kind": "welcome"})
        self._heartbeats += 1
        self._send_heartbeat(peer)
        self._queue(node, hello)
        return True

    def _may_connect(self, node: str) -> bool:
        """Whether a node of this name is expected and not connected; a lost one is dropped where it may return."""
        if self._may_return:
            self._peers = [peer for peer in self._peers if peer.node != node or not peer.is_lost]
        return node in self._expected and all(peer.node != node for peer in self._peers)

    def _queue(self, node: str, message: Message) -> None:
        self._received.append((node, message))
        self._waker.wake()
