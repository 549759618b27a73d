"""Who gave the order, as the agent sees it: words come from there, reports go there, and without it nothing may run on.

A harness on this host holds two pipes (harness_pipe); one of many hosts holds a line (harness_line). The Supervisor knows no difference.
"""

from __future__ import annotations

from typing import Protocol

from seatrial.records.command import AgentReport


class Harness(Protocol):
    """Nothing here waits, but for `flush` with patience."""

    def fileno(self) -> int:
        """What becomes readable when there is something to take, and stays open until `close`; -1 once nothing can come any more."""

    def started(self, now: float) -> None:
        """The processes of the order are started. Not before may there be a thread: a child forked beside one may hang."""

    def take(self, now: float) -> list[str]:
        """The words that have come: `stacks`, `stop`, `kill`."""

    def send(self, report: AgentReport) -> None:
        """What cannot be sent now waits."""

    def flush(self, patience_s: float = 0.0) -> bool:
        """Send what waits, for so long at most; whether nothing waits any more."""

    def gone(self, now: float) -> str:
        """Why it must be taken for gone, in words; empty while it lives. `now` is of a clock that stands still while we are suspended."""

    def failed(self, why: str) -> None:
        """The agent itself broke: whatever it had started was killed."""

    def close(self) -> None:
        """Nothing more is said."""
