"""A harness that is the agent's parent: words come on standard input, reports go to standard output, one JSON object a line.

In: the two pipes, which are this process's own. Out: what `agent.harness.Harness` asks for; nothing here waits for a slow reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import time

from seatrial.records.codec import to_json
from seatrial.records.command import AgentReport

READ_BYTES = 4096
_STDIN, _STDOUT = 0, 1


class Outbox:
    """Bytes for one pipe, in order: written as far as it takes them, the rest when asked again."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._waiting = b""
        with contextlib.suppress(OSError):
            # A terminal is shared with the shell, and stays as it is.
            if stat.S_ISFIFO(os.fstat(handle).st_mode):
                os.set_blocking(handle, False)

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def put(self, data: bytes) -> None:
        self._waiting += data
        self.flush()

    def flush(self) -> None:
        """Write what can be written now."""
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._handle, self._waiting) :]
        except BlockingIOError:
            return
        except OSError:
            # Nobody is left to read it.
            self._waiting = b""

    def flush_within(self, patience_s: float) -> bool:
        """Wait for the reader, but not for ever; whether all is written."""
        until_m = time.monotonic() + patience_s
        while self._waiting and (left_s := until_m - time.monotonic()) > 0:
            select.select([], [self._handle], [], left_s)
            self.flush()
        return self.is_empty


class HarnessPipe:
    """Both pipes. The end of standard input, or another parent than at first, means that the harness is gone."""

    def __init__(self) -> None:
        self._parent_pid = os.getppid()
        self._outbox = Outbox(_STDOUT)
        self._ended = ""
        self._listens = False

    def fileno(self) -> int:
        return -1 if self._ended else _STDIN

    def started(self, now: float) -> None:
        """Its end is seen whenever the loop looks, and it has no patience that could run out."""

    def take(self, now: float) -> list[str]:
        if self._ended:
            return []
        try:
            # Not before it is asked for: whoever only reports keeps his standard input as it is.
            if not self._listens:
                os.set_blocking(_STDIN, False)
                self._listens = True
            data = os.read(_STDIN, READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            self._ended = "standard input is no pipe"
            return []
        if not data:
            self._ended = "the control pipe was closed"
        return data.decode(errors="replace").split()

    def send(self, report: AgentReport) -> None:
        self._outbox.put((json.dumps(to_json(report)) + "\n").encode())

    def flush(self, patience_s: float = 0.0) -> bool:
        self._outbox.flush()
        return self._outbox.flush_within(patience_s)

    def gone(self, now: float) -> str:
        return self._ended or ("the harness ended" if os.getppid() != self._parent_pid else "")

    def failed(self, why: str) -> None:
        """Its end says it: the harness then looks for what is left itself."""

    def close(self) -> None:
        """The end of the process closes both."""
