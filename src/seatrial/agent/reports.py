"""How the agent speaks: reports for the harness on standard output, notes for people in agent.log (its standard error).

Neither may ever end the agent: a reader that went away or a full disk is passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from seatrial.records.codec import to_json
from seatrial.records.command import AgentReport

_STDOUT, _STDERR = 1, 2


def report(kind: str, **facts: Any) -> None:
    """One AgentReport, as one line in one write."""
    line = json.dumps(to_json(AgentReport(kind=kind, t=time.time(), **facts)))
    _write(_STDOUT, line)


def note(text: str) -> None:
    """One line for people, with the time."""
    _write(_STDERR, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")


def _write(handle: int, line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(handle, (line + "\n").encode())
