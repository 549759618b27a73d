"""Lines for people. In: step and loss. Out: the same line on stdout and, from rank 0, in train.log.

2026-11-15 03:24:55,193 - seatrial - INFO - Step 50: Loss 3.2710
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

TRAIN_LOG = "train.log"


class HumanLines:
    """Rank 0 speaks; the others are silent. Use as a context manager."""

    def __init__(self, run_dir: Path, rank: int, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._run_dir = run_dir
        self._wall_clock = wall_clock
        self._train_log: TextIO | None = None
        if rank == 0:
            run_dir.mkdir(parents=True, exist_ok=True)
            # Line by line, so that whoever follows the file sees each line when it is said.
            self._train_log = open(run_dir / TRAIN_LOG, "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def say(self, text: str) -> None:
        if self._train_log is None:
            return
        line = f"{prefix(self._wall_clock())}{text}\n"
        self._train_log.write(line)
        sys.stdout.write(line)
        sys.stdout.flush()

    def step(self, step: int, loss: float) -> None:
        self.say(f"Step {step}: Loss {loss:.4f}")

    def __enter__(self) -> HumanLines:
        self.say(f"Writing to {self._run_dir}")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._train_log is not None:
            self._train_log.close()


def prefix(t: float) -> str:
    """Date, time to the millisecond, logger and level."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(t))},{int(t * 1000) % 1000:03d} - seatrial - INFO - "
