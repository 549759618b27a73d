"""How the agent speaks: reports to whoever gave the order (agent.harness), notes for people in agent.log (its standard error).

Neither may ever end or hold up the agent: a reader that went away or a full disk is passed over, and what a suspended harness does
not read waits until it does.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from seatrial.agent.harness import Harness
from seatrial.agent.harness_pipe import HarnessPipe
from seatrial.records.command import AgentReport

_STDERR = 2
_to: list[Harness] = []


def report_to(harness: Harness) -> None:
    """Reports go there from now on; before, and where nobody says so, to standard output."""
    _to[:] = [harness]


def report(kind: str, **facts: Any) -> None:
    """One AgentReport."""
    _harness().send(AgentReport(kind=kind, t=time.time(), m=time.monotonic(), **facts))


def flush_reports(patience_s: float = 0.0) -> bool:
    """Send what a slow reader has not taken yet; whether it has all now."""
    return _harness().flush(patience_s)


def note(text: str) -> None:
    """One line for people, with the time."""
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode())


def _harness() -> Harness:
    # Not at import: whoever imports this module keeps his standard output as it is.
    if not _to:
        report_to(HarnessPipe())
    return _to[0]
