"""What a campaign tells whoever looks on: the terminal, the progress file, a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from seatrial.records.check import Check
from seatrial.records.live import LiveState
from seatrial.records.outcome import RunOutcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import RunSpec


class Listener(Protocol):
    """Called from the campaign's own thread, `warned` first, then in this order for each run: started, progress…, ended."""

    def warned(self, checks: Sequence[Check]) -> None:
        """Before anything else: what the checks found amiss and is no reason not to go on."""

    def skipped(self, spec: RunSpec, unlike: str) -> None:
        """`spec` is finished already and is not run again; `unlike` says what was otherwise then than it is now, empty for nothing."""

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        """A run was launched; it is the `position`-th of `count`."""

    def progress(self, state: LiveState) -> None:
        """About once a second."""

    def stopping(self, spec: RunSpec) -> None:
        """The user asked to stop; the run under way is being ended."""

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        """A run is over; `measured` is None where the tables cannot be made on this machine."""
