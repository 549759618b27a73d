"""Which steps of a run count, and what they come to by wall clock.

In: the step table, the steps that held a pause, and the plan's window. Out: `Counted`: the window, its time, its work and the
distribution of its step times. Counted are steps that every timed rank has, after warm-up (or as the plan says), less those that
held a pause on any rank: the others waited for it. A step takes as long as its slowest rank; so does the window. A row may speak of
several steps (`span`, the last of them is its `step`); then all of them count or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.grid import find_grid, is_among
from seatrial.analyse.steady import Steady, find_steady
from seatrial.records.measure import Window

LEAST_ROWS = 2
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


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
    """A step's time by row, the slowest rank."""
    last_steps: Ints
    """By row, the last step it speaks of."""
    spans: Ints
    """By row, how many steps it speaks of."""
    samples: float | None = None
    """Work of the timed ranks in the window; None unless every row says how much it did."""
    tokens: float | None = None
    lost: dict[int, int] = field(default_factory=dict)
    """By rank, steps it lacks between the first and the last step that all ranks have; ranks that lack none are not there."""


def count_steps(steps: pl.DataFrame, paused: pl.Series, window: str) -> Counted:
    """The window of one run. `steps` is sorted by rank, then step."""
    known = is_time(steps["iter_ms"].to_numpy())
    timed = steps if known.all() else steps.filter(known)
    step, iter_ms, span, samples, tokens = (timed[name].to_numpy() for name in ("step", "iter_ms", "span", "samples", "tokens"))
    grid = find_grid(timed["rank"].to_numpy(), step)
    numbers, ranks, rank, wall_ms = grid.numbers, grid.ranks, grid.rank, grid.longest(iter_ms)
    common, spans = grid.seen == len(ranks), span[grid.first_row]
    usable = np.flatnonzero(common & ~is_among(numbers, paused.to_numpy()))
    chosen, found = _chosen(usable, numbers, spans, wall_ms, window)
    rows = Counted(
        window=None,
        rows=len(chosen),
        usable=len(usable),
        ranks=len(ranks),
        wall_ms=wall_ms[chosen],
        last_steps=numbers[chosen],
        spans=spans[chosen],
        lost=_lost(numbers[common], ranks, rank, step, span),
    )
    if len(chosen) < LEAST_ROWS:
        return rows
    is_chosen = np.zeros(len(numbers), dtype=np.bool_)
    is_chosen[chosen] = True
    kept = is_chosen[grid.place]
    return replace(
        rows,
        window=_window(numbers, spans, common, chosen, found, steps),
        window_s=float(np.bincount(rank[kept], weights=(iter_ms * span)[kept]).max()) / 1000,
        samples=_work(samples[kept], span[kept]),
        tokens=_work(tokens[kept], span[kept]),
    )


def _lost(common: Ints, ranks: Ints, rank: Places, step: Ints, span: Ints) -> dict[int, int]:
    if len(common) == 0:
        return {}
    between = (step > common[0]) & (step <= common[-1])
    told = np.bincount(rank[between], weights=span[between], minlength=len(ranks)).astype(np.int64)
    lacking = int(common[-1] - common[0]) - told
    return {int(ranks[at]): int(lacking[at]) for at in np.flatnonzero(lacking > 0)}


def _chosen(usable: Places, numbers: Ints, spans: Ints, wall_ms: Floats, window: str) -> tuple[Places, Steady]:
    """The rows of the window: those wholly inside the one the plan gives, else those after warm-up."""
    bounds = window_bounds(window)
    if bounds is not None:
        return usable[is_inside(numbers[usable], spans[usable], *bounds)], Steady(warmup=0, steady=True, reason="given by the plan")
    found = find_steady(wall_ms[usable], numbers[usable])
    return usable[found.warmup :], found


def is_time(iter_ms: Floats) -> Mask:
    """Which of them can be counted: one that is no number, or below 0, is a broken line."""
    return np.asarray((iter_ms >= 0) & (iter_ms < np.inf))


def is_inside(step: Ints, span: Ints, first_step: int, last_step: int) -> Mask:
    """Which rows speak of nothing but steps from the first to the last of these."""
    return np.asarray((step - span + 1 >= first_step) & (step <= last_step))


def window_bounds(window: str) -> tuple[int, int] | None:
    """First and last step of `FIRST:LAST`, either side open; None for `auto`."""
    first, colon, last = (part.strip() for part in window.partition(":"))
    if not colon:
        return None
    return int(first or 0), int(last) if last else 2**62


def _window(numbers: Ints, spans: Ints, common: Mask, chosen: Places, found: Steady, steps: pl.DataFrame) -> Window:
    first, last = chosen[0], chosen[-1]
    first_step = int(numbers[first] - spans[first]) + 1
    inside = int(spans[first : last + 1][common[first : last + 1]].sum())
    counted = int(spans[chosen].sum())
    return Window(
        first_step=first_step,
        last_step=int(numbers[last]),
        n=counted,
        warmup_steps=_known_before(first_step, steps),
        excluded_steps=inside - counted,
        steady=found.steady,
        reason=found.reason,
    )


def _known_before(first_step: int, steps: pl.DataFrame) -> int:
    """Steps before the window that the first rank's rows speak of, timed or not, each once: rows may speak of the same steps."""
    rank, step, span = (steps[name].to_numpy() for name in ("rank", "step", "span"))
    start, end = np.maximum(step - span + 1, 0), np.minimum(step, first_step - 1)
    own = np.flatnonzero((rank == rank[0]) & (start < first_step))
    own = own[np.argsort(start[own], kind="stable")]
    reached = np.concatenate([[-1], np.maximum.accumulate(end[own])])[:-1]
    return int(np.maximum(end[own] - np.maximum(reached, start[own] - 1), 0).sum())


def _work(values: Floats, span: Floats) -> float | None:
    done = float((values * span).sum())
    return done if np.isfinite(done) and done > 0 else None
