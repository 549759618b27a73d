"""The ratio of two sides by resampling, shown beside the interval that decides.

In: logs of both sides' runs, paired or not. Out: the ends of a 95 % percentile interval of the ratio B over A.

It decides nothing: with five runs a side it calls one pair of equals in nine different, since five runs hold too few different
resamples to know their own tails. Where it and the interval on logs disagree widely, the runs are too few or not alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
# Fixed, so that the same runs give the same text every time.
SEED = 7
PERCENTILES = (2.5, 97.5)
# More than this many different sizes in one command is rare, and each holds RESAMPLES rows.
SIZES_KEPT = 16


def bootstrap_ratio(logs_a: Sequence[float], logs_b: Sequence[float], *, paired: bool) -> tuple[float, float] | None:
    """Low and high end; None below two runs on either side."""
    if min(len(logs_a), len(logs_b)) < 2:
        return None
    a, b = np.asarray(logs_a), np.asarray(logs_b)
    means_a = a[_draws(len(a), 0)].mean(axis=1)
    means_b = b[_draws(len(b), 0 if paired else 1)].mean(axis=1)
    low, high = np.exp(np.percentile(means_b - means_a, PERCENTILES))
    return float(low), float(high)


@lru_cache(maxsize=SIZES_KEPT)
def _draws(size: int, stream: int) -> NDArray[np.int64]:
    """Which runs each resample takes; the same for both sides of pairs, so that pairs stay together."""
    return np.random.default_rng((SEED, stream, size)).integers(0, size, size=(RESAMPLES, size))
