"""charts/steps.csv: step time and loss over the run.

In: the first rank's steps. Out: columns, thinned so that no slow or quick step, no extreme of the loss and no loss that is no number is
lost: two thirds of the points are for the step time, a third for the loss. Steps that count are thinned apart from the others: beside a
pause or in the warm-up the slowest of them would not stand out.
"""

from __future__ import annotations

import numpy as np

from seatrial.analyse.charts.cells import cells, cells_with_marks
from seatrial.analyse.charts.first_rank import FirstRank
from seatrial.analyse.charts.thinning import LEAST_POINTS, Floats, Mask, Places, kept_places
from seatrial.records.charts import Columns
from seatrial.records.measure import Window


def step_table(first: FirstRank, window: Window | None, most: int) -> Columns:
    """At most `most` rows, where that is 16 or more; a row that speaks of several steps stands at the last of them."""
    counted = first.is_counted(window)
    kept = _kept(first, counted, most)
    told = first.loss_told[kept]
    return {
        "rank": [first.rank] * len(kept),
        "step": list(first.step[kept].tolist()),
        "begin_s": cells(first.begins_s[kept]),
        "t_s": cells(first.t_s[kept]),
        "iter_ms": cells(first.iter_ms[kept]),
        "loss": cells_with_marks(first.loss[kept], told),
        "counted": list(counted[kept].tolist()),
    }


def _kept(first: FirstRank, counted: Mask, most: int) -> Places:
    if len(first.step) <= most:
        return np.arange(len(first.step))
    if not first.loss_told.any():
        return _by_time(first.iter_ms, counted, most)
    for_loss = most // 3
    return np.union1d(_by_time(first.iter_ms, counted, most - for_loss), kept_places(first.loss, for_loss, first.loss_told))


def _by_time(iter_ms: Floats, counted: Mask, most: int) -> Places:
    """Both kinds get points by how many they are, and the rarer one as many as show its extremes."""
    rarer, other = sorted((np.flatnonzero(counted), np.flatnonzero(~counted)), key=len)
    if len(rarer) == 0:
        return kept_places(iter_ms, most, np.isfinite(iter_ms))
    for_rarer = min(len(rarer), max(LEAST_POINTS, most * len(rarer) // len(iter_ms)))
    parts = [(rarer, for_rarer), (other, most - for_rarer)]
    return np.union1d(*(rows[kept_places(iter_ms[rows], share, np.isfinite(iter_ms[rows]))] for rows, share in parts))
