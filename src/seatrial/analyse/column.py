"""A column of a table of samples as numbers, and the mean of those that are known.

In: a table and a name. Out: floats, NaN where a cell is empty or is no number; all NaN where the file has no column of that name.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl


def column(table: pl.DataFrame, name: str) -> npt.NDArray[np.float64]:
    """The column of that name."""
    found: pl.Series | None = table.get_column(name, default=None)
    if found is None:
        return np.full(len(table), np.nan)
    return found.to_numpy() if found.dtype == pl.Float64 else found.cast(pl.Float64, strict=False).to_numpy()


def known(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Those that were told and are numbers: a damaged cell may hold an infinity."""
    return values[np.isfinite(values)]


def known_mean(values: npt.NDArray[np.float64]) -> float | None:
    """None where nothing was told."""
    told = known(values)
    return float(told.mean()) if len(told) else None
