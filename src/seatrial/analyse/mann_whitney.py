"""Whether two samples lie on one level (the Mann-Whitney U test).

In: two samples. Out: how likely chance alone parts them so far, two-sided: exact where one of them is small and no value comes twice,
else by the normal approximation with its corrections. The same as scipy.stats.mannwhitneyu, which takes half a second and 60 MiB to
load in the middle of a campaign.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

LARGEST_EXACT = 8

Values = npt.NDArray[np.float64]


def chance_of_one_level(some: Values, others: Values) -> float:
    """Two-sided; 1 where all values are the same."""
    _, place, ties = np.unique(np.concatenate([some, others]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    wins = float(ranks[: len(some)].sum()) - len(some) * (len(some) + 1) / 2
    larger = max(wins, len(some) * len(others) - wins)
    if min(len(some), len(others)) <= LARGEST_EXACT and ties.max() == 1:
        return min(1.0, 2 * _exact_chance(round(larger), len(some), len(others)))
    return _normal_chance(larger, len(some), len(others), ties)


def _exact_chance(wins: int, num_some: int, num_others: int) -> float:
    """Of so many wins or more: orders that have them, of all orders. Counted by the factors of the Gaussian binomial."""
    counts = np.zeros(num_some * num_others + 1)
    counts[0] = 1.0
    for factor in range(1, min(num_some, num_others) + 1):
        above = max(num_some, num_others) + factor
        counts[above:] -= counts[: len(counts) - above].copy()
        for first in range(factor):
            counts[first::factor] = np.cumsum(counts[first::factor])
    return float(counts[wins:].sum() / counts.sum())


def _normal_chance(wins: float, num_some: int, num_others: int, ties: npt.NDArray[np.int64]) -> float:
    count = num_some + num_others
    spread = num_some * num_others / 12 * (count + 1 - float((ties**3 - ties).sum()) / (count * (count - 1)))
    if spread <= 0:
        return 1.0
    widths = (wins - num_some * num_others / 2 - 0.5) / math.sqrt(spread)
    return min(1.0, math.erfc(widths / math.sqrt(2)))
