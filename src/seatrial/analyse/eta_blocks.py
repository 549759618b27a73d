"""Blocks of steps for the replay of an estimator, all at once.

In: when steps ended, and where blocks begin and end. Out: for each block what `EtaEstimator.add_block` takes. The same as
`seatrial.eta.cut.cut`, which is asked itself where a block has a long step in it or is left one by the block before; most have none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seatrial.eta.cut import LONG_RATIO, LONG_SD, LONG_STEPS, LOW_PART, LOW_SD, MEDIAN_SQUARE, Cut, cut
from seatrial.eta.pace import Block

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


class CutBlock(NamedTuple):
    """The arguments of `EtaEstimator.add_block` after the step."""

    seen: int
    end: int
    one: Cut
    pauses: list[tuple[int, float, int]]


def cut_blocks(step: Whole, end_s: Floats, paused_s: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> list[CutBlock]:
    """The blocks from mark `starts` to mark `ends`, which follow one another from the first mark on."""
    if len(starts) == 0:
        return []
    last = int(ends[-1]) + 1
    steps, pauses = np.diff(step[:last]), np.maximum(np.diff(paused_s[:last]), 0.0)
    took_s = np.maximum(np.diff(end_s[:last]) - pauses, 0.0)
    plain = _Plain(steps, took_s, starts, ends)
    means = zip((step[ends] - step[starts]).tolist(), plain.mean_s.tolist(), plain.variance.tolist(), strict=True)
    passed = (step[:last] - step[0]).tolist()
    found: list[CutBlock] = []
    held = 0
    for mean, has_long, start, end in zip(means, plain.has_long.tolist(), starts.tolist(), ends.tolist(), strict=True):
        # The first block may begin with steps that were only launched.
        if has_long or held or start == 0:
            begin = start - held
            marks = list(zip(steps[begin:end].tolist(), took_s[begin:end].tolist(), strict=True))
            one = cut(marks, passed[begin])
        else:
            one = Cut(Block(*mean), [], 0)
        held = one.held
        found.append(CutBlock(passed[end], passed[end - held], one, []))
    for place in np.flatnonzero(pauses).tolist():
        number = int(np.searchsorted(ends, place, side="right"))
        found[number].pauses.append((passed[place + 1], float(pauses[place]), int(steps[place])))
    return found


class _Plain:
    """Mean and noise of every block as if none had a long step, and which may have one."""

    def __init__(self, steps: Whole, took_s: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> None:
        each, counts, rows = took_s / steps, ends - starts, np.arange(len(starts))
        ordered = _sorted(each, starts, ends)
        median = ordered[rows, (counts - 1) // 2]
        limit = np.maximum(LONG_RATIO * median, LONG_SD * (median - ordered[rows, counts // LOW_PART]) / LOW_SD)
        more, most = ordered[rows, counts - 1] - median, steps.max()
        self.has_long = (more * np.sqrt(most) > limit) & (more * most > LONG_STEPS * median)
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
