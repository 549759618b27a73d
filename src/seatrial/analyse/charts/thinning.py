"""Which points of a series are enough to draw it, and numbers as cells of a table.

In: values in their order, and how many points may be kept. Out: the indices of those kept, in order: the first and the last, the lowest and
the highest of each of several equally long intervals, and the first one in an interval that is not finite, so that the exact step shows at
which a loss broke. Nothing is averaged: every point that is drawn was measured.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seatrial.records.caution import Scalar

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
MIN_POINTS = 5
"""The two ends and one interval with a broken value in it: fewer points would lose an extreme."""


def kept_indices(values: Floats, most: int, present: Mask | None = None) -> Indices:
    """At most `most` indices, or MIN_POINTS if that is more. `present` marks the values that exist; the others are kept only as the first
    or the last."""
    most = max(most, MIN_POINTS)
    if len(values) <= most:
        return np.arange(len(values))
    finite = np.isfinite(values)
    usable = finite if present is None else finite & present
    kept = np.zeros(len(values), dtype=np.bool_)
    kept[[0, -1]] = True
    if usable.all():
        intervals = (most - 2) // 2
        table = _laid_out(values, intervals, float(values[-1]))
        _mark(kept, table.argmin(axis=1), table)
        _mark(kept, table.argmax(axis=1), table)
        return np.flatnonzero(kept)
    broken = ~finite if present is None else present & ~finite
    kinds = [np.where(usable, values, np.inf), np.where(usable, -values, np.inf)] if usable.any() else []
    kinds += [np.where(broken, 0.0, np.inf)] if broken.any() else []
    for kind in kinds:
        table = _laid_out(kind, (most - 2) // len(kinds), np.inf)
        lowest = table.argmin(axis=1)
        _mark(kept, lowest, table, np.isfinite(table[np.arange(len(table)), lowest]))
    return np.flatnonzero(kept)


def _laid_out(values: Floats, intervals: int, filled: float) -> Floats:
    """The values as a table of equally long intervals, filled up at the end."""
    length = -(-len(values) // intervals)
    table = np.full(intervals * length, filled)
    table[: len(values)] = values
    return table.reshape(intervals, length)


def _mark(kept: Mask, chosen: Indices, table: Floats, may: Mask | None = None) -> None:
    """Keep the chosen index of each interval, or only of those in `may`."""
    indices = chosen + np.arange(len(table)) * table.shape[1]
    indices = indices if may is None else indices[may]
    kept[indices[indices < len(kept)]] = True


def longest_kept(lengths: Floats, most: int) -> Indices:
    """At most `most` indices: the longest of each of as many intervals."""
    if len(lengths) <= most:
        return np.arange(len(lengths))
    kept = np.zeros(len(lengths), dtype=np.bool_)
    table = _laid_out(lengths, max(most, 1), -np.inf)
    _mark(kept, table.argmax(axis=1), table)
    return np.flatnonzero(kept)


def cells(values: Floats) -> list[Scalar]:
    """Values as cells; None for NaN and infinities."""
    if np.isfinite(values).all():
        return list(values.tolist())
    return [value if np.isfinite(value) else None for value in values.tolist()]


def cells_with_marks(values: Floats, present: Mask) -> list[Scalar]:
    """Values as cells; None where there is no value. NaN and infinities stay, since they are values."""
    return (
        list(values.tolist())
        if present.all()
        else [value if known else None for value, known in zip(values.tolist(), present, strict=True)]
    )
