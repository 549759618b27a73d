"""How long a run will still take, from the moments at which its steps ended.

In: marks (a step and when it ended), as many or as few as there are: every step from the probe, one every five seconds from
heartbeats, one every fifty steps from a log. Out: `EtaEstimate`, or None while too little is known. Standard library only: the
harness, the analysis and the trainers' own lines all take it from here.

Marks are gathered into blocks. `cut` takes the long steps out of a block, which go to `pauses` as named ones do; what is left goes to
`pace`. A long step at the end of a block, for which the next ones may make up, waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from seatrial.eta.cut import Cut, cut, long_only
from seatrial.eta.pace import Pace, new_pace
from seatrial.eta.pauses import Pauses
from seatrial.records.eta import EtaEstimate

# A block is so many marks at least and at most, and so large a part of the run; marks of many steps each are means already, and
# fewer of them will do. Loops log and read values back every ten steps, or a multiple: such a block has as much of that as any other.
LEAST_MARKS = 10
LEAST_SPARSE_MARKS = 4
SPARSE_STEPS = 8
MOST_MARKS = 1024
# Fewer open steps than these say nothing of the pace: one that is longer or shorter than the others would pass for a change of it.
FEW_STEPS = 10
BLOCKS_IN_A_RUN = 64
# An interval of nine in ten of a normal spread, and by how much more the truth was off in simulated jobs.
Z_90 = 1.645
WIDER = 1.15


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
            self._close()

    def add_block(self, step: int, seen: int, end: int, one: Cut, pauses: Sequence[tuple[int, float, int]]) -> None:
        """The same for the marks up to `step`, `seen` steps from the first, that were cut elsewhere into a block that ends at `end`.

        `pauses` are named ones: where, how long, spacing.
        """
        self._newest = (step, 0.0, 0.0)
        self._seen = seen
        for at, length_s, spacing in pauses:
            self._named.add(at, length_s, spacing)
        self._pace = self._with(one, end, self._unnamed)

    def estimate(self) -> EtaEstimate | None:
        """Time from the newest mark to the end of the last step."""
        if self._newest is None or self._seen < max(self._least_samples, 1):
            return None
        pace, unnamed = self._pace, self._unnamed
        if self._open:
            one = self._cut()
            unnamed = unnamed.copy()
            pace = self._with(one, self._seen - _steps(self._open, one.held), unnamed)
        if pace is None:
            return None
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

    def _cut(self) -> Cut:
        start = self._seen - self._open_steps
        if self._pace is not None and self._open_steps < FEW_STEPS:
            return long_only(self._open, start, self._pace.line.level_s)
        return cut(self._open, start)

    def _close(self) -> None:
        """The open marks made a block, but for those held; left open where too few would be in it."""
        one = self._cut()
        if one.block is None or len(self._open) - one.held < LEAST_SPARSE_MARKS:
            return
        held_steps = _steps(self._open, one.held)
        self._pace = self._with(one, self._seen - held_steps, self._unnamed)
        self._open, self._open_steps = self._open[len(self._open) - one.held :], held_steps

    def _with(self, one: Cut, end: int, unnamed: Pauses) -> Pace | None:
        """The pace with one block more, that ends at `end`; its long steps go to `unnamed`."""
        before = self._pace
        for number, pause in enumerate(one.long):
            # What is long from the first mark on is warm-up, and does not come again.
            if before is not None or pause.place != number:
                unnamed.add(pause.at, pause.excess_s, pause.spacing)
        if one.block is None:
            return before
        if before is None:
            return new_pace(self._total_steps, end, one.block)
        pace = before.after(one.block, end)
        if pace.restarts > before.restarts:
            # It was a warm-up: what was long in it does not come again either.
            unnamed.clear()
        return pace


def _steps(marks: Sequence[tuple[int, float]], last: int) -> int:
    """Steps of the last so many marks."""
    return sum(steps for steps, _ in marks[len(marks) - last :])
