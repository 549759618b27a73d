"""charts/eta.csv: what was said of the time to go, beside how long it then took.

In: the estimates of a run. Out: those of the mode that the plan asks for, thinned so that the worst of them stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seatrial.analyse.charts.cells import cells
from seatrial.analyse.charts.first_rank import FirstRank
from seatrial.analyse.charts.thinning import Floats, kept_places
from seatrial.eta.errors import of_mode
from seatrial.records.charts import Columns
from seatrial.records.eta import EtaPoint


def eta_table(points: Sequence[EtaPoint], mode: str, first: FirstRank, most: int) -> Columns:
    """At most `most` rows, by step; {} where nothing was estimated."""
    asked = of_mode(points, mode)
    if not asked:
        return {}
    steps = np.array([point.step for point in asked])
    eta_s, actual_s = (_numbers([getattr(point, name) for point in asked]) for name in ("eta_s", "actual_s"))
    error_s = eta_s - actual_s
    kept = kept_places(error_s if np.isfinite(error_s).any() else eta_s, most)
    return {
        "step": list(steps[kept].tolist()),
        "elapsed_s": cells(_at(first, steps[kept])),
        "eta_s": cells(eta_s[kept]),
        "low_s": cells(_numbers([point.low_s for point in asked])[kept]),
        "high_s": cells(_numbers([point.high_s for point in asked])[kept]),
        "actual_s": cells(actual_s[kept]),
    }


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)


def _at(first: FirstRank, steps: Floats) -> Floats:
    """Seconds since the launch at the end of each step; NaN where that is not known."""
    rows = np.searchsorted(first.step, steps).clip(max=len(first.step) - 1)
    return np.where(first.step[rows] == steps, first.t_s[rows], np.nan)
