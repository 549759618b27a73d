"""Steps of a Hugging Face Trainer whose progress bar is switched off.

In: stamped lines. Out: line number, step and loss of each `{'loss': …, 'epoch': …}` line. Those lines carry an epoch and no step; the
last line gives run time, steps a second and the last epoch, from which the number of steps and so the step of every line follow.
Steps count from 0, as everywhere, though the Trainer speaks of steps done. Its numbers are printed with four digits, so above some
thousand steps one may be off by a few: no matter for times between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.collect.logs.source import StampedLine
from seatrial.log_lines import LARGEST_STEP, plain
from seatrial.records.log_formats import NUMBER

LOSS = re.compile(rf"\{{'loss': '?({NUMBER}|nan|inf)'?[,}}]")
SUMMARY = re.compile(r"\{'train_runtime':")
FIELD = re.compile(rf"'(\w+)': '?({NUMBER})'?[,}}]")


@dataclass(frozen=True, kw_only=True)
class LossLine:
    """One logged loss."""

    at: int
    """Number of the line."""
    step: int
    loss: float


def steps_by_epoch(lines: Sequence[StampedLine]) -> list[LossLine]:
    """Logged losses with their steps; [] when the run did not come to its summary."""
    told = [(at, plain(line.text)) for at, line in enumerate(lines) if "{'" in line.text]
    summary = next((_fields(text) for _, text in reversed(told) if SUMMARY.search(text)), {})
    taken = summary.get("train_runtime", 0.0) * summary.get("train_steps_per_second", 0.0)
    epochs = summary.get("epoch", 0.0)
    if not 1 <= taken <= LARGEST_STEP or epochs <= 0:
        return []
    # A loss without an epoch, or with one beyond the last (both were rounded), has no step.
    logged = [(at, float(match.group(1)), _fields(text).get("epoch", -1.0)) for at, text in told if (match := LOSS.search(text))]
    within = [(at, loss, epoch / epochs) for at, loss, epoch in logged if 0 <= epoch <= 1.01 * epochs]
    return [LossLine(at=at, step=round(share * round(taken)) - 1, loss=loss) for at, loss, share in within]


def count_losses(lines: Sequence[StampedLine]) -> int:
    """Lines that tell a loss as the Trainer does, whether or not their steps can be found."""
    return sum(LOSS.search(plain(line.text)) is not None for line in lines if "{'loss'" in line.text)


def _fields(text: str) -> dict[str, float]:
    """Numbers by name; one with too large an exponent is none."""
    return {name: number for name, value in FIELD.findall(text) if math.isfinite(number := float(value))}
