"""Whether a run's loss falls.

In: the losses of rank 0 in order. Out: True, False, or None where the losses do not say. A loss is noisy: of two medians one is
always the lower, so a flat loss would pass half of the time. It falls where Kendall's test finds a trend that chance does not explain
and the end bears it out; it does not where it rises, ends above its start by more than its noise, or is not a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from seatrial.analyse.mann_kendall import mann_kendall
from seatrial.analyse.quantile import MAD_TO_SIGMA, MEDIAN_TO_MEAN_ERROR, median

Losses = npt.NDArray[np.float64]

LEAST_LOSSES = 8
"""With fewer, a quarter is one loss."""
LOSS_CHANCE = 0.05
"""At most this share of flat losses is taken to fall, and as many to rise."""
MOST_LOSSES = 250
"""More are thinned evenly before Kendall's test: they cost time and add nothing to a trend that is there."""
ABOVE_ERRORS = 3.0
"""An end this many standard errors above the start is no accident of noise."""


def loss_falls(losses: Sequence[float] | Losses) -> bool | None:
    """True when it falls, False when it rises, ends above its start or is no number, None when neither shows beyond its noise."""
    values = np.asarray(losses, dtype=np.float64)
    if not np.isfinite(values).all():
        return False
    if len(values) < LEAST_LOSSES:
        return None
    start, end, tail = values[: len(values) // 4], values[-(len(values) // 4) :], values[-max(1, len(values) // 10) :]
    trend = _trend(values)
    if trend > 0 or _ends_above(start, tail, loss_noise(values)):
        return False
    first = median(start)
    return True if trend < 0 and median(end) < first and median(tail) <= first else None


def loss_fall_pct(losses: Sequence[float] | Losses) -> float | None:
    """By how much the last quarter's mean lies below the first's, in per cent of it; None where that cannot be said."""
    values = np.asarray(losses, dtype=np.float64)
    if len(values) < LEAST_LOSSES or not np.isfinite(values).all():
        return None
    quarter = len(values) // 4
    first = float(values[:quarter].mean())
    return 100 * (1 - float(values[-quarter:].mean()) / first) if first > 0 else None


def _trend(values: Losses) -> int:
    """-1 for a loss that falls, 1 for one that rises, 0 where chance explains it."""
    if np.ptp(values) == 0:
        return 0
    if len(values) > MOST_LOSSES:
        values = values[np.linspace(0, len(values) - 1, MOST_LOSSES).round().astype(np.intp)]
    found = mann_kendall(values)
    # Of a two-sided chance, half belongs to the way the trend goes.
    return found.sign if found.chance / 2 < LOSS_CHANCE else 0


def loss_noise(values: Losses) -> float:
    """Robust standard deviation of a loss about its course, by what one loss differs from the next; of two losses or more."""
    steps = np.diff(values)
    return median(np.abs(steps - median(steps))) * MAD_TO_SIGMA / math.sqrt(2)


def _ends_above(start: Losses, tail: Losses, noise: float) -> bool:
    error = MEDIAN_TO_MEAN_ERROR * noise * math.sqrt(1 / len(start) + 1 / len(tail))
    return median(tail) - median(start) > ABOVE_ERRORS * error
