"""Numbers as cells of a table to be drawn.

In: an array of floats. Out: a plain list, which travels between processes; None where there is no number.
"""

from __future__ import annotations

import numpy as np

from seatrial.analyse.charts.thinning import Floats, Mask
from seatrial.records.measure import Cell


def cells(values: Floats) -> list[Cell]:
    """None for NaN and what is infinite."""
    if np.isfinite(values).all():
        return list(values.tolist())
    return [value if np.isfinite(value) else None for value in values.tolist()]


def cells_with_marks(values: Floats, told: Mask) -> list[Cell]:
    """None where nothing was told; NaN and what is infinite stay, since they are what was told."""
    return list(values.tolist()) if told.all() else [value if known else None for value, known in zip(values.tolist(), told, strict=True)]
