"""Rank 0's losses, made short enough to lay beside another run's.

In: steps and losses of one rank in order, NaN or infinite where a loss is no number. Out: `LossCourse`: means over at most 200 equal
parts, and the noise of a single loss. A course ends before its first loss that is no number: what was learnt after that is not known.
None where no loss is left.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from seatrial.analyse.quantile import median
from seatrial.records.health import LossCourse

MOST_PARTS = 200
LEAST_FOR_NOISE = 4
MAD_TO_SIGMA = 1.4826


def loss_course(steps: npt.NDArray[np.int64], losses: npt.NDArray[np.float64]) -> LossCourse | None:
    """The course up to the first loss that is no number. Where a step has no loss, leave it out before."""
    broken = np.flatnonzero(~np.isfinite(losses))
    count = int(broken[0]) if len(broken) else len(losses)
    if count == 0:
        return None
    told = losses[:count]
    # Equal parts: of 500 losses, 200 parts of two and three.
    edges = np.unique(np.linspace(0, count, min(count, MOST_PARTS) + 1).round().astype(np.intp))
    means = np.add.reduceat(told, edges[:-1]) / np.diff(edges)
    return LossCourse(
        steps=tuple(steps[edges[1:] - 1].tolist()),
        losses=tuple(means.tolist()),
        n=count,
        noise=_noise(told),
    )


def _noise(losses: npt.NDArray[np.float64]) -> float:
    """Robust standard deviation about the course, by what a loss differs from the next; 0 where there are too few to tell."""
    if len(losses) < LEAST_FOR_NOISE:
        return 0.0
    steps = np.diff(losses)
    return median(np.abs(steps - median(steps))) * MAD_TO_SIGMA / math.sqrt(2)
