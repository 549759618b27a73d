"""How the agent speaks: reports for the harness on standard output, notes for people in agent.log (its standard error).

Neither may ever end or hold up the agent: a reader that went away or a full disk is passed over, and what a suspended harness does
not read waits here until it does.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import stat
import time
from typing import Any

from seatrial.records.codec import to_json
from seatrial.records.command import AgentReport

_STDOUT, _STDERR = 1, 2


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


def report(kind: str, **facts: Any) -> None:
    """One AgentReport, as one line."""
    line = json.dumps(to_json(AgentReport(kind=kind, t=time.time(), m=time.monotonic(), **facts)))
    _reports().put((line + "\n").encode())


def flush_reports(patience_s: float = 0.0) -> bool:
    """Send what a slow reader has not taken yet; whether it has all now."""
    outbox = _reports()
    outbox.flush()
    return outbox.flush_within(patience_s)


def note(text: str) -> None:
    """One line for people, with the time."""
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode())


@functools.cache
def _reports() -> Outbox:
    # Not at import: whoever imports this module keeps his standard output as it is.
    return Outbox(_STDOUT)
