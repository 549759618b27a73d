"""Which steps of a run count, and what they come to by wall clock.

In: the step table, the steps that held a pause, and the plan's window. Out: `Counted`: the window, its time, its work and the
distribution of its step times. Counted are steps that every timed rank has, after warm-up (or as the plan says), less those that
held a pause on any rank: the others waited for it. A step takes as long as its slowest rank; so does the window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.steady import Steady, find_steady
from seatrial.records.measure import Window

LEAST_ROWS = 2
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The window and its raw figures. `window` is None when fewer than two rows are left."""

    window: Window | None
    rows: int
    """Rows in the window."""
    usable: int
    """Rows that could have been in it."""
    ranks: int
    """Ranks that were timed."""
    window_s: float = 0.0
    wall_ms: Floats
    """By row, the slowest rank."""
    samples: float | None = None
    """Work of the timed ranks in the window; None unless every row says how much it did."""
    tokens: float | None = None


def count_steps(steps: pl.DataFrame, paused: pl.Series, window: str) -> Counted:
    """The window of one run. `steps` is sorted by rank, then step."""
    timed = steps.filter(pl.col("iter_ms").is_not_null())
    numbers, first_row, place, seen = np.unique(timed["step"].to_numpy(), return_index=True, return_inverse=True, return_counts=True)
    ranks, rank = np.unique(timed["rank"].to_numpy(), return_inverse=True)
    iter_ms, span, samples, tokens = (timed[name].to_numpy() for name in ("iter_ms", "span", "samples", "tokens"))
    wall_ms = np.zeros(len(numbers))
    np.maximum.at(wall_ms, place, iter_ms)
    common = seen == len(ranks)
    usable = np.flatnonzero(common & ~np.isin(numbers, paused.to_numpy()))
    chosen, found = _chosen(usable, numbers, wall_ms, window)
    if len(chosen) < LEAST_ROWS:
        return Counted(window=None, rows=len(chosen), usable=len(usable), ranks=len(ranks), wall_ms=wall_ms[chosen])
    kept = np.isin(place, chosen)
    return Counted(
        window=_window(numbers, span[first_row], common, chosen, found, before=_before(steps, int(numbers[chosen[0]]))),
        rows=len(chosen),
        usable=len(usable),
        ranks=len(ranks),
        window_s=float(np.bincount(rank[kept], weights=(iter_ms * span)[kept]).max()) / 1000,
        wall_ms=wall_ms[chosen],
        samples=_work(samples[kept], span[kept]),
        tokens=_work(tokens[kept], span[kept]),
    )


def _chosen(usable: Places, numbers: npt.NDArray[np.int64], wall_ms: Floats, window: str) -> tuple[Places, Steady]:
    """The rows of the window: as the plan says, else those after warm-up."""
    bounds = window_bounds(window)
    if bounds is not None:
        at = numbers[usable]
        return usable[(at >= bounds[0]) & (at <= bounds[1])], Steady(warmup=0, steady=True, reason="given by the plan")
    found = find_steady(wall_ms[usable])
    return usable[found.warmup :], found


def window_bounds(window: str) -> tuple[int, int] | None:
    """First and last step of `FIRST:LAST`, either side open; None for `auto`."""
    first, colon, last = (part.strip() for part in window.partition(":"))
    if not colon:
        return None
    return int(first or 0), int(last) if last else 2**62


def _window(
    numbers: npt.NDArray[np.int64], span: Floats, common: npt.NDArray[np.bool_], chosen: Places, found: Steady, *, before: int
) -> Window:
    first, last = chosen[0], chosen[-1]
    inside = int(span[first : last + 1][common[first : last + 1]].sum())
    counted = int(span[chosen].sum())
    return Window(
        first_step=int(numbers[first]),
        last_step=int(numbers[last]),
        n=counted,
        warmup_steps=before,
        excluded_steps=inside - counted,
        steady=found.steady,
        reason=found.reason,
    )


def _before(steps: pl.DataFrame, first_step: int) -> int:
    """Steps of the first rank before the window, timed or not."""
    rank, step, span = (steps[name].to_numpy() for name in ("rank", "step", "span"))
    return int(span[(rank == rank[0]) & (step < first_step)].sum())


def _work(values: Floats, span: Floats) -> float | None:
    done = float((values * span).sum())
    return done if np.isfinite(done) and done > 0 else None
