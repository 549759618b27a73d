"""The seeds' timing points: percentiles over a rolling window of rank 0's steps, at every logged step.

In: the step table of one rank, `log_every` and `timing_window`. Out: `TimingPoint`s with p50 and p90 of each phase and of `iter_ms`.
`iter_ms` is the sum of the five phases, which is what the seeds' columns mean by it. A GPU's phases are taken on some steps only: then
those steps count. Where forward and backward are never told apart (a Trainer callback, a script's lines), it is wall time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.records.events import PHASES
from seatrial.records.measure import TimingPoint

Matrix = npt.NDArray[np.float64]
COLUMNS = (*PHASES, "iter_ms")
SEED_ITER = "seed_iter_ms"
"""Column that holds the seeds' iter_ms beside our own."""
QUANTILES = {"p50": 0.5, "p90": 0.9}
# Windows are sorted together; this many at a time bound the memory of a very long run.
POINTS_AT_ONCE = 2048


def seed_iter_ms() -> pl.Expr:
    """The seeds' iter_ms of every row of a step table; null on steps whose phases were not taken while others' were."""
    taken = pl.col("fwd_ms").is_not_null() & pl.col("bwd_ms").is_not_null()
    return pl.when(taken).then(pl.sum_horizontal(PHASES)).when(taken.any()).then(None).otherwise(pl.col("iter_ms"))


def timing_points(rank0: pl.DataFrame, log_every: int, window: int) -> tuple[TimingPoint, ...]:
    """One point for each logged step. `rank0` is sorted by step and has the column SEED_ITER."""
    timed = rank0.filter(pl.col(SEED_ITER).is_not_null())
    steps = timed["step"].to_numpy()
    ends = logged_rows(steps, log_every)
    starts = np.searchsorted(steps, steps[ends] - window, side="right")
    values = np.column_stack([timed[name].to_numpy() for name in (*PHASES, SEED_ITER)])
    found: list[TimingPoint] = []
    for at in range(0, len(ends), POINTS_AT_ONCE):
        part = slice(at, at + POINTS_AT_ONCE)
        windows = _sorted_windows(values, starts[part], ends[part])
        tables = {name: _quantiles(windows, share) for name, share in QUANTILES.items()}
        found += [_point(at + row, int(steps[end]), tables, row) for row, end in enumerate(ends[part])]
    return tuple(found)


def logged_rows(steps: npt.NDArray[np.int64], log_every: int) -> npt.NDArray[np.intp]:
    """Rows that reach or pass a multiple of `log_every`; with every step there, those where it divides the step."""
    if len(steps) == 0:
        return np.array([], dtype=np.intp)
    multiples = steps // log_every
    passed = np.diff(multiples, prepend=multiples[0]) > 0
    passed[0] = steps[0] % log_every == 0
    return np.flatnonzero(passed)


def _point(index: int, step: int, tables: dict[str, Matrix], row: int) -> TimingPoint:
    values: dict[str, float | None] = {}
    for column, name in enumerate(COLUMNS):
        for quantile, table in tables.items():
            value = float(table[row, column])
            values[f"{name}_{quantile}"] = None if np.isnan(value) else value
    return TimingPoint(index=index, step=step, values=values)


def _sorted_windows(values: Matrix, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> Matrix:
    """Window × row × column, each window's values in order and NaN behind them."""
    longest = int((ends - starts).max()) + 1
    places = starts[:, None] + np.arange(longest)[None, :]
    windows = values[np.minimum(places, len(values) - 1)]
    windows[places > ends[:, None]] = np.nan
    return np.sort(windows, axis=1)


def _quantiles(windows: Matrix, share: float) -> Matrix:
    """Linear-interpolated quantile of every window and column at once; NaN where a window has no value."""
    counts = (~np.isnan(windows)).sum(axis=1)
    at = np.maximum(counts - 1, 0) * share
    low = np.floor(at).astype(np.intp)
    high = np.minimum(low + 1, np.maximum(counts - 1, 0))
    below = np.take_along_axis(windows, low[:, None, :], axis=1)[:, 0, :]
    above = np.take_along_axis(windows, high[:, None, :], axis=1)[:, 0, :]
    return np.asarray(below + (above - below) * (at - low), dtype=np.float64)
