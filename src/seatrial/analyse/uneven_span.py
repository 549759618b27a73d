"""The measured window as causes of uneven steps speak of it.

In: the window and its wall clock. Out: `Span`: which rows of a table lie in it, and its words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.column import column
from seatrial.records.measure import Window

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Span:
    """A window in steps and in time; the whole run where it is not known."""

    first_t: float | None = None
    last_t: float | None = None
    window: Window | None = None

    @property
    def words(self) -> str:
        """'steps 20 to 399', or 'the whole run'."""
        return f"steps {self.window.first_step} to {self.window.last_step}" if self.window else "the whole run"

    def rows(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows inside, of a table that is in the order of time; a slice, which copies nothing."""
        at = column(table, "epoch_sec")
        first = 0 if self.first_t is None else int(np.searchsorted(at, self.first_t))
        last = len(at) if self.last_t is None else int(np.searchsorted(at, self.last_t, side="right"))
        return table.slice(first, max(0, last - first))
