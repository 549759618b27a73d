"""The protocol of the control connection: messages, the handshake, one non-blocking socket; and the node's end of it.

A message is one JSON object on one line, with its `kind`:

    {"kind": "nonce", "nonce": "…", "version": "…"}                     harness to node, in plain text
    {"kind": "introduction", "node": "…", "nonce": "…", "version": "…"} node to harness, in plain text; these two forms never change
    hello                                                               node to harness, and every later line both ways: encrypted
    welcome, or refused with why                                        harness to node

A hello that opens proves that the node knows the token and is no replay, a welcome proves the same of the harness. The node's end:

    client = ControlClient.connect(endpoint, hello)         # within CONNECT_TIMEOUT_S, else ControlConnectionError
    for message in client.receive(now): …                   # at once: something may have come right behind the welcome
    … wait for client.fileno(), receive again …
    if why := client.lost(now): kill everything

Heartbeats are answered here and not returned. `now` is any clock that stops while this process is suspended (`SuspendAwareClock`).
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seatrial import __version__
from seatrial.core.control_connection.encryption import (
    EncryptedChannel,
    EncryptionError,
    Handshake,
    encryption_problem,
    is_nonce,
    is_version,
    new_nonce,
)

LEASE_S = 20.0
"""Silence for this long ends a run. Ten heartbeats: a busy host or a short network outage is no reason to end one."""
HEARTBEAT = "heartbeat"
"""Kind of the message that the harness sends every HEARTBEAT_EVERY_S and a node answers with its clock."""
HEARTBEAT_EVERY_S = 2.0
# The longest message is a whole environment, encrypted and in base64.
MAX_LINE_BYTES = 8 * 1024 * 1024
TOKEN_BYTES = 32
READ_BYTES = 64 * 1024
# Bytes read at once from one peer, so that it does not block the rest of a loop.
MAX_READ_BYTES = 4 * READ_BYTES
# The same for a peer that is gone: more than the kernel buffers for a socket.
MAX_LAST_BYTES = 16 * 1024 * 1024

Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ControlEndpoint:
    """Where and how a node reaches the harness; kept in a file that only the user can read."""

    addresses: tuple[str, ...]
    """The harness's names or addresses, tried one after another."""
    port: int
    token: str
    node: str
    """The name under which it is expected."""
    lease_s: float = LEASE_S
    network_stack: str = ""
    """The harness's (`machine.network.network_stack`): if the node's differs, its own addresses are not the harness's."""


@dataclass(frozen=True, kw_only=True)
class ClockOffset:
    """How far a node's wall clock is ahead of the harness's, by the heartbeat with the fastest answer."""

    offset_s: float
    round_trip_s: float
    """The true offset is within half of this."""


def new_token() -> str:
    """The secret that the two ends of a connection share."""
    return secrets.token_hex(TOKEN_BYTES)


class Connection:
    """One connected, non-blocking socket: queues what cannot be sent now, and splits what arrives into messages.

    In plain text until `encrypt`. `closed` is why it was closed; empty while it is open.
    """

    def __init__(self, connected: socket.socket, max_bytes: float = math.inf) -> None:
        """`max_bytes`: a peer that is not authenticated yet and sends more is disconnected."""
        self._socket, self._bytes_left = connected, max_bytes
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            # A heartbeat held back until there is more to send would lengthen the measured round trip.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unfinished_line = b""
        self._unsent = b""
        self._lines: deque[bytes] = deque()
        self._channel: EncryptedChannel | None = None
        self.closed = ""

    def fileno(self) -> int:
        return self._socket.fileno()

    def encrypt(self, channel: EncryptedChannel) -> None:
        """Every later line is encrypted, in both directions."""
        self._channel = channel

    def lift_limit(self) -> None:
        """The peer is authenticated and may send any amount."""
        self._bytes_left = math.inf

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent) and not self.closed

    def send(self, message: Mapping[str, Any]) -> None:
        if not self.closed:
            line = json.dumps(message).encode()
            self._unsent += (line if self._channel is None else self._channel.seal(line)) + b"\n"
            self.flush()

    def flush(self) -> None:
        """Send what can be sent now."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            # The last messages of a peer that is gone must not be lost.
            self._read(MAX_LAST_BYTES)
            self.close(error.strerror or str(error))

    def receive(self) -> Iterator[Message]:
        """The messages that have arrived, without waiting, up to MAX_READ_BYTES; the rest is read by the next calls.

        One by one: a message may change how the next lines are read (`encrypt`). What the caller leaves is kept for the next call.
        """
        self._read(MAX_READ_BYTES)
        while self._lines:
            try:
                yield self._decode(self._lines.popleft())
            except EncryptionError as error:
                self._give_up(str(error))
            except (ValueError, RecursionError):
                self._give_up("received data that is not a message")

    def _give_up(self, why: str) -> None:
        self._lines.clear()
        self.close(why)

    def _read(self, max_bytes: int) -> None:
        while max_bytes > 0 and not self.closed:
            try:
                data = self._socket.recv(min(max_bytes, READ_BYTES))
            except BlockingIOError:
                return
            except OSError as error:
                self.close(error.strerror or str(error))
                return
            max_bytes -= len(data)
            self._split(data)

    def _split(self, data: bytes) -> None:
        """Queue the lines that `data` completes."""
        self._bytes_left -= len(data)
        if not data:
            self.close("the peer closed the connection")
        elif self._bytes_left < 0:
            self._give_up("it sent too much before it was authenticated")
            return
        *lines, self._unfinished_line = (self._unfinished_line + data).split(b"\n")
        self._lines += lines
        if len(self._unfinished_line) > MAX_LINE_BYTES:
            self._give_up("received data that is not a message")

    def _decode(self, line: bytes) -> Message:
        """ValueError for data that is not a Seatrial message."""
        message = json.loads(line if self._channel is None else self._channel.open(line))
        if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
            raise ValueError("not a Seatrial message")
        return message

    def finish(self) -> None:
        """Send what is queued and close. Unread bytes are read first: closing a socket with unread bytes discards what it sent."""
        self.flush()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._read(MAX_LAST_BYTES)
        self.close()

    def close(self, why: str = "closed here") -> None:
        self.closed = self.closed or why
        self._socket.close()


# Less than the harness waits for agents to connect (launch.places).
CONNECT_TIMEOUT_S = 20.0
TRY_TIMEOUT_S = 5.0
# A silent listener must not keep a node from the next address.
GREETING_TIMEOUT_S = 3.0
# Longer than the server's AUTHENTICATE_TIMEOUT_S: a node that gave up earlier might be accepted just then and be lost.
ANSWER_TIMEOUT_S = 10.0
# Between half of this and all of it: a thousand refused nodes must not return at the same time.
RETRY_AFTER_S = 0.4

UNREACHED = (
    "a firewall may close that port, the address may belong to a network that this host is not part of, or the harness has exited; "
    "open the port, or name the network that all hosts share with place.interface"
)
REFUSED = "another program answers there, or this node is connected already"

IsOwn = Callable[[str], bool]
"""Whether an address is this host's own, and so cannot be the harness's."""


class ControlConnectionError(Exception):
    """The harness could not be reached, or refused this node."""


class VersionMismatchError(ControlConnectionError):
    """The harness, which proved that it knows the token, runs another version."""


class ControlClient:
    """An open connection to the harness."""

    def __init__(self, endpoint: ControlEndpoint, connection: Connection, first_message: Message, now: float) -> None:
        self._endpoint, self._connection = endpoint, connection
        self.first_message = first_message
        """The harness's reply to the hello."""
        self._heard_at = now

    @classmethod
    def connect(
        cls,
        endpoint: ControlEndpoint,
        hello: Mapping[str, Any],
        now: Callable[[], float] = time.monotonic,
        timeout_s: float | None = None,
        is_own: IsOwn = lambda address: False,
    ) -> ControlClient:
        """A connection accepted by the harness. Every address is tried once, and again until `timeout_s` is over."""
        # Before the harness waits for an answer: loading the package from a slow disk takes a while.
        if problem := encryption_problem():
            raise ControlConnectionError(cannot_encrypt(endpoint.node, problem))
        deadline, errors = now() + (CONNECT_TIMEOUT_S if timeout_s is None else timeout_s), dict[str, Exception]()
        while True:
            for address in endpoint.addresses:
                try:
                    return cls(endpoint, *_connect(endpoint, address, hello, is_own), now())
                except VersionMismatchError:
                    raise
                except (OSError, ControlConnectionError) as error:
                    errors[address] = error
            if now() >= deadline:
                raise ControlConnectionError(_failure(endpoint, errors))
            time.sleep(RETRY_AFTER_S * random.uniform(0.5, 1.0))

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        self._connection.send(message)

    def flush(self) -> bool:
        """Send what is queued; whether all of it is sent."""
        self._connection.flush()
        return not self._connection.has_unsent

    def receive(self, now: float) -> list[Message]:
        """The harness's messages since the last call, without heartbeats."""
        messages = list(self._connection.receive())
        if messages:
            self._heard_at = now
        for message in messages:
            if message["kind"] == HEARTBEAT:
                self.send({"kind": HEARTBEAT, "n": message.get("n"), "t": time.time(), "m": time.monotonic()})
        return [message for message in messages if message["kind"] != HEARTBEAT]

    def lost(self, now: float) -> str:
        """Why the harness counts as gone; empty while it does not."""
        if self._connection.closed:
            return f"the connection to the harness ended ({self._connection.closed})"
        silent_s = now - self._heard_at
        return f"no heartbeat from the harness for {silent_s:.0f} s" if silent_s > self._endpoint.lease_s else ""

    def close(self) -> None:
        self._connection.finish()


def cannot_encrypt(host: str, problem: str) -> str:
    return (
        f"{host} cannot encrypt its connection to the harness ({problem}): install `cryptography` into the Python that runs Seatrial there"
    )


def version_mismatch(node: str, there: str, harness: str) -> str:
    return f"{node} runs Seatrial {there} and the harness runs {harness}: install the same version on all hosts"


def _connect(endpoint: ControlEndpoint, address: str, hello: Mapping[str, Any], is_own: IsOwn) -> tuple[Connection, Message]:
    """An authenticated connection and its welcome."""
    problem: Exception = ControlConnectionError("no such address")
    for found in dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(address, endpoint.port, 0, socket.SOCK_STREAM)):
        try:
            if is_own(found):
                raise ControlConnectionError("an address of this host, but the harness runs elsewhere")
            connected = socket.create_connection((found, endpoint.port), TRY_TIMEOUT_S)
            return _authenticate(endpoint, connected, hello)
        except VersionMismatchError:
            raise
        except (OSError, ControlConnectionError) as error:
            problem = error
    raise problem


def _authenticate(endpoint: ControlEndpoint, connected: socket.socket, hello: Mapping[str, Any]) -> tuple[Connection, Message]:
    connection = Connection(connected)
    greeting = _wait_for(connection, connected, ("nonce",), GREETING_TIMEOUT_S)
    nonce, version = greeting.get("nonce"), greeting.get("version", "an earlier version")
    if not is_nonce(nonce) or not is_version(version):
        connection.close()
        is_earlier = "version" not in greeting
        raise ControlConnectionError(version_mismatch(endpoint.node, __version__, version) if is_earlier else "not a Seatrial harness")
    ours = new_nonce()
    connection.send({"kind": "introduction", "node": endpoint.node, "nonce": ours, "version": __version__})
    handshake = Handshake(
        node=endpoint.node, harness_nonce=str(nonce), node_nonce=ours, harness_version=str(version), node_version=__version__
    )
    connection.encrypt(EncryptedChannel(endpoint.token, handshake, is_harness=False))
    connection.send({**hello, "kind": "hello"})
    try:
        answer = _wait_for(connection, connected, ("welcome", "refused"), ANSWER_TIMEOUT_S)
    except ControlConnectionError as error:
        if version != __version__:
            raise ControlConnectionError(version_mismatch(endpoint.node, __version__, version)) from error
        raise
    if answer["kind"] == "welcome":
        return connection, answer
    connection.close()
    refusal = VersionMismatchError if version != __version__ else ControlConnectionError
    raise refusal(str(answer.get("why")))


def _wait_for(connection: Connection, connected: socket.socket, kinds: tuple[str, ...], timeout_s: float) -> Message:
    """A message of one of these kinds; those behind it stay for `receive`."""
    deadline_m = time.monotonic() + timeout_s
    while time.monotonic() < deadline_m and not connection.closed:
        connected.settimeout(max(0.01, deadline_m - time.monotonic()))
        with contextlib.suppress(OSError):
            # Waits for something to read, or for the timeout, and consumes nothing.
            connected.recv(1, socket.MSG_PEEK)
        connected.setblocking(False)
        message = next(connection.receive(), None)
        if message is not None and message["kind"] in kinds:
            return message
        if message is not None:
            connection.close(f"it sent {message['kind'][:40]!r} instead")
    connection.close("no answer in time")
    raise ControlConnectionError(f"the harness did not send {' or '.join(kinds)}: {connection.closed}")


def _failure(endpoint: ControlEndpoint, errors: Mapping[str, Exception]) -> str:
    reasons = {address: getattr(error, "strerror", None) or str(error) or type(error).__name__ for address, error in errors.items()}
    tried = ", ".join(f"{address}:{endpoint.port} ({reason})" for address, reason in reasons.items()) or "no address"
    means = REFUSED if any(isinstance(error, ControlConnectionError) for error in errors.values()) else UNREACHED
    return f"{endpoint.node} cannot reach the harness at {tried}: {means}"
