"""A course of memory cut into blocks, each with its level.

In: a course, or the part of it that is looked at: MiB by minutes. Out: `Blocks`: middles and levels of two dozen blocks of equal time,
fewer where the course is a saw-tooth, so that a block is longer than a tooth; with the parabola through them. A block's level is its low
or its median, whichever tells the pace better: teeth have a firm floor, short dips a firm middle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from seatrial.analyse.quantile import percentiles

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

MOST_BLOCKS = 24
LEAST_BLOCKS = 8
"""Below, neither a pace nor six parts can be told."""
LEAST_IN_BLOCK = 3
TEETH_PER_BLOCK = 1.2
LEAST_TEETH = 3
"""Fewer swings are no saw-tooth but a course that bends."""
LEAST_PACE = 0.6
"""What the second half must grow by of what the first does."""
SURE = 0.975
MOST_AUTOCORRELATION = 0.9


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Middle and level of each block, in order, and the parabola through them."""

    at: Floats
    levels: Floats
    scatter: float
    """Standard deviation of what the parabola leaves over."""
    pace: float
    """What the second half grows beyond LEAST_PACE times the first; below 0 where it slows down more than that."""
    pace_error: float
    """Half of its interval."""


def best_blocks(at: Floats, values: Floats) -> Blocks | None:
    """Of blocks as they may be cut, those that tell the pace best; None where there are too few samples for any."""
    most = min(MOST_BLOCKS, len(values) // LEAST_IN_BLOCK)
    if most < LEAST_BLOCKS or at[-1] <= at[0]:
        return None
    choices = _cut(at, values, most)
    teeth = _teeth(at, values)
    if LEAST_TEETH <= teeth < most * TEETH_PER_BLOCK:
        choices += _cut(at, values, max(LEAST_BLOCKS, int(teeth / TEETH_PER_BLOCK)))
    return min(choices, key=lambda choice: choice.pace_error) if choices else None


def _cut(at: Floats, values: Floats, count: int) -> list[Blocks]:
    """With the blocks' lows, and with their medians; empty where gaps in the telemetry leave too few blocks."""
    edges = np.searchsorted(at, np.linspace(at[0], at[-1], count + 1)[:-1])
    ends = np.append(edges[1:], len(at))
    edges, ends = edges[ends > edges], ends[ends > edges]
    if len(edges) < LEAST_BLOCKS:
        return []
    middles = (at[edges] + at[ends - 1]) / 2
    return _fitted(middles, np.minimum.reduceat(values, edges), _block_medians(values, edges, ends - edges))


def _block_medians(values: Floats, edges: Places, sizes: Places) -> Floats:
    """The lower median of each block; all blocks are sorted at once."""
    ordered = values[np.lexsort((values, np.repeat(np.arange(len(edges)), sizes)))]
    return np.asarray(ordered[edges + (sizes - 1) // 2])


def _teeth(at: Floats, values: Floats) -> int:
    """How often the course, its trend taken out, falls from its upper quarter to its lower."""
    if len(values) < LEAST_BLOCKS:
        return 0
    steepness = (values[-len(values) // 4 :].mean() - values[: len(values) // 4].mean()) / (0.75 * (at[-1] - at[0]) or 1.0)
    rest = values - steepness * at
    low, high = percentiles(rest, (25, 75))
    side = (rest > high).astype(np.int8) - (rest < low)
    side = side[side != 0]
    return int(np.count_nonzero(side[1:] < side[:-1]))


def _fitted(at: Floats, *choices: Floats) -> list[Blocks]:
    """A parabola through each of the choices."""
    x = 2 * (at - at[0]) / (at[-1] - at[0]) - 1
    columns = np.stack([np.ones_like(x), x, x * x], axis=1)
    inverse, freedom = np.linalg.inv(columns.T @ columns), len(at) - 3
    # The slope over the first half is linear less square, over the second linear plus square.
    weights = np.array([0.0, 1 - LEAST_PACE, 1 + LEAST_PACE])
    weight = float(weights @ inverse @ weights)
    blocks = []
    for levels in choices:
        found = inverse @ (columns.T @ levels)
        rest = levels - columns @ found
        variance = float(rest @ rest) / freedom
        error = _quantile(freedom) * math.sqrt(variance * _inflation(rest) * weight)
        blocks.append(Blocks(at=at, levels=levels, scatter=math.sqrt(variance), pace=float(weights @ found), pace_error=error))
    return blocks


def _inflation(rest: Floats) -> float:
    """Of the variance, by what neighbours have in common."""
    total = float(rest @ rest)
    if total <= 0:
        return 1.0
    share = min(max(float(rest[1:] @ rest[:-1]) / total + 1 / len(rest), 0.0), MOST_AUTOCORRELATION)
    return (1 + share) / (1 - share)


@lru_cache(maxsize=64)
def _quantile(freedom: int) -> float:
    # A sixth of a second to import, in every worker; a course that stands still needs none of it.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, SURE))
