"""Signals and stop requests as one question: how urgently does the user want this to stop?

INT, TERM and HUP count the same. The first ends the run and writes the results; the second kills at once.
"""

from __future__ import annotations

import contextlib
import enum
import math
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

from seatrial.campaign.lock import Owner, is_stop_requested
from seatrial.core.errors import STOP_SIGNALS
from seatrial.core.paths import CampaignPaths

# A poll reads two small files, perhaps over a network; `urgency` is read five times a second.
REQUEST_POLL_S = 0.5
# Two signals this close together count as one request.
DEBOUNCE_S = 0.1


class Urgency(enum.IntEnum):
    """How the user wants the campaign to end."""

    NONE = 0
    STOP = 1
    KILL = 2


class StopRequests(Protocol):
    """Whether a run is to be ended: by the user, or in a job by Slurm."""

    hung_up: bool
    """Whether the terminal was closed, which does not stop jobs that need no harness."""

    @property
    def urgency(self) -> Urgency:
        """NONE until a stop is requested."""

    def stop_requested(self) -> bool:
        """Whether any stop was requested."""


class Interrupts:
    """Counts the user's stop requests."""

    def __init__(self, paths: CampaignPaths, owner: Owner, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._paths, self._owner, self._monotonic = paths, owner, monotonic
        self._signals = 0
        self.hung_up = False
        self._signalled_m = 0.0
        self._requested = False
        self._polled_m = -math.inf

    @property
    def urgency(self) -> Urgency:
        """NONE, STOP after the first signal or request, KILL after the second signal."""
        if self._signals >= 2:
            return Urgency.KILL
        return Urgency.STOP if self._signals or self._poll_request() else Urgency.NONE

    def stop_requested(self) -> bool:
        """Whether the user requested a stop."""
        return self.urgency is not Urgency.NONE

    @contextlib.contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Handle the stop signals while the block runs."""
        # Under nohup HUP is ignored, and stays so.
        wanted = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._on_signal) for number in wanted}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now_m = self._monotonic()
        self.hung_up = self.hung_up or number == signal.SIGHUP
        # A terminal that closes sends HUP and TERM together: that is one request.
        if not self._signals or now_m - self._signalled_m > DEBOUNCE_S:
            self._signals += 1
        self._signalled_m = now_m

    def _poll_request(self) -> bool:
        now_m = self._monotonic()
        if not self._requested and now_m - self._polled_m >= REQUEST_POLL_S:
            self._polled_m = now_m
            self._requested = is_stop_requested(self._paths, self._owner)
        return self._requested
