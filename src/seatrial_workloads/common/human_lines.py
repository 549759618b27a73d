"""Lines for people. In: step and loss, and the probe's times. Out: the same lines on stdout and in train.log.

2026-11-15 03:24:55,193 - seatrial - INFO - Step 50: Loss 3.2710

Rank 0 speaks; the others only where the plan asks for a line of every rank (see timing_lines).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from seatrial.probe.line_file import LineFile
from seatrial_workloads.common.timing_lines import TimingLines

TRAIN_LOG = "train.log"


class HumanLines:
    """The lines of one rank. Use as a context manager."""

    def __init__(self, run_dir: Path, rank: int, timing: TimingLines | None = None, *, wall: Callable[[], float] = time.time) -> None:
        self._run_dir = run_dir
        self._rank = rank
        self._timing = timing
        self._wall = wall
        # Several ranks append to it, each line in one write; a full disk costs lines and not the run.
        self._train_log = LineFile(run_dir / TRAIN_LOG)

    def say(self, text: str) -> None:
        """One line of rank 0; the other ranks keep silent."""
        if self._rank == 0:
            self._write(text)

    def step(self, step: int, loss: float) -> None:
        """What is to be said of a logged step. Every rank calls it, at the same steps."""
        self.say(f"Step {step}: Loss {loss:.4f}")
        for line in self._timing.of_step(step, loss) if self._timing else ():
            self._write(line)

    def _write(self, text: str) -> None:
        line = f"{prefix(self._wall())}{text}"
        self._train_log.write([line])
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def __enter__(self) -> HumanLines:
        self.say(f"Writing to {self._run_dir}")
        return self

    def __exit__(self, *exception: object) -> None:
        self._train_log.close()


def prefix(t: float) -> str:
    """Date, time to the millisecond, logger and level."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(t))},{int(t * 1000) % 1000:03d} - seatrial - INFO - "
