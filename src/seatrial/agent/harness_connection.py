"""A harness on another host, or one with several hosts: commands and reports go over a control connection, heartbeats prove that it lives.

{"kind": "rendezvous", "master_addr": …, "env": {…}}   asks for this node's view of the rendezvous
{"kind": "go", "order": {…}, "env": {…} or null}       what to start; the base environment of the ranks
{"kind": "command", "command": "stop"}                 stacks, stop or kill, as on a control pipe
{"kind": "over"}                                       the run is over
{"kind": "report", "report": {…}}                      to the harness: an AgentReport with the node's name

Once the processes are started a thread receives from the harness and answers its heartbeats, so that an agent whose loop waits for a hung
file server is not considered lost. What it receives is queued for the loop. That thread alone decides, on its own clock, whether the
harness has been silent for too long. It writes to no file, whose disk may be the one that the loop waits for.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from seatrial.agent.harness import note
from seatrial.core.control_connection.protocol import ControlClient, Message
from seatrial.core.timeouts import SuspendAwareClock
from seatrial.records.codec import to_json
from seatrial.records.launch import AgentReport, RendezvousView

# How soon the thread notices that it is to end, or that the harness has been silent for too long.
POLL_S = 1.0


class HarnessConnection:
    """An established connection, and what has arrived on it."""

    def __init__(self, client: ControlClient, node: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client, self._node, self._monotonic = client, node, monotonic
        self._received: list[Message] = []
        self._over = self._lost = ""
        # Not the connection's descriptor: it stays open when the connection breaks, so that its number is not reused while the loop waits.
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._has_thread = False
        # Never held while blocking.
        self._lock = threading.Lock()

    def wait_for_go(self, clock: SuspendAwareClock, see: Callable[[Message], RendezvousView]) -> Message | None:
        """The order; None when there will be none. What arrived after it is kept for `receive`. `see` resolves the rendezvous."""
        while True:
            self._receive(clock.now())
            self._answer(see)
            position = next((index for index, message in enumerate(self._received) if message["kind"] == "go"), None)
            if position is not None:
                return self._received.pop(position)
            if why := self.why_gone(clock.now()):
                note(f"{why} before an order arrived")
                return None
            _wait(self._client, select.POLLIN, POLL_S)
            clock.tick(POLL_S)

    def _answer(self, see: Callable[[Message], RendezvousView]) -> None:
        queries = [message for message in self._received if message["kind"] == "rendezvous"]
        self._received = [message for message in self._received if message["kind"] != "rendezvous"]
        for query in queries:
            view = see(query)
            with self._lock:
                self._client.send({"kind": "rendezvous", "view": to_json(view)})
        self._flush()

    def is_wanted(self, now: float) -> bool:
        """Whether the harness still wants this node. Before `started` only."""
        self._receive(now)
        return not self.why_gone(now)

    def started(self, now: float) -> None:
        # The thread's clock continues the agent's, by which the harness was last heard.
        behind_s = self._monotonic() - now
        clock = SuspendAwareClock(lambda: self._monotonic() - behind_s)
        try:
            threading.Thread(target=self._serve, args=(clock,), name="seatrial-connection", daemon=True).start()
            self._has_thread = True
        except RuntimeError as error:
            note(f"{error}: heartbeats are answered between other work, and a disk that hangs for too long may end the run")

    def fileno(self) -> int:
        return self._wake_fd

    def receive(self, now: float) -> list[str]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        if not self._has_thread:
            self._receive(now)
        with self._lock:
            received, self._received = self._received, []
        return [str(message.get("command")) for message in received if message["kind"] == "command"]

    def send(self, report: AgentReport) -> None:
        with self._lock:
            self._client.send({"kind": "report", "report": to_json(replace(report, host=self._node))})

    def flush(self, timeout_s: float = 0.0) -> bool:
        deadline_m = time.monotonic() + timeout_s
        while not self._flush() and (left_s := deadline_m - time.monotonic()) > 0:
            _wait(self._client, select.POLLOUT, min(left_s, POLL_S))
        return self._flush()

    def why_gone(self, now: float) -> str:
        if self._has_thread:
            return self._over or self._lost
        if self._client.lost(now):
            # After a suspension, read what is waiting before counting the harness as lost.
            self._receive(now)
        return self._over or self._client.lost(now)

    def failed(self, why: str) -> None:
        self.send(AgentReport(kind="lost", t=time.time(), m=time.monotonic(), detail=f"its agent failed: {why}"))

    def close(self) -> None:
        """Also ends the thread, where there is one."""
        with self._lock:
            self._client.close()
            if self._wake_fd >= 0:
                os.close(self._wake_fd)
                self._wake_fd = -1

    def _serve(self, clock: SuspendAwareClock) -> None:
        """The thread: receive and answer until the connection has ended, or must be considered lost."""
        try:
            while not self._lost:
                _wait(self._client, select.POLLIN, POLL_S)
                clock.tick(POLL_S)
                # The loop's reports may have been waiting since the last turn.
                self._flush()
                self._receive(clock.now())
                self._check_lost(clock.now())
        finally:
            # Without this thread the loss of the harness would go unnoticed.
            self._lost = self._lost or "messages of the harness can no longer be received"

    def _check_lost(self, now: float) -> None:
        """Check whether the harness is gone; wake the loop if there is something for it."""
        with self._lock:
            self._lost = self._client.lost(now)
            if self._wake_fd >= 0 and (self._received or self._over or self._lost):
                os.eventfd_write(self._wake_fd, 1)

    def _receive(self, now: float) -> None:
        with self._lock:
            messages = self._client.receive(now)
            if any(message["kind"] == "over" for message in messages):
                self._over = "the harness ended the run"
            self._received += [message for message in messages if message["kind"] in ("go", "rendezvous", "command")]

    def _flush(self) -> bool:
        with self._lock:
            return self._client.flush()


def _wait(client: ControlClient, event: int, timeout_s: float) -> None:
    """Wait until the connection can be read or written. With `poll`, since `select` accepts no descriptor above 1,023."""
    poll = select.poll()
    # The thread or the loop may have closed it just now.
    with contextlib.suppress(ValueError):
        poll.register(client, event)
        poll.poll(timeout_s * 1000)
