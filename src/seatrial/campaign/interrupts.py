"""Signals and stop requests as one question: how urgently does the user want this to stop?

INT, TERM and HUP count alike. The first asks the run to end and results to be written; the second kills at once.
"""

from __future__ import annotations

import contextlib
import enum
import math
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from seatrial.campaign.owner import Owner, asked_to_stop
from seatrial.paths import CampaignPaths
from seatrial.records.exit_codes import STOP_SIGNALS

# A look is a read of two small files, perhaps over a network; the question is asked five times a second.
REQUEST_LOOK_EVERY_S = 0.5
# Nobody presses Ctrl-C twice within it.
TOGETHER_S = 0.1


class Urgency(enum.IntEnum):
    """How the user wants the campaign to end."""

    NONE = 0
    STOP = 1
    KILL = 2


class Interrupts:
    """Counts the user's wishes to stop."""

    def __init__(self, paths: CampaignPaths, owner: Owner, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._paths, self._owner, self._monotonic = paths, owner, monotonic
        self._signals = 0
        self._signalled_m = 0.0
        self._requested = False
        self._looked_m = -math.inf

    @property
    def urgency(self) -> Urgency:
        """NONE, STOP after the first wish, KILL after the second signal."""
        if self._signals >= 2:
            return Urgency.KILL
        return Urgency.STOP if self._signals or self._request() else Urgency.NONE

    def is_asked(self) -> bool:
        """Whether the user wants the end, however urgently."""
        return self.urgency is not Urgency.NONE

    @contextlib.contextmanager
    def caught(self) -> Iterator[Interrupts]:
        """Catch the stop signals while the block runs."""
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
        # A terminal that closes sends HUP and TERM together: that is one wish.
        if not self._signals or now_m - self._signalled_m > TOGETHER_S:
            self._signals += 1
        self._signalled_m = now_m

    def _request(self) -> bool:
        now_m = self._monotonic()
        if not self._requested and now_m - self._looked_m >= REQUEST_LOOK_EVERY_S:
            self._looked_m = now_m
            self._requested = asked_to_stop(self._paths, self._owner)
        return self._requested
