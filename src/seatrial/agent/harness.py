"""The harness as the agent sees it, and what the agent writes: reports to the harness, notes for people in agent.log (standard error).

`Harness` is what the Supervisor needs; `HarnessPipe` is a harness on this host, the agent's parent, which holds its standard input and
output. One of many hosts holds a connection (`agent.harness_connection`). Neither reports nor notes may ever end or block the agent: a
reader that is gone or a full disk is ignored, and what a suspended harness does not read is queued.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import time
from typing import Any, Protocol

from seatrial.records.codec import to_json
from seatrial.records.launch import AgentReport

READ_BYTES = 4096
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Harness(Protocol):
    """Nothing here blocks, except `flush` with a timeout."""

    def fileno(self) -> int:
        """Becomes readable when there is something to receive, and stays open until `close`; -1 once nothing more can come."""

    def started(self, now: float) -> None:
        """The processes of the order are started. Before, no thread may exist: a child forked while one runs may hang."""

    def receive(self, now: float) -> list[str]:
        """The commands that have arrived: `stacks`, `stop`, `kill`."""

    def send(self, report: AgentReport) -> None:
        """Send, or queue what cannot be sent now."""

    def flush(self, timeout_s: float = 0.0) -> bool:
        """Send what is queued; whether the queue is empty."""

    def why_gone(self, now: float) -> str:
        """Why the harness must be considered gone; empty while it lives. `now` is from a clock that stops while the agent is suspended."""

    def failed(self, why: str) -> None:
        """The agent itself failed, and has killed everything it started."""

    def close(self) -> None:
        """Nothing more is sent."""


class PipeWriter:
    """Writes bytes to one pipe, in order; what it cannot take now is queued until the next `put` or `flush`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queued = b""
        with contextlib.suppress(OSError):
            # A terminal is shared with the shell, and stays blocking.
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.set_blocking(fd, False)

    def put(self, data: bytes) -> None:
        self._queued += data
        self.flush()

    def flush(self, timeout_s: float = 0.0) -> bool:
        """Write what the reader takes within `timeout_s`; returns whether all is written."""
        deadline_m = time.monotonic() + timeout_s
        self._write()
        while self._queued and (left_s := deadline_m - time.monotonic()) > 0:
            select.select([], [self._fd], [], left_s)
            self._write()
        return not self._queued

    def _write(self) -> None:
        try:
            while self._queued:
                self._queued = self._queued[os.write(self._fd, self._queued) :]
        except BlockingIOError:
            return
        except OSError:
            # The reader is gone.
            self._queued = b""


class HarnessPipe:
    """The harness is the parent process: it is gone when standard input ends, or when the parent has changed."""

    def __init__(self) -> None:
        self._parent_pid = os.getppid()
        self._writer = PipeWriter(_STDOUT)
        self._ended = ""
        self._is_nonblocking = False

    def fileno(self) -> int:
        return -1 if self._ended else _STDIN

    def started(self, now: float) -> None:
        """No thread is needed: each turn of the loop checks the pipe."""

    def receive(self, now: float) -> list[str]:
        if self._ended:
            return []
        try:
            # Only here: a process that only reports leaves its standard input unchanged.
            if not self._is_nonblocking:
                os.set_blocking(_STDIN, False)
                self._is_nonblocking = True
            data = os.read(_STDIN, READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            self._ended = "standard input is not a pipe"
            return []
        if not data:
            self._ended = "the control pipe was closed"
        return data.decode(errors="replace").split()

    def send(self, report: AgentReport) -> None:
        self._writer.put((json.dumps(to_json(report)) + "\n").encode())

    def flush(self, timeout_s: float = 0.0) -> bool:
        return self._writer.flush(timeout_s)

    def why_gone(self, now: float) -> str:
        return self._ended or ("the harness ended" if os.getppid() != self._parent_pid else "")

    def failed(self, why: str) -> None:
        """The agent's exit code is enough: the harness then looks for what is left."""

    def close(self) -> None:
        """The exit of the process closes both pipes."""


_target: list[Harness] = []


def set_report_target(harness: Harness | None) -> Harness | None:
    """Send reports to `harness` from now on, or to standard output for None. Returns the previous target."""
    before = _target[0] if _target else None
    _target[:] = [harness] if harness is not None else []
    return before


def send_report(kind: str, **facts: Any) -> None:
    _get_target().send(AgentReport(kind=kind, t=time.time(), m=time.monotonic(), **facts))


def flush_reports(timeout_s: float = 0.0) -> bool:
    """Send what a slow reader has not taken yet; returns whether all is sent."""
    return _get_target().flush(timeout_s)


def note(text: str) -> None:
    """One line for people, with the time."""
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode())


def _get_target() -> Harness:
    # Not at import: a process that only imports this module leaves its standard output unchanged.
    if not _target:
        set_report_target(HarnessPipe())
    return _target[0]
