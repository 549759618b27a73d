"""charts/steps.csv: step time and loss over the run.

In: the first rank's steps. Out: columns, thinned so that no slow or quick step, no extreme of the loss and no loss that is no number is
lost: two thirds of the points are for the step time, a third for the loss.
"""

from __future__ import annotations

import numpy as np

from seatrial.analyse.charts.cells import cells, cells_with_marks
from seatrial.analyse.charts.first_rank import FirstRank
from seatrial.analyse.charts.thinning import Places, kept_places
from seatrial.records.charts import Columns
from seatrial.records.measure import Window


def step_table(first: FirstRank, window: Window | None, most: int) -> Columns:
    """At most `most` rows, where that is 10 or more; a row that speaks of several steps stands at the last of them."""
    kept = _kept(first, most)
    told = first.loss_told[kept]
    return {
        "rank": [first.rank] * len(kept),
        "step": list(first.step[kept].tolist()),
        "t_s": cells(first.t_s[kept]),
        "iter_ms": cells(first.iter_ms[kept]),
        "loss": cells_with_marks(first.loss[kept], told),
        "counted": list(first.is_counted(window)[kept].tolist()),
    }


def _kept(first: FirstRank, most: int) -> Places:
    timed = np.isfinite(first.iter_ms)
    if len(first.step) <= most or not first.loss_told.any():
        return kept_places(first.iter_ms, most, timed)
    for_loss = most // 3
    times, losses = kept_places(first.iter_ms, most - for_loss, timed), kept_places(first.loss, for_loss, first.loss_told)
    return np.union1d(times, losses)
