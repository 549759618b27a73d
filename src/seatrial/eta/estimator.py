"""How long a run will still take, from the moments at which its steps ended.

In: marks (a step and when it ended), as many or as few as there are: every step from the probe, one every five seconds from
heartbeats, one every fifty steps from a log. Out: `EtaEstimate`, or None while too little is known. Standard library only: the
harness, the analysis and the trainers' own lines all take it from here.

Marks are gathered into blocks. A step far longer than the others of its block is a pause that nobody named: it is left out of the block,
and what it took too long goes to `eta_pauses`, as named pauses do. The rest of the block goes to `eta_pace`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from seatrial.eta.pace import Block, Pace, new_pace
from seatrial.eta.pauses import Pauses
from seatrial.records.eta import EtaEstimate

# A block is so many marks at least and at most, and so large a part of the run; marks of many steps each are means already, and
# fewer of them will do.
LEAST_MARKS = 8
LEAST_SPARSE_MARKS = 4
SPARSE_STEPS = 8
MOST_MARKS = 1024
BLOCKS_IN_A_RUN = 64
# A step is long when it takes this share more than the median of its block, and lies so many deviations off.
LONG_RATIO = 0.5
LONG_SD = 4.0
# The eighth below the median of a normal spread lies so many deviations off it, and the median of a squared one is this share of its mean.
LOW_EIGHTH_SD = 1.15
MEDIAN_SQUARE = 0.455
# An interval of nine in ten of a normal spread, and by how much more the truth was off in simulated jobs.
Z_90 = 1.645
WIDER = 1.15


class Long(NamedTuple):
    """A step that took far longer than its neighbours."""

    place: int
    """Which mark of the block."""
    at: int
    """Steps from the first mark."""
    excess_s: float
    spacing: int
    """Steps of its mark: where in them it was is not known."""


class EtaEstimator:
    """The marks of one rank of one run, in order. Memory does not grow with their number."""

    def __init__(self, total_steps: int, least_samples: int = 10) -> None:
        self._total_steps, self._least_samples = max(total_steps, 1), least_samples
        self._block_steps = total_steps // BLOCKS_IN_A_RUN
        self._newest: tuple[int, float, float] | None = None
        self._seen = 0
        self._open: list[tuple[int, float]] = []
        self._open_steps = 0
        self._pace: Pace | None = None
        self._named, self._unnamed = Pauses(named=True), Pauses(named=False)

    def add(self, step: int, elapsed_s: float, paused_s: float = 0.0) -> None:
        """`step` (counted from 0) ended at `elapsed_s` on any fixed clock; `paused_s` is all time in named pauses up to then.

        A step told again is passed over. Where the counter or the clock goes back, time is counted on from there.
        """
        before = self._newest
        if before is None or step < before[0] or elapsed_s < before[1]:
            self._newest = (step, elapsed_s, paused_s)
            return
        steps = step - before[0]
        if steps == 0:
            return
        self._newest = (step, elapsed_s, paused_s)
        pause_s = max(paused_s - before[2], 0.0)
        self._seen += steps
        self._open_steps += steps
        self._open.append((steps, max(elapsed_s - before[1] - pause_s, 0.0)))
        if pause_s:
            self._named.add(self._seen, pause_s, steps)
        if self._is_full():
            block, long = cut(self._open, self._seen - self._open_steps)
            self._pace = self._with(block, long, self._unnamed)
            self._open, self._open_steps = [], 0

    def add_block(self, step: int, steps: int, block: Block, long: Sequence[Long], pauses: Sequence[tuple[int, float, int]]) -> None:
        """The same for `steps` steps up to `step` that were cut elsewhere; `pauses` are named ones: where, how long, spacing."""
        self._newest = (step, 0.0, 0.0)
        self._seen += steps
        for at, length_s, spacing in pauses:
            self._named.add(at, length_s, spacing)
        self._pace = self._with(block, long, self._unnamed)

    def estimate(self) -> EtaEstimate | None:
        """Time from the newest mark to the end of the last step."""
        if self._newest is None or self._seen < max(self._least_samples, 1):
            return None
        pace, unnamed = self._pace, self._unnamed
        if self._open:
            block, long = cut(self._open, self._seen - self._open_steps)
            unnamed = unnamed.copy()
            pace = self._with(block, long, unnamed)
        assert pace is not None
        steps = max(self._total_steps - 1 - self._newest[0], 0)
        steps_s, steps_var = pace.rest(steps)
        named_s, named_var = self._named.to_come(self._seen, steps, pace.line.level_s)
        unnamed_s, unnamed_var = unnamed.to_come(self._seen, steps, pace.line.level_s)
        eta_s = steps_s + named_s + unnamed_s
        spread_s = WIDER * Z_90 * math.sqrt(max(steps_var, 0.0) + named_var + unnamed_var)
        return EtaEstimate(
            eta_s=eta_s,
            low_s=max(eta_s - spread_s, 0.0),
            high_s=eta_s + spread_s,
            basis_iter_ms=(steps_s / steps if steps else max(pace.line.at(pace.end), 0.0)) * 1000,
            samples=pace.steps,
        )

    def _is_full(self) -> bool:
        marks = len(self._open)
        least = LEAST_SPARSE_MARKS if self._open_steps >= SPARSE_STEPS * marks else LEAST_MARKS
        return (marks >= least and self._open_steps >= self._block_steps) or marks >= MOST_MARKS

    def _with(self, block: Block, long: Sequence[Long], unnamed: Pauses) -> Pace:
        """The pace with one block more, whose long steps go to `unnamed`."""
        before = self._pace
        if before is None:
            # What is long from the first mark on is warm-up, and does not come again.
            for one in (one for number, one in enumerate(long) if one.place != number):
                unnamed.add(one.at, one.excess_s, one.spacing)
            return new_pace(self._total_steps, self._seen, block)
        for one in long:
            unnamed.add(one.at, one.excess_s, one.spacing)
        pace = before.after(block, self._seen)
        if pace.restarts > before.restarts:
            # It was a warm-up: what was long in it does not come again either.
            unnamed.clear()
        return pace


def cut(marks: Sequence[tuple[int, float]], start: int) -> tuple[Block, list[Long]]:
    """The block of these marks (steps and time of each) from `start` on, and the long ones that were left out of it."""
    each = [took_s / steps for steps, took_s in marks]
    ordered = sorted(each)
    median_s = ordered[(len(ordered) - 1) // 2]
    # Of what lies below the median, since long steps swell what lies above.
    low_sd = (median_s - ordered[len(ordered) // 8]) / LOW_EIGHTH_SD
    limit_s = max(LONG_RATIO * median_s, LONG_SD * low_sd)
    if (ordered[-1] - median_s) * math.sqrt(max(marks)[0]) <= limit_s:
        return _block(marks, each), []
    long, kept, at = [], [], start
    for place, (steps, took_s) in enumerate(marks):
        at += steps
        if (each[place] - median_s) * math.sqrt(steps) > limit_s:
            long.append(Long(place, at, took_s - steps * median_s, steps))
        else:
            kept.append(place)
    return _block([marks[place] for place in kept], [each[place] for place in kept]), long


def _block(marks: Sequence[tuple[int, float]], each: Sequence[float]) -> Block:
    """Mean and noise; the noise from each mark to the next, so that a trend or a change within the block does not swell it."""
    steps = sum(mark[0] for mark in marks)
    apart = sorted(
        (one - other) ** 2 / (1 / marks[place][0] + 1 / marks[place + 1][0]) for place, (one, other) in enumerate(pairwise(each))
    )
    variance = apart[len(apart) // 2] / MEDIAN_SQUARE if apart else 0.0
    return Block(steps, sum(mark[1] for mark in marks) / steps, variance)
