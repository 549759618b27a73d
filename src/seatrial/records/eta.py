"""How long a run will still take, from the times at which its steps ended, and the quality of such estimates.

In: marks (a step and when it ended), dense or sparse: every step from the probe, one every five seconds from heartbeats, one every fifty
steps from a log. Out: `EtaEstimate`, or None while too little is known. Standard library only: the harness, the analysis and the trainers'
own lines all use it.

Marks are gathered into blocks. `split_marks` takes the long steps out of a block: they go to `Pauses`, like named ones, the rest to `Pace`.
A long step at the end of a block waits for the next ones, which may compensate for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from seatrial.records.eta_model import Pace, Pauses, SplitMarks, new_pace, split_few_marks, split_marks

RANK0: Final = "rank0"
GLOBAL_MAX: Final = "global_max"
OFF: Final = "off"
"""Which estimate is shown: rank 0's, the slowest rank's, or none."""


@dataclass(frozen=True, kw_only=True)
class EtaEstimate:
    """Time left, with its 90 % interval."""

    eta_s: float
    low_s: float
    high_s: float
    basis_iter_ms: float
    """The mean step time it assumes, without pauses."""
    samples: int
    """Steps it is based on."""


@dataclass(frozen=True, kw_only=True)
class EtaPoint:
    """One row of eta_points.csv: the estimate at the end of `step`."""

    index: int
    step: int
    remain_steps: int
    eta_s: float
    mode: str
    """`rank0` or `global_max`."""
    source: str
    """`events` or `steps` where it was computed from them, `log` where the script printed it."""
    low_s: float | None = None
    high_s: float | None = None
    basis_iter_ms: float | None = None
    samples: int | None = None
    actual_s: float | None = None
    """Actual time until the last step; None where the run did not reach it."""


@dataclass(frozen=True, kw_only=True)
class EtaQuality:
    """Errors of the estimates of one run, or of several, from a tenth of the run on and without the last step."""

    points: int
    median_error_s: float
    p90_error_s: float
    median_fraction: float
    """Error over the length of the run, from first step to last."""
    p90_fraction: float
    covered: float | None = None
    """Share of points whose interval held the actual time; None where no point had one."""
    length_s: float | None = None
    """Of the run, from the end of its first step to that of its last; the mean over several runs."""


FROM_FRACTION = 0.1


def points_of_mode(points: Sequence[EtaPoint], mode: str) -> tuple[EtaPoint, ...]:
    """The points of this mode, else those of rank 0."""
    of_mode = tuple(point for point in points if point.mode == mode)
    return of_mode or tuple(point for point in points if point.mode == RANK0)


def measure_eta_quality(runs: Iterable[tuple[Sequence[EtaPoint], float]]) -> EtaQuality | None:
    """Errors of all points of all runs, each run with its length; None where no estimate can be compared with the actual time."""
    errors_s: list[float] = []
    fractions: list[float] = []
    covered: list[bool] = []
    lengths_s: list[float] = []
    for points, length_s in runs:
        lengths_s.append(length_s)
        for point in points if length_s > 0 else ():
            actual_s, low_s, high_s, left = point.actual_s, point.low_s, point.high_s, point.remain_steps
            if actual_s is None or not 0 < left <= (1 - FROM_FRACTION) * (point.step + left + 1):
                continue
            error_s = abs(point.eta_s - actual_s)
            errors_s.append(error_s)
            fractions.append(error_s / length_s)
            if low_s is not None and high_s is not None:
                covered.append(low_s <= actual_s <= high_s)
    if not errors_s:
        return None
    errors_s.sort()
    fractions.sort()
    return EtaQuality(
        points=len(errors_s),
        median_error_s=_quantile(errors_s, 0.5),
        p90_error_s=_quantile(errors_s, 0.9),
        median_fraction=_quantile(fractions, 0.5),
        p90_fraction=_quantile(fractions, 0.9),
        covered=sum(covered) / len(covered) if covered else None,
        length_s=sum(lengths_s) / len(lengths_s),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of sorted values, linear between neighbours."""
    at = (len(ordered) - 1) * share
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


# Least marks of a block, besides its share of the run (BLOCKS_IN_A_RUN). Marks of many steps are means already, so fewer suffice. Loops log
# and read values back every ten steps, or a multiple: with ten marks every block has an equal part of that.
MIN_MARKS = 10
MIN_SPARSE_MARKS = 4
SPARSE_STEPS = 8
MAX_MARKS = 1024
# Fewer open steps than this do not show a change of pace: one long or short step would look like one.
FEW_STEPS = 10
BLOCKS_IN_A_RUN = 64
# A 90 % interval of a normal distribution, and the factor that simulated jobs needed.
Z_90 = 1.645
WIDER = 1.15


class EtaEstimator:
    """Takes the marks of one rank of one run, in order. Memory does not grow with their number."""

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

        A repeated step is ignored. Where the counter or the clock goes back, time is counted from there.
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
            self._close()

    def add_block(self, step: int, seen: int, end: int, split: SplitMarks, pauses: Sequence[tuple[int, float, int]]) -> None:
        """The same for all marks up to `step`, `seen` steps from the first, that were split already into a block that ends at `end`.

        `pauses` are named ones: where, how long, spacing.
        """
        self._newest = (step, 0.0, 0.0)
        self._seen = seen
        for at, length_s, spacing in pauses:
            self._named.add(at, length_s, spacing)
        self._pace = self._with(split, end, self._unnamed)

    def estimate(self) -> EtaEstimate | None:
        """Time from the newest mark to the end of the last step."""
        if self._newest is None or self._seen < max(self._least_samples, 1):
            return None
        pace, unnamed = self._pace, self._unnamed
        if self._open:
            split = self._split()
            unnamed = unnamed.copy()
            pace = self._with(split, self._seen - _steps(self._open, split.held), unnamed)
        if pace is None:
            return None
        steps = max(self._total_steps - 1 - self._newest[0], 0)
        steps_s, steps_var = pace.expected(steps)
        named_s, named_var = self._named.expected(self._seen, steps, pace.line.level_s)
        unnamed_s, unnamed_var = unnamed.expected(self._seen, steps, pace.line.level_s)
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
        least = MIN_SPARSE_MARKS if self._open_steps >= SPARSE_STEPS * marks else MIN_MARKS
        return (marks >= least and self._open_steps >= self._block_steps) or marks >= MAX_MARKS

    def _split(self) -> SplitMarks:
        start = self._seen - self._open_steps
        if self._pace is not None and self._open_steps < FEW_STEPS:
            return split_few_marks(self._open, start, self._pace.line.level_s)
        return split_marks(self._open, start)

    def _close(self) -> None:
        """Turn the open marks into a block, except those held back, if there are enough."""
        split = self._split()
        if split.block is None or len(self._open) - split.held < MIN_SPARSE_MARKS:
            return
        held_steps = _steps(self._open, split.held)
        self._pace = self._with(split, self._seen - held_steps, self._unnamed)
        self._open, self._open_steps = self._open[len(self._open) - split.held :], held_steps

    def _with(self, split: SplitMarks, end: int, unnamed: Pauses) -> Pace | None:
        """The pace with one more block, which ends at `end`; its long steps go to `unnamed`."""
        before = self._pace
        for number, pause in enumerate(split.long):
            # Long steps from the first mark on are warm-up and do not recur.
            if before is not None or pause.place != number:
                unnamed.add(pause.at, pause.excess_s, pause.spacing)
        if split.block is None:
            return before
        if before is None:
            return new_pace(self._total_steps, end, split.block)
        pace = before.after(split.block, end)
        if pace.restarts > before.restarts:
            # It was a warm-up: its long steps do not recur either.
            unnamed.clear()
        return pace


def _steps(marks: Sequence[tuple[int, float]], last: int) -> int:
    """The number of steps of the last marks."""
    return sum(steps for steps, _ in marks[len(marks) - last :])
