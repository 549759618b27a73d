"""Whether the wall clock was set while a run ran.

In: the step table, which has both clocks at the end of every step. Out: `ClockJump`, or None. Steps are timed on the monotonic clock,
which nobody sets; but the machine's samples are laid beside the steps by the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

LEAST_JUMP_S = 2.0
"""Less is what a time service corrects now and then, and no more than a sample's interval."""


@dataclass(frozen=True, kw_only=True)
class ClockJump:
    """The largest that a rank has seen."""

    step: int
    """The step before whose end it came."""
    jump_s: float
    """Positive where the clock was set forward."""


def clock_jump(steps: pl.DataFrame) -> ClockJump | None:
    """By how much the two clocks moved against one another from one step to the next, where that is too much."""
    rank, step, t, m = (steps[name].to_numpy() for name in ("rank", "step", "t", "m"))
    known = np.isfinite(t) & np.isfinite(m)
    if not known.all():
        rank, step, t, m = rank[known], step[known], t[known], m[known]
    # Two ranks' monotonic clocks may begin anywhere.
    moved = np.where(np.diff(rank) == 0, np.diff(t - m), 0.0)
    if len(moved) == 0:
        return None
    at = int(np.argmax(np.abs(moved)))
    if not abs(moved[at]) > LEAST_JUMP_S:
        return None
    return ClockJump(step=int(step[at + 1]), jump_s=float(moved[at]))
