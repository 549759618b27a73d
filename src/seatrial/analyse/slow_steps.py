"""The steps of a window that stand out, and the seeds' figure of its last fifty.

In: the counted steps of a run. Out: `SlowSteps`, or None where none stands out; `LastSteps`, or None where nothing was counted. Slow
steps are named, not left out: a job has them in earnest too, and its throughput is what it is with them.

On a GPU the host runs ahead of the device and waits for it now and then, as when it reads a loss: by wall clock that step is long and
those about it are short by as much. Time that others make up for is not lost, so it does not count.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from seatrial.analyse.quantile import MAD_TO_SIGMA, MEDIAN_TO_MEAN_ERROR, median
from seatrial.analyse.window import Counted
from seatrial.records.health import LastSteps, SlowStep, SlowSteps

Floats = npt.NDArray[np.float64]

LEAST_ROWS = 10
"""Of fewer no usual width can be told."""
FAR_WIDTHS = 6.0
"""Of normal noise none in a million is so far from the median; of a window's thousand steps, none is by chance."""
FAR_SHARE = 0.25
"""Nor is a step worth a name that is slower by less than this, however even the others are."""
LEAST_KEPT = 0.5
"""Of what slow steps take beyond the median, the share that no shorter step makes up for: with less they are mostly waiting put off."""
LEAST_TIME_SHARE = 0.001
"""Of the window's time; less changes no figure that is shown."""
MEDIAN_ERRORS = 2.0
"""As many standard errors of the median, steps may fall short of it together by chance."""
LAUNCHING_RATIO = 1.5
"""Phases this many times as long as the step by wall clock: the wall clock then tells when steps were launched, not what they took."""
WORST = 5
LAST_STEPS = 50
"""As the seeds' rule has it."""


def slow_steps(counted: Counted, phases_p50_ms: float | None = None) -> SlowSteps | None:
    """The steps far above the window's median, by its robust width and by a share of it. `phases_p50_ms` is the median over the same steps
    of what their phases take together, where those are told."""
    times_ms = counted.wall_ms
    if counted.window is None or len(times_ms) < LEAST_ROWS:
        return None
    level = median(times_ms)
    width = median(np.abs(times_ms - level)) * MAD_TO_SIGMA
    far = np.flatnonzero(times_ms > level + max(FAR_WIDTHS * width, FAR_SHARE * level))
    if level <= 0 or len(far) == 0 or (phases_p50_ms is not None and phases_p50_ms >= LAUNCHING_RATIO * level):
        return None
    total_ms = float(times_ms @ counted.spans)
    beyond_ms = float((times_ms[far] - level) @ counted.spans[far])
    lost_ms = min(beyond_ms, total_ms - _level_ms(level, width, counted.spans))
    if lost_ms < max(LEAST_KEPT * beyond_ms, LEAST_TIME_SHARE * total_ms):
        return None
    worst = far[np.argsort(-times_ms[far], kind="stable")[:WORST]]
    return SlowSteps(
        count=int(counted.spans[far].sum()),
        time_share=lost_ms / total_ms,
        worst=tuple(
            SlowStep(step=int(counted.last_steps[row]), ms=float(times_ms[row]), over_median=float(times_ms[row]) / level) for row in worst
        ),
    )


def _level_ms(level: float, width: float, spans: npt.NDArray[np.int64]) -> float:
    """What the window would take if no step were slow; rather too little, as half of the steps are below the median by chance."""
    error = MEDIAN_ERRORS * MEDIAN_TO_MEAN_ERROR * width / math.sqrt(len(spans))
    return float(spans.sum()) * (level - error)


def last_steps(counted: Counted, world_size: int) -> LastSteps | None:
    """Mean and standard deviation over the last fifty counted steps; over all where there are fewer."""
    if counted.window is None:
        return None
    rows = _last_rows(counted.spans)
    times_ms, spans = counted.wall_ms[rows], counted.spans[rows]
    steps = int(spans.sum())
    mean_ms = float(times_ms @ spans) / steps
    if mean_ms <= 0:
        return None
    # A row that speaks of several steps gives their mean, so that the spread between single steps is not known, only between rows.
    variance = float(((times_ms - mean_ms) ** 2) @ spans) / steps * len(rows) / max(1, len(rows) - 1)
    return LastSteps(n=steps, mean_ms=mean_ms, stdev_ms=variance**0.5, per_s=_work_per_step(counted, world_size) / mean_ms * 1000)


def _last_rows(spans: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Rows from the end that together speak of fifty steps at least; all where there are fewer."""
    told = np.cumsum(spans[::-1])
    count = int(np.searchsorted(told, LAST_STEPS)) + 1
    return np.arange(max(0, len(spans) - count), len(spans))


def _work_per_step(counted: Counted, world_size: int) -> float:
    """Samples of all ranks in the window's mean step, else tokens, else the step itself."""
    work = counted.samples if counted.samples is not None else counted.tokens
    if work is None or counted.window is None or counted.ranks == 0:
        return 1.0
    return work * world_size / counted.ranks / counted.window.n
