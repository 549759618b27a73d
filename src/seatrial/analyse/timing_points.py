"""The seeds' timing points: percentiles over a rolling window of rank 0's steps, at every logged step.

In: the step table of one rank, `log_every` and `timing_window`. Out: `TimingPoint`s with p50 and p90 of each phase and of `iter_ms`.
`iter_ms` is the sum of the five phases, which is what the seeds' columns mean by it. A GPU's phases are taken on some steps only: then
those steps count. Where forward and backward are never told apart (a Trainer callback, a script's lines), it is wall time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

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
# The same texts in every point: what goes from a worker to the parent then has each of them once.
FIGURES = tuple(f"{name}_{quantile}" for name in COLUMNS for quantile in QUANTILES)
# Windows are sorted together; this many at a time bound the memory of a very long run.
POINTS_AT_ONCE = 2048


def seed_iter_ms() -> pl.Expr:
    """The seeds' iter_ms of every row of a step table; null on steps whose phases were not taken while others' were."""
    taken = pl.col("fwd_ms").is_not_null() & pl.col("bwd_ms").is_not_null()
    return pl.when(taken).then(pl.sum_horizontal(PHASES)).when(taken.any()).then(None).otherwise(pl.col("iter_ms"))


def seed_iter_of(steps: pl.DataFrame) -> pl.Series:
    """The same as a column; most runs take the phases of all steps or of none, and need no query for it."""
    missing = max(steps["fwd_ms"].null_count(), steps["bwd_ms"].null_count())
    if missing == 0:
        found = _summed(steps)
    elif missing == len(steps):
        found = steps["iter_ms"]
    else:
        found = steps.select(seed_iter_ms()).to_series()
    return found.alias(SEED_ITER)


def _summed(steps: pl.DataFrame) -> pl.Series:
    """A phase that was not told counts nothing."""
    columns = [steps[name].fill_null(0.0) if steps[name].null_count() else steps[name] for name in PHASES]
    return pl.Series(functools.reduce(np.add, [column.to_numpy() for column in columns]))


def timing_points(rank0: pl.DataFrame, log_every: int, window: int) -> tuple[TimingPoint, ...]:
    """One point for each logged step. `rank0` is sorted by step and has the column SEED_ITER."""
    timed = rank0.drop_nulls(SEED_ITER) if rank0[SEED_ITER].null_count() else rank0
    steps = timed["step"].to_numpy()
    ends = logged_rows(steps, log_every)
    starts = np.searchsorted(steps, steps[ends] - window, side="right")
    values = np.column_stack([timed[name].to_numpy() for name in (*PHASES, SEED_ITER)])
    found: list[TimingPoint] = []
    for at in range(0, len(ends), POINTS_AT_ONCE):
        part = slice(at, at + POINTS_AT_ONCE)
        windows = _sorted_windows(values, starts[part], ends[part])
        found += _points(at, steps[ends[part]].tolist(), _quantiles(windows))
    return tuple(found)


def logged_rows(steps: npt.NDArray[np.int64], log_every: int) -> npt.NDArray[np.intp]:
    """Rows that reach or pass a multiple of `log_every`; with every step there, those where it divides the step."""
    if len(steps) == 0:
        return np.array([], dtype=np.intp)
    multiples = steps // log_every
    passed = np.diff(multiples, prepend=multiples[0]) > 0
    passed[0] = steps[0] % log_every == 0
    return np.flatnonzero(passed)


def _points(first: int, steps: list[int], quantiles: Matrix) -> Iterator[TimingPoint]:
    """Points from number `first` on; `quantiles` has a row for each, in the order of FIGURES."""
    unknown = np.isnan(quantiles).any()
    for index, (step, row) in enumerate(zip(steps, quantiles.tolist(), strict=True), start=first):
        values = [None if math.isnan(value) else value for value in row] if unknown else row
        yield TimingPoint(index=index, step=step, values=dict(zip(FIGURES, values, strict=True)))


def _sorted_windows(values: Matrix, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> Matrix:
    """Window × row × column, each window's values in order and NaN behind them."""
    longest = int((ends - starts).max()) + 1
    places = starts[:, None] + np.arange(longest)[None, :]
    windows = values[np.minimum(places, len(values) - 1)]
    windows[places > ends[:, None]] = np.nan
    return np.sort(windows, axis=1)


def _quantiles(windows: Matrix) -> Matrix:
    """Linear-interpolated quantiles of every window: a row each, in the order of FIGURES; NaN where a window has no value."""
    last = np.maximum((~np.isnan(windows)).sum(axis=1) - 1, 0)
    window, column = np.ogrid[: windows.shape[0], : windows.shape[2]]
    found = []
    for share in QUANTILES.values():
        at = last * share
        low = np.floor(at).astype(np.intp)
        high = np.minimum(low + 1, last)
        below, above = windows[window, low, column], windows[window, high, column]
        found.append(below + (above - below) * (at - low))
    return np.stack(found, axis=2).reshape(len(windows), len(FIGURES))
