"""A harness on another host, or on this one with others: words and reports go over a line (seatrial.line), beats prove its life.

{"kind": "go", "order": {…}, "env": {…} or null}       what to start; what lies beneath the ranks' variables
{"kind": "order", "word": "stop"}                      as the lines on a control pipe
{"kind": "over"}                                       there is nothing to do any more
{"kind": "report", "report": {…}}                      the other way: an AgentReport with the node's name

Once the processes are started a thread hears the harness and answers its beats, so that an agent whose loop waits for a hung file
server is not taken for lost. What it hears waits for the loop; whether the harness was silent for too long is judged by that thread
alone, on a clock of its own. The thread writes to no file: the disk that the loop waits for may be the one.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from seatrial.agent.reports import note
from seatrial.line.awake_clock import AwakeClock
from seatrial.line.caller import Caller
from seatrial.line.protocol import Message
from seatrial.records.codec import to_json
from seatrial.records.command import AgentReport

# How soon its thread sees that it is to end, or that the harness has been silent for too long.
TURN_S = 1.0


class HarnessLine:
    """A line that stands, and what has come on it."""

    def __init__(self, caller: Caller, node: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._caller, self._node, self._monotonic = caller, node, monotonic
        self._said: list[Message] = []
        self._over = self._lost = ""
        # Not the line's own: it stays open when the line breaks, so that no other pipe gets its number while somebody waits for it.
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._has_thread = False
        # Held only for what does not wait, whoever holds it.
        self._lock = threading.Lock()

    def wait_for_go(self, clock: AwakeClock) -> Message | None:
        """The order; None when there will be none. What was said behind it is kept for `take`."""
        while True:
            self._hear(clock.now())
            position = next((place for place, message in enumerate(self._said) if message["kind"] == "go"), None)
            if position is not None:
                return self._said.pop(position)
            if why := self.gone(clock.now()):
                note(f"{why} before there was anything to start")
                return None
            _await(self._caller, select.POLLIN, TURN_S)
            clock.tick(TURN_S)

    def stands(self, now: float) -> bool:
        """Whether the harness still wants this node, by all that it has said up to now. Before `started` only."""
        self._hear(now)
        return not self.gone(now)

    def started(self, now: float) -> None:
        # Its clock goes on where the agent's stands, by which the harness was heard last.
        behind_s = self._monotonic() - now
        clock = AwakeClock(lambda: self._monotonic() - behind_s)
        try:
            threading.Thread(target=self._attend, args=(clock,), name="seatrial-line", daemon=True).start()
            self._has_thread = True
        except RuntimeError as error:
            note(f"{error}: beats are answered between other work, and a disk that hangs for long may end the run")

    def fileno(self) -> int:
        return self._news

    def take(self, now: float) -> list[str]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._news)
        if not self._has_thread:
            self._hear(now)
        with self._lock:
            said, self._said = self._said, []
        return [str(message.get("word")) for message in said if message["kind"] == "order"]

    def send(self, report: AgentReport) -> None:
        with self._lock:
            self._caller.send({"kind": "report", "report": to_json(replace(report, host=self._node))})

    def flush(self, patience_s: float = 0.0) -> bool:
        until_m = time.monotonic() + patience_s
        while not self._is_flushed() and (left_s := until_m - time.monotonic()) > 0:
            _await(self._caller, select.POLLOUT, min(left_s, TURN_S))
        return self._is_flushed()

    def gone(self, now: float) -> str:
        if self._has_thread:
            return self._over or self._lost
        if self._caller.lost(now):
            # Whoever was suspended reads what has waited for him before he takes silence for the end.
            self._hear(now)
        return self._over or self._caller.lost(now)

    def failed(self, why: str) -> None:
        self.send(AgentReport(kind="lost", t=time.time(), m=time.monotonic(), detail=f"its agent failed: {why}"))

    def close(self) -> None:
        """The thread, where there is one, ends by that."""
        with self._lock:
            self._caller.close()
            if self._news >= 0:
                os.close(self._news)
                self._news = -1

    def _attend(self, clock: AwakeClock) -> None:
        """The thread: hear and answer until the line has ended, or must be taken for so."""
        try:
            while not self._lost:
                _await(self._caller, select.POLLIN, TURN_S)
                clock.tick(TURN_S)
                # What the loop had to say may wait since the last turn.
                self._is_flushed()
                self._hear(clock.now())
                self._judge(clock.now())
        finally:
            # Without it nobody would notice the harness's end, and nothing may outlive that.
            self._lost = self._lost or "the harness cannot be heard any more"

    def _judge(self, now: float) -> None:
        """Whether the harness is gone; the loop is woken where there is something for it."""
        with self._lock:
            self._lost = self._caller.lost(now)
            if self._news >= 0 and (self._said or self._over or self._lost):
                os.eventfd_write(self._news, 1)

    def _hear(self, now: float) -> None:
        with self._lock:
            heard = self._caller.receive(now)
            if any(message["kind"] == "over" for message in heard):
                self._over = "the harness said that it is over"
            self._said += [message for message in heard if message["kind"] in ("go", "order")]

    def _is_flushed(self) -> bool:
        with self._lock:
            return self._caller.flush()


def _await(caller: Caller, event: int, longest_s: float) -> None:
    """Until the line can be read or written, or the time is over. `poll`: `select` takes no handle above 1,023."""
    poll = select.poll()
    # One that was closed just now, by the thread or the loop, is nothing to wait for.
    with contextlib.suppress(ValueError):
        poll.register(caller, event)
        poll.poll(longest_s * 1000)
