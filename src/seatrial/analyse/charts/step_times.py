"""charts/step_times.csv: how the times of the counted steps are spread.

In: the step tables and the window. Out: quantiles, of the same steps and by the same rule as the run's p50 and p90: a step takes as long
as its slowest rank.
"""

from __future__ import annotations

import numpy as np

from seatrial.analyse.charts.first_rank import FirstRank
from seatrial.analyse.charts.thinning import Floats
from seatrial.analyse.quantile import percentiles
from seatrial.analyse.window import count_steps
from seatrial.records.charts import Columns
from seatrial.records.measure import Window
from seatrial.records.steps import StepTables

QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99, 1.0)


def step_time_table(tables: StepTables, first: FirstRank, window: Window) -> Columns:
    """One row a quantile; {} where no step is left."""
    counted_ms = _counted_ms(tables, first, window)
    if len(counted_ms) == 0:
        return {}
    times = percentiles(counted_ms, [100 * quantile for quantile in QUANTILES])
    return {
        "quantile": list(QUANTILES),
        "iter_ms": list(times),
        "first_step": [window.first_step] * len(QUANTILES),
        "last_step": [window.last_step] * len(QUANTILES),
        "n": [window.n] * len(QUANTILES),
    }


def _counted_ms(tables: StepTables, first: FirstRank, window: Window) -> Floats:
    if len(first.step) == len(tables.steps):
        return np.asarray(first.iter_ms[first.is_counted(window)])
    # The window is known by now: what is asked for is which steps of it all ranks have, and how long the slowest took.
    return count_steps(tables.steps, tables.pauses["step"], f"{window.first_step}:{window.last_step}").wall_ms
