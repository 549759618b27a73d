"""Medians and percentiles of plain arrays, bit for bit as numpy gives them.

In: values, at least one, none of them NaN. Out: floats. numpy's own also take weights, masks and axes, and spend four fifths of
their time on that when asked for a thousand values; a run asks some thirty times, and a campaign has a thousand runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MAD_TO_SIGMA = 1.4826
"""Standard deviation of normal values over the median of how far they are off their own median."""
MEDIAN_TO_MEAN_ERROR = 1.2533
"""A median's standard error over the mean's, for normal noise."""


def median(values: Floats) -> float:
    """As np.median."""
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    ordered = np.partition(values, (half - 1, half))
    return float((ordered[half - 1] + ordered[half]) / 2)


def row_medians(table: Floats) -> Floats:
    """As np.median along the rows."""
    ordered, half = np.sort(table, axis=1), table.shape[1] // 2
    return ordered[:, half].copy() if table.shape[1] % 2 else np.asarray((ordered[:, half - 1] + ordered[:, half]) / 2)


def percentiles(values: Floats, percents: Sequence[float]) -> list[float]:
    """As np.percentile."""
    places = [(len(values) - 1) * (percent / 100) for percent in percents]
    lows = [math.floor(place) for place in places]
    highs = [min(low + 1, len(values) - 1) for low in lows]
    ordered = np.partition(values, sorted({*lows, *highs}))
    return [_between(float(ordered[low]), float(ordered[high]), at - low) for low, high, at in zip(lows, highs, places, strict=True)]


def _between(low: float, high: float, share: float) -> float:
    # From the nearer side, as numpy does: the last bit depends on it.
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share
