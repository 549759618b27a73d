"""Requests to end the run, within a Slurm job: Slurm's warning (`--signal`, requested in launch/places/slurm.py), its TERM, and the
harness's job_stop.json.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from seatrial.campaign.interrupts import Urgency

# A poll looks for two small files, perhaps over a network.
STOP_POLL_S = 0.5


class JobSignals:
    """Requests to end the run: the harness's (job_stop.json), Slurm's warning before the time limit (USR1), and Slurm's TERM.

    A program whose slurmd died gets no signal when its job is started again elsewhere. It finds that its attempt was closed (`is_closed`)
    and ends its ranks.
    """

    def __init__(self, stop_file: Path, is_closed: Callable[[], bool]) -> None:
        self._stop_file, self._is_closed = stop_file, is_closed
        self.ended = self.warned = self.asked = self.closed = False
        # A job has no terminal.
        self.hung_up = False
        self._polled_m = float("-inf")

    def install(self) -> None:
        signal.signal(signal.SIGUSR1, self._on_warning)
        signal.signal(signal.SIGTERM, self._on_end)
        signal.signal(signal.SIGINT, self._on_end)

    @property
    def urgency(self) -> Urgency:
        self._poll()
        # After TERM only seconds may be left; the ranks have received it too.
        if self.ended or self.closed:
            return Urgency.KILL
        return Urgency.STOP if self.warned or self.asked else Urgency.NONE

    def stop_requested(self) -> bool:
        return self.urgency is not Urgency.NONE

    def _poll(self) -> None:
        now_m = time.monotonic()
        if now_m - self._polled_m >= STOP_POLL_S:
            self._polled_m = now_m
            self.asked = self.asked or self._stop_file.exists()
            self.closed = self.closed or self._is_closed()

    def _on_warning(self, number: int, frame: FrameType | None) -> None:
        self.warned = True

    def _on_end(self, number: int, frame: FrameType | None) -> None:
        self.ended = True
