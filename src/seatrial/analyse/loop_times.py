"""When a run's loop began and ended.

In: the step table, by one clock, and rank 0's rows of it. Out: fields of `RunMeasure`.
"""

from __future__ import annotations

import math
from typing import TypedDict

import numpy as np
import polars as pl


class LoopTimes(TypedDict, total=False):
    first_step_t: float | None
    last_step_t: float | None
    loop_s: float | None


def loop_times(steps: pl.DataFrame, rank0: pl.DataFrame) -> LoopTimes:
    """When the first and the last step ended on the slowest rank, and how long rank 0 took between the two by the monotonic clock."""
    step, t = steps["step"].to_numpy(), steps["t"].to_numpy()
    ends = [t[(step == number) & ~np.isnan(t)] for number in (step.min(), step.max())]
    first_t, last_t = (float(found.max()) if len(found) else None for found in ends)
    m = rank0["m"].to_numpy()
    lasted_s = float(m[-1] - m[0]) if len(m) > 1 else math.nan
    return {"first_step_t": first_t, "last_step_t": last_t, "loop_s": lasted_s if lasted_s >= 0 else None}
