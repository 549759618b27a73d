"""The harness's end of all lines: a thread that listens, lets in who knows the token, beats, and keeps what is said until asked.

    with Switchboard(token, expected=("node1", "node2"), welcome=…) as board:
        … start the nodes with Call(addresses, board.port, token, node) …
        for node, message in board.poll(): …          # hello, whatever the node says, and `lost` with its why

A thread, so that a harness whose main thread waits for a slow disk still beats, and no run is ended for it. Anybody may connect: who has
not proved yet that he knows the token gets little room, little time, and no second word. Should the thread fail, every node is lost.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import select
import socket
import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from seatrial.line.awake_clock import AwakeClock
from seatrial.line.bell import Bell
from seatrial.line.clock_watch import ClockWatch
from seatrial.line.connection import Connection
from seatrial.line.door import Door
from seatrial.line.protocol import BEAT_EVERY_S, Message, harness_proof, is_same, proof
from seatrial.records.line import LEASE_S, ClockOffset

# What the main thread wants to send waits so long at most.
TURN_S = 0.1
# Who connects and does not say who he is, is no node of ours; least of all where others wait for his place.
INTRODUCE_WITHIN_S = 5.0
INTRODUCE_WITHIN_WHEN_FULL_S = 1.0
# All of them together take few of the handles that a run needs.
MOST_STRANGERS = 64
# The hello of a host with hundreds of virtual interfaces, each with its addresses.
LONGEST_HELLO_BYTES = 64 * 1024
# For the thread to end its turn, and to send what waits.
CLOSE_PATIENCE_S = 2.0

Welcome = Callable[[str], Mapping[str, Any]]
"""Node → what is said to it first, beside `kind`."""


@dataclass
class _Line:
    connection: Connection
    nonce: str
    since: float
    node: str = ""
    heard: float = 0.0
    silent: bool = False
    """Closed here, since nothing was heard for too long."""
    is_lost: bool = False
    """And that was said."""
    clock: ClockWatch = field(default_factory=ClockWatch)


class Switchboard:
    """All lines of one run, or of one campaign."""

    def __init__(
        self,
        token: str,
        expected: Collection[str],
        welcome: Welcome = lambda node: {},
        listening: socket.socket | None = None,
        lease_s: float = LEASE_S,
        may_return: bool = False,
    ) -> None:
        """`may_return`: a node whose line has ended may call again."""
        self._token, self._expected, self._welcome, self._lease_s = token, frozenset(expected), welcome, lease_s
        self._may_return = may_return
        self._door = Door(listening or socket.create_server(("", 0), backlog=256))
        self._lines: list[_Line] = []
        self._said: deque[tuple[str, Message]] = deque()
        self._to_send: deque[tuple[str, Message]] = deque()
        self._beats = 0
        self._beat_at = -math.inf
        # A harness that was suspended has heard nothing of anybody, and that is nobody's fault.
        self._clock = AwakeClock()
        self._stopping = False
        self.failed = ""
        """Why there is nobody at this end any more, though nobody closed it; empty while there is."""
        self._spoken = Bell()
        self._thread = threading.Thread(target=self._run, name="seatrial-switchboard", daemon=True)

    @property
    def port(self) -> int:
        return self._door.port

    def __enter__(self) -> Switchboard:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every line: whoever is at its other end takes the harness for gone."""
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join(CLOSE_PATIENCE_S)
        else:
            self._door.close()
        self._spoken.close()

    def send(self, node: str, message: Mapping[str, Any]) -> None:
        self._to_send.append((node, dict(message)))

    def send_all(self, message: Mapping[str, Any]) -> None:
        for node in self._expected:
            self.send(node, message)

    def poll(self) -> list[tuple[str, Message]]:
        """(node, message) in the order they came; `{"kind": "lost", "why": …, "silent": …}` is the last of a node."""
        self._spoken.clear()
        said = []
        while self._said:
            said.append(self._said.popleft())
        return said

    def wait(self, timeout_s: float, beside: int | None = None) -> list[tuple[str, Message]]:
        """As soon as there is anything, here or in the file `beside`; [] when the time is over."""
        self._spoken.wait(timeout_s, beside)
        return self.poll()

    def offset(self, node: str) -> ClockOffset | None:
        """How far its clock is ahead of ours, as far as is known."""
        return next((line.clock.offset for line in self._lines if line.node == node), None)

    def clock_moved_s(self, node: str) -> float:
        """How far that has moved at the least since it called."""
        return next((line.clock.moved_s for line in self._lines if line.node == node), 0.0)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
            self._send_waiting()
        except Exception as error:
            self._fail(error)
        finally:
            for line in self._lines:
                with contextlib.suppress(Exception):
                    line.connection.finish()
            self._door.close()

    def _fail(self, error: Exception) -> None:
        """Nobody beats any more: all nodes end what they run, and whoever waits for them must hear it."""
        *_, frame = traceback.extract_tb(error.__traceback__)
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self.failed = f"the harness's own end of all lines failed ({told}, in {frame.name}, line {frame.lineno})"
        for line in self._lines:
            if line.node:
                self._lose(line, self.failed)

    def _turn(self) -> None:
        living = [line for line in self._lines if not line.connection.closed]
        self._sleep(living)
        if self._clock.tick(TURN_S):
            # The nodes have waited for a beat just as long, and their patience may be nearly over.
            self._beat_at = -math.inf
        now = self._clock.now()
        self._accept(now)
        self._send_waiting()
        self._beat(now)
        for line in living:
            line.connection.flush()
            self._hear(line, now)
        self._lines = [line for line in self._lines if not line.connection.closed or line.node]

    def _sleep(self, living: list[_Line]) -> None:
        """Until something may be read or written, or a turn is over. `poll`: a thousand lines are more than `select` takes."""
        waiting = select.poll()
        if self._room() and self._door.is_open(self._clock.now()):
            waiting.register(self._door, select.POLLIN)
        for line in living:
            waiting.register(line.connection, select.POLLIN | (select.POLLOUT if line.connection.has_waiting else 0))
        waiting.poll(TURN_S * 1000)

    def _strangers(self) -> list[_Line]:
        return [line for line in self._lines if not line.node and not line.connection.closed]

    def _room(self) -> int:
        """How many more may connect. File handles are few, and a run needs them too."""
        return MOST_STRANGERS - len(self._strangers())

    def _accept(self, now: float) -> None:
        within_s = INTRODUCE_WITHIN_S if self._room() else INTRODUCE_WITHIN_WHEN_FULL_S
        for line in self._strangers():
            if now - line.since > within_s:
                line.connection.close("it did not say who it is")
        for connected in self._door.arrived(now, self._room()):
            line = _Line(Connection(connected, LONGEST_HELLO_BYTES), secrets.token_hex(16), now)
            line.connection.send({"kind": "nonce", "nonce": line.nonce})
            self._lines.append(line)

    def _send_waiting(self) -> None:
        while self._to_send:
            node, message = self._to_send.popleft()
            for line in self._lines:
                if line.node == node:
                    line.connection.send(message)

    def _beat(self, now: float) -> None:
        if now - self._beat_at < BEAT_EVERY_S:
            return
        self._beat_at, self._beats = now, self._beats + 1
        for line in self._lines:
            if line.node:
                self._beat_on(line)

    def _beat_on(self, line: _Line) -> None:
        line.clock.sent(self._beats)
        line.connection.send({"kind": "beat", "n": self._beats})

    def _hear(self, line: _Line, now: float) -> None:
        for message in line.connection.receive():
            line.heard = now
            if line.node:
                self._take(line, message)
            elif not self._introduce(line, message):
                break
        if not line.node:
            return
        if not line.connection.closed and now - line.heard > self._lease_s:
            line.silent = True
            line.connection.close(f"nothing was heard of it for {now - line.heard:.0f} s")
        if line.connection.closed:
            self._lose(line, line.connection.closed)

    def _take(self, line: _Line, message: Message) -> None:
        if message["kind"] == "beat":
            line.clock.answered(message)
        else:
            self._say(line.node, message)

    def _lose(self, line: _Line, why: str) -> None:
        if not line.is_lost:
            line.is_lost = True
            self._say(line.node, {"kind": "lost", "why": why, "silent": line.silent})

    def _introduce(self, line: _Line, message: Message) -> bool:
        """Whether it is a node of ours; else it has had its say."""
        node = message.get("node")
        proved = isinstance(node, str) and is_same(message.get("proof"), proof(self._token, line.nonce, node))
        if message["kind"] != "hello" or not proved or not self._may_call(str(node)):
            line.connection.close("not a node of ours")
            return False
        line.node = str(node)
        line.connection.trust()
        ours = harness_proof(self._token, str(message.get("nonce")), line.node)
        line.connection.send({**self._welcome(line.node), "kind": "welcome", "proof": ours})
        self._beats += 1
        self._beat_on(line)
        self._say(line.node, message)
        return True

    def _may_call(self, node: str) -> bool:
        """Whether one is expected by this name; one that was here makes way for itself where it may return."""
        if self._may_return:
            self._lines = [line for line in self._lines if line.node != node or not line.is_lost]
        return node in self._expected and all(line.node != node for line in self._lines)

    def _say(self, node: str, message: Message) -> None:
        self._said.append((node, message))
        self._spoken.ring()
