"""The protocol of the control connection: messages, authentication by a shared token, one non-blocking socket; and the node's end of it.

A message is one JSON object on one line, with its `kind`. The node's end:

    client = ControlClient.connect(endpoint, hello)         # within CONNECT_TIMEOUT_S, else ControlConnectionError
    for message in client.receive(now): …                   # at once: something may have come right behind the welcome
    … wait for client.fileno(), receive again …
    if why := client.lost(now): kill everything

Heartbeats are answered here and not returned. `now` is any clock that stops while this process is suspended (`SuspendAwareClock`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LEASE_S = 20.0
"""Silence for this long ends a run. Ten heartbeats: a busy host or a short network outage is no reason to end one."""
HEARTBEAT = "heartbeat"
"""Kind of the message that the harness sends every HEARTBEAT_EVERY_S and a node answers with its clock."""
HEARTBEAT_EVERY_S = 2.0
# The longest message is a whole environment.
MAX_LINE_BYTES = 4 * 1024 * 1024
TOKEN_BYTES = 32
READ_BYTES = 64 * 1024
# Most bytes that are read at once from a peer, so that it does not hold up the rest of a loop.
MAX_READ_BYTES = 4 * READ_BYTES
# The same for a peer that is gone: more than the kernel buffers for a socket.
MAX_LAST_BYTES = 16 * 1024 * 1024

Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ControlEndpoint:
    """Where and how a node reaches the harness; kept in a file that only the user can read."""

    addresses: tuple[str, ...]
    """Of the harness, tried one after another: names or addresses."""
    port: int
    token: str
    node: str
    """The name under which it is expected."""
    lease_s: float = LEASE_S


@dataclass(frozen=True, kw_only=True)
class ClockOffset:
    """How far a node's wall clock is ahead of the harness's, by the heartbeat that was answered quickest."""

    offset_s: float
    round_trip_s: float
    """The true offset is within half of this."""


def new_token() -> str:
    """The secret that the two ends of a connection share."""
    return secrets.token_hex(TOKEN_BYTES)


def node_proof(token: str, nonce: str, node: str) -> str:
    """What only a node that knows the token can answer to the harness's `nonce`."""
    return _sign(token, f"{nonce} {node}")


def harness_proof(token: str, nonce: str, node: str) -> str:
    """What only a harness that knows the token can answer to the node's `nonce`.

    A node executes every order it gets: on a shared host, another program may listen where a harness was a moment ago.
    """
    return _sign(token, f"harness {nonce} {node}")


def proof_matches(given: object, expected: str) -> bool:
    """Whether a proof is right, in constant time."""
    # Not by its repr where it is no text: a list nested a thousand deep has none.
    return isinstance(given, str) and hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _sign(token: str, text: str) -> str:
    return hmac.new(token.encode(), text.encode(errors="replace"), hashlib.sha256).hexdigest()


class Connection:
    """One connected, non-blocking socket: queues what cannot be sent now, and splits what arrives into messages.

    `closed` is why it was closed; empty while it is open.
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
        self._arrived: list[Message] = []
        self.closed = ""

    def fileno(self) -> int:
        return self._socket.fileno()

    def lift_limit(self) -> None:
        """The peer is authenticated and may send any amount."""
        self._bytes_left = math.inf

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent) and not self.closed

    def send(self, message: Mapping[str, Any]) -> None:
        if not self.closed:
            self._unsent += json.dumps(message).encode() + b"\n"
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
            self._arrived += self._read(MAX_LAST_BYTES)
            self.close(error.strerror or str(error))

    def receive(self) -> list[Message]:
        """The messages that have arrived, without waiting, up to MAX_READ_BYTES; the rest is read by the next calls."""
        messages, self._arrived = [*self._arrived, *self._read(MAX_READ_BYTES)], []
        return messages

    def _read(self, max_bytes: int) -> list[Message]:
        messages: list[Message] = []
        while max_bytes > 0 and not self.closed:
            try:
                data = self._socket.recv(min(max_bytes, READ_BYTES))
                max_bytes -= len(data)
                messages += self._decode(data)
            except BlockingIOError:
                break
            except OSError as error:
                self.close(error.strerror or str(error))
            except (ValueError, RecursionError):
                self.close("what came was no message")
        return messages

    def _decode(self, data: bytes) -> list[Message]:
        """Messages that `data` completes; ValueError for anything else."""
        self._bytes_left -= len(data)
        if not data:
            self.close("the peer closed the connection")
        elif self._bytes_left < 0:
            self.close("it sent too much before it was authenticated")
            return []
        *lines, self._unfinished_line = (self._unfinished_line + data).split(b"\n")
        if len(self._unfinished_line) > MAX_LINE_BYTES:
            raise ValueError("a line without an end")
        messages = [json.loads(line) for line in lines]
        if not all(isinstance(message, dict) and isinstance(message.get("kind"), str) for message in messages):
            raise ValueError("no message of ours")
        return messages

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
# Longer than the server's AUTHENTICATE_TIMEOUT_S: a node that gave up sooner might be accepted at that moment, and be lost.
ANSWER_TIMEOUT_S = 10.0
RETRY_AFTER_S = 0.3

UNREACHED = (
    "a firewall may close that port, the address may belong to a network that this host is not part of, or the harness is over; "
    "open the port, or name the network that all hosts share with place.interface"
)
REFUSED = "another program answers there, or this node is connected already"


class ControlConnectionError(Exception):
    """The harness could not be reached, or refused this node."""


class ControlClient:
    """An open connection to the harness."""

    def __init__(self, endpoint: ControlEndpoint, connection: Connection, messages: list[Message], now: float) -> None:
        self._endpoint, self._connection = endpoint, connection
        self.welcome, *self._early = messages
        """The harness's first message; what came right behind it is returned by `receive`."""
        self._heard_at = now

    @classmethod
    def connect(
        cls, endpoint: ControlEndpoint, hello: Mapping[str, Any], now: Callable[[], float] = time.monotonic, timeout_s: float | None = None
    ) -> ControlClient:
        """A connection that the harness has accepted. Every address is tried once, and again until `timeout_s` is over."""
        deadline, errors = now() + (CONNECT_TIMEOUT_S if timeout_s is None else timeout_s), {}
        while True:
            for address in endpoint.addresses:
                try:
                    return cls(endpoint, *_authenticate(endpoint, address, hello), now())
                except (OSError, ControlConnectionError) as error:
                    errors[address] = error
            if now() >= deadline:
                raise ControlConnectionError(_failure(endpoint, errors))
            time.sleep(RETRY_AFTER_S)

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
        messages, self._early = [*self._early, *self._connection.receive()], []
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


def _authenticate(endpoint: ControlEndpoint, address: str, hello: Mapping[str, Any]) -> tuple[Connection, list[Message]]:
    """A connection after nonce, hello and welcome, with the welcome and what came behind it."""
    connected = socket.create_connection((address, endpoint.port), TRY_TIMEOUT_S)
    connection = Connection(connected)
    nonce = str(_wait_for(connection, connected, "nonce")[0].get("nonce"))
    ours = secrets.token_hex(16)
    proof = {"node": endpoint.node, "nonce": ours, "proof": node_proof(endpoint.token, nonce, endpoint.node)}
    connection.send({**hello, "kind": "hello", **proof})
    messages = _wait_for(connection, connected, "welcome")
    if not proof_matches(messages[0].get("proof"), harness_proof(endpoint.token, ours, endpoint.node)):
        connection.close()
        raise ControlConnectionError("whoever answered does not know the token")
    return connection, messages


def _wait_for(connection: Connection, connected: socket.socket, kind: str) -> list[Message]:
    """A message of this kind, and those that came right behind it."""
    deadline_m = time.monotonic() + ANSWER_TIMEOUT_S
    while time.monotonic() < deadline_m and not connection.closed:
        connected.settimeout(max(0.01, deadline_m - time.monotonic()))
        with contextlib.suppress(OSError):
            # Waits for something to read, or for the timeout, and consumes nothing.
            connected.recv(1, socket.MSG_PEEK)
        connected.setblocking(False)
        messages = connection.receive()
        if messages and messages[0]["kind"] == kind:
            return messages
        if messages:
            connection.close(f"it sent {messages[0]['kind'][:40]!r} instead")
    connection.close("no answer in time")
    raise ControlConnectionError(f"the harness did not send {kind}: {connection.closed}")


def _failure(endpoint: ControlEndpoint, errors: Mapping[str, Exception]) -> str:
    reasons = {address: getattr(error, "strerror", None) or str(error) or type(error).__name__ for address, error in errors.items()}
    tried = ", ".join(f"{address}:{endpoint.port} ({reason})" for address, reason in reasons.items()) or "no address"
    means = REFUSED if any(isinstance(error, ControlConnectionError) for error in errors.values()) else UNREACHED
    return f"{endpoint.node} cannot reach the harness at {tried}: {means}"
