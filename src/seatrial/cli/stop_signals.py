"""INT, TERM and HUP as one wish, whatever verb runs: stop, leave whole files, exit 130.

The first raises KeyboardInterrupt where the program stands. Those that follow at once are taken for the same wish, so that an impatient
second Ctrl-C does not break off the clearing away; one that comes later ends the process there and then. While a campaign runs it has
handlers of its own (`campaign.interrupts`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType

from seatrial.records.exit_codes import INTERRUPTED, STOP_SIGNALS

# Clearing away takes milliseconds; what takes longer than this hangs.
CLEARING_AWAY_S = 2.0


class StopSignals:
    """Handlers for as long as the block runs; a signal that was ignored before, as HUP is under nohup, stays so."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._first_m: float | None = None

    def __enter__(self) -> StopSignals:
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        return self

    @property
    def raised(self) -> bool:
        """Whether a signal has broken off what was being done."""
        return self._first_m is not None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """What follows is the end of the process: nothing is left to be broken off, and the exit code is known."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now_m = self._monotonic()
        if self._first_m is None:
            self._first_m = now_m
            raise KeyboardInterrupt
        if now_m - self._first_m > CLEARING_AWAY_S:
            os._exit(INTERRUPTED)
