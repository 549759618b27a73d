"""Rank 0's losses, made short enough to lay beside another run's.

In: all steps of one rank in order, their losses, and which of them tell one. Out: `LossCourse`: means over at most 200 equal parts, and the
noise of a single loss. A course ends before its first loss that is no number, and says at which step that was: what was learnt after that
is not known. None where no loss is told.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seatrial.analyse.loss import loss_noise
from seatrial.records.health import LossCourse

MOST_PARTS = 200
LEAST_FOR_NOISE = 4


def loss_course(
    steps: npt.NDArray[np.int64], losses: npt.NDArray[np.float64], told: npt.NDArray[np.bool_] | None = None
) -> LossCourse | None:
    """The course up to the first loss that is no number. `told` is False where a step has no loss, whatever `losses` holds there; None
    where every step has one."""
    if not len(steps):
        return None
    last_step = int(steps[-1])
    if told is not None:
        steps, losses = steps[told], losses[told]
    if not len(losses):
        return None
    broken = np.flatnonzero(~np.isfinite(losses))
    count = int(broken[0]) if len(broken) else len(losses)
    points, means = _parts(steps[:count], losses[:count])
    return LossCourse(
        steps=points,
        losses=means,
        n=count,
        noise=loss_noise(losses[:count]) if count >= LEAST_FOR_NOISE else 0.0,
        broken_step=int(steps[count]) if len(broken) else None,
        last_step=last_step,
    )


def _parts(steps: npt.NDArray[np.int64], losses: npt.NDArray[np.float64]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Last step and mean of each of at most MOST_PARTS equal parts: of 500 losses, 200 parts of two and three."""
    if not len(losses):
        return (), ()
    edges = np.unique(np.linspace(0, len(losses), min(len(losses), MOST_PARTS) + 1).round().astype(np.intp))
    means = np.add.reduceat(losses, edges[:-1]) / np.diff(edges)
    return tuple(steps[edges[1:] - 1].tolist()), tuple(means.tolist())
