"""The node's end of a line. In: a `Call`. Out: what the harness says, and whether it still lives.

    caller = Caller.connect(call, hello)         # within PATIENCE_S, else LineError
    for message in caller.receive(now): …        # at once: something may have come right behind the welcome
    … wait for caller.fileno(), receive again …
    if why := caller.lost(now): kill everything

Beats are answered here and not shown. `now` is any clock that stands still while this process is suspended (awake_clock).
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from seatrial.line.connection import Connection
from seatrial.line.protocol import Message, harness_proof, is_same, proof
from seatrial.records.line import Call

# Within the harness's own patience with agents that are to call (launch.places.calling).
PATIENCE_S = 20.0
ONE_TRY_S = 5.0
# Longer than the harness waits for who introduces himself: a node that gave up sooner might be let in just then, and be lost.
INTRODUCE_WITHIN_S = 10.0
AGAIN_AFTER_S = 0.3

UNREACHED = (
    "a firewall may close that port, the address may belong to a network that this host is not part of, or the harness is over; "
    "open the port, or name the network that all hosts share with place.interface"
)
UNWELCOME = "somebody answers there, but not the harness of this attempt, or it has heard of this node already"


class LineError(Exception):
    """The harness could not be reached, or would not have us."""


class Caller:
    """A line that stands."""

    def __init__(self, call: Call, connection: Connection, said: list[Message], now: float) -> None:
        self._call, self._connection = call, connection
        self.welcome, *self._early = said
        """What the harness said first, and what came in the same breath."""
        self._heard = now

    @classmethod
    def connect(
        cls, call: Call, hello: Mapping[str, Any], now: Callable[[], float] = time.monotonic, patience_s: float | None = None
    ) -> Caller:
        """A line on which the harness has said welcome. Every address is tried once, and again while `patience_s` last."""
        until, troubles = now() + (PATIENCE_S if patience_s is None else patience_s), {}
        while True:
            for address in call.addresses:
                try:
                    return cls(call, *_introduced(call, address, hello), now())
                except (OSError, LineError) as error:
                    troubles[address] = error
            if now() >= until:
                raise LineError(_unreached(call, troubles))
            time.sleep(AGAIN_AFTER_S)

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        self._connection.send(message)

    def flush(self) -> bool:
        """Send what still waits; whether all of it is sent."""
        self._connection.flush()
        return not self._connection.has_waiting

    def receive(self, now: float) -> list[Message]:
        """What the harness has said since the last call, beats left out."""
        messages, self._early = [*self._early, *self._connection.receive()], []
        if messages:
            self._heard = now
        for message in messages:
            if message["kind"] == "beat":
                self.send({"kind": "beat", "n": message.get("n"), "t": time.time(), "m": time.monotonic()})
        return [message for message in messages if message["kind"] != "beat"]

    def lost(self, now: float) -> str:
        """Why the harness must be taken for gone, in words; empty while it need not be."""
        if self._connection.closed:
            return f"the line to the harness ended ({self._connection.closed})"
        silent_s = now - self._heard
        return f"nothing was heard of the harness for {silent_s:.0f} s" if silent_s > self._call.lease_s else ""

    def close(self) -> None:
        self._connection.finish()


def _introduced(call: Call, address: str, hello: Mapping[str, Any]) -> tuple[Connection, list[Message]]:
    """A connection on which nonce, hello and welcome were said, with the welcome and what came behind it."""
    connected = socket.create_connection((address, call.port), ONE_TRY_S)
    connection = Connection(connected)
    nonce = str(_heard(connection, connected, "nonce")[0].get("nonce"))
    ours = secrets.token_hex(16)
    proved = {"node": call.node, "nonce": ours, "proof": proof(call.token, nonce, call.node)}
    connection.send({**hello, "kind": "hello", **proved})
    said = _heard(connection, connected, "welcome")
    if not is_same(said[0].get("proof"), harness_proof(call.token, ours, call.node)):
        connection.close()
        raise LineError("whoever said welcome does not know the token")
    return connection, said


def _heard(connection: Connection, connected: socket.socket, kind: str) -> list[Message]:
    """A message of this kind first, then whatever came in the same breath."""
    until_m = time.monotonic() + INTRODUCE_WITHIN_S
    while time.monotonic() < until_m and not connection.closed:
        connected.settimeout(max(0.01, until_m - time.monotonic()))
        _wait_readable(connected)
        connected.setblocking(False)
        messages = connection.receive()
        if messages and messages[0]["kind"] == kind:
            return messages
        if messages:
            connection.close(f"it said {messages[0]['kind'][:40]!r} instead")
    connection.close("no answer in time")
    raise LineError(f"the harness did not say {kind}: {connection.closed}")


def _wait_readable(connected: socket.socket) -> None:
    """Until something is there or the socket's own time is over; nothing is taken."""
    try:
        connected.recv(1, socket.MSG_PEEK)
    except OSError:
        return


def _unreached(call: Call, troubles: Mapping[str, Exception]) -> str:
    tried = ", ".join(f"{address}:{call.port} ({_words(error)})" for address, error in troubles.items()) or "no address"
    means = UNWELCOME if any(isinstance(error, LineError) for error in troubles.values()) else UNREACHED
    return f"{call.node} cannot reach the harness at {tried}: {means}"


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
