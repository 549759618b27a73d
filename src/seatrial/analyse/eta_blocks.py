"""Blocks of steps for the replay of an estimator, all at once.

In: when steps ended, and where blocks begin and end. Out: for each block what `EtaEstimator.add_block` takes. The same as
`seatrial.eta.estimator.cut`, which is asked itself where a block has a long step in it; most have none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seatrial.eta.estimator import LONG_RATIO, LONG_SD, LOW_EIGHTH_SD, MEDIAN_SQUARE, Long, cut
from seatrial.eta.pace import Block

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


class CutBlock(NamedTuple):
    """The arguments of `EtaEstimator.add_block` after the step."""

    steps: int
    block: Block
    long: list[Long]
    pauses: list[tuple[int, float, int]]


def cut_blocks(step: Whole, end_s: Floats, paused_s: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> list[CutBlock]:
    """The blocks from mark `starts` to mark `ends`, which follow one another from the first mark on."""
    if len(starts) == 0:
        return []
    last = int(ends[-1]) + 1
    steps, pauses = np.diff(step[:last]), np.maximum(np.diff(paused_s[:last]), 0.0)
    took_s = np.maximum(np.diff(end_s[:last]) - pauses, 0.0)
    plain = _Plain(steps, took_s, starts, ends)
    first, in_all = int(step[0]), (step[ends] - step[starts]).tolist()
    cuts = list(zip(map(Block, in_all, plain.mean_s.tolist(), plain.variance.tolist()), plain.has_long.tolist(), strict=True))
    found = []
    for (block, has_long), count, start, end in zip(cuts, in_all, starts.tolist(), ends.tolist(), strict=True):
        long: list[Long] = []
        if has_long:
            marks = list(zip(steps[start:end].tolist(), took_s[start:end].tolist(), strict=True))
            block, long = cut(marks, int(step[start]) - first)
        found.append(CutBlock(count, block, long, []))
    for place in np.flatnonzero(pauses).tolist():
        number = int(np.searchsorted(ends, place, side="right"))
        found[number].pauses.append((int(step[place + 1]) - first, float(pauses[place]), int(steps[place])))
    return found


class _Plain:
    """Mean and noise of every block as if none had a long step, and which may have one."""

    def __init__(self, steps: Whole, took_s: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> None:
        each, counts, rows = took_s / steps, ends - starts, np.arange(len(starts))
        ordered = _sorted(each, starts, ends)
        median = ordered[rows, (counts - 1) // 2]
        limit = np.maximum(LONG_RATIO * median, LONG_SD * (median - ordered[rows, counts // 8]) / LOW_EIGHTH_SD)
        self.has_long = (ordered[rows, counts - 1] - median) * np.sqrt(steps.max()) > limit
        self.mean_s = np.add.reduceat(took_s, starts) / np.add.reduceat(steps, starts)
        self.variance = np.zeros(len(starts))
        if counts.max() > 1:
            apart = np.diff(each) ** 2 / (1 / steps[:-1] + 1 / steps[1:])
            middle = _sorted(apart, starts, ends - 1)[rows, (counts - 1) // 2]
            self.variance = np.where(counts > 1, middle / MEDIAN_SQUARE, 0.0)


def _sorted(values: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> Floats:
    """The values of each block in order, in a row of its own, NaN behind them."""
    places = starts[:, None] + np.arange(int((ends - starts).max()) + 1)
    found = values[np.minimum(places, len(values) - 1)]
    found[places >= ends[:, None]] = np.nan
    return np.sort(found, axis=1)
