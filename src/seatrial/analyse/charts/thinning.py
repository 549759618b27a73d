"""Which points of a series are enough to draw it, and numbers as cells of a table.

In: values in their order, and how many points may be kept. Out: the places of those kept, in order: the first and the last, of each of
equally long stretches the lowest and the highest, and the first one of a stretch that is not finite (a loss that broke), so that where it
began is seen to the very step. Nothing is averaged: every point that is drawn was measured.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seatrial.records.caution import Scalar

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
MIN_POINTS = 5
"""The two ends and one stretch, with a mark in it: fewer would lose an extreme."""


def kept_indices(values: Floats, most: int, present: Mask | None = None) -> Indices:
    """At most `most` places, or MIN_POINTS where that is more. `present` says which values are there at all; the others are kept
    only as the first or the last."""
    most = max(most, MIN_POINTS)
    if len(values) <= most:
        return np.arange(len(values))
    finite = np.isfinite(values)
    usable = finite if present is None else finite & present
    kept = np.zeros(len(values), dtype=np.bool_)
    kept[[0, -1]] = True
    if usable.all():
        stretches = (most - 2) // 2
        table = _laid_out(values, stretches, float(values[-1]))
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


def _laid_out(values: Floats, stretches: int, filled: float) -> Floats:
    """The values as a table of equally long stretches, filled up at the end."""
    length = -(-len(values) // stretches)
    table = np.full(stretches * length, filled)
    table[: len(values)] = values
    return table.reshape(stretches, length)


def _mark(kept: Mask, chosen: Indices, table: Floats, may: Mask | None = None) -> None:
    """Keep the chosen place of each stretch, except of those that may not."""
    places = chosen + np.arange(len(table)) * table.shape[1]
    places = places if may is None else places[may]
    kept[places[places < len(kept)]] = True


def longest_kept(lengths: Floats, most: int) -> Indices:
    """At most `most` places: the longest of each of as many stretches."""
    if len(lengths) <= most:
        return np.arange(len(lengths))
    kept = np.zeros(len(lengths), dtype=np.bool_)
    table = _laid_out(lengths, max(most, 1), -np.inf)
    _mark(kept, table.argmax(axis=1), table)
    return np.flatnonzero(kept)


def cells(values: Floats) -> list[Scalar]:
    """None for NaN and what is infinite."""
    if np.isfinite(values).all():
        return list(values.tolist())
    return [value if np.isfinite(value) else None for value in values.tolist()]


def cells_with_marks(values: Floats, present: Mask) -> list[Scalar]:
    """None where there is no value; NaN and infinities stay, since they are values."""
    return (
        list(values.tolist())
        if present.all()
        else [value if known else None for value, known in zip(values.tolist(), present, strict=True)]
    )
