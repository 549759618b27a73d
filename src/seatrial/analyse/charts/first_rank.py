"""The steps of the rank that is drawn, on the clock that everything is drawn by.

In: the step tables of an attempt, and when it was launched. Out: `FirstRank`: the lowest rank that told steps, with seconds since the
launch at the end of each. Where the wall clock was set meanwhile, the monotonic clock goes on from the first step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seatrial.analyse.charts.thinning import Floats, Mask
from seatrial.analyse.startup import CLOCK_SLACK_S
from seatrial.analyse.window import is_inside, is_time
from seatrial.records.measure import Window
from seatrial.records.steps import StepTables

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class FirstRank:
    """By row, as in the step table."""

    rank: int
    step: Ints
    span: Ints
    t_s: Floats
    """Since the launch; NaN where it is not known."""
    iter_ms: Floats
    loss: Floats
    loss_told: Mask
    is_paused: Mask
    """Whether a rank told a pause in that step."""
    origin_t: float | None
    """Wall clock of the launch; None where nothing tells a time."""

    def is_counted(self, window: Window | None) -> Mask:
        """Which rows are in the window and hold no pause."""
        if window is None:
            return np.zeros(len(self.step), dtype=np.bool_)
        return counted_rows(self.step, self.span, self.iter_ms, self.is_paused, window)

    @property
    def begins_s(self) -> Floats:
        """When the first step that a row speaks of began; NaN where that is not known."""
        return self.t_s - self.iter_ms * self.span / 1000


def counted_rows(step: Ints, span: Ints, iter_ms: Floats, is_paused: Mask, window: Window) -> Mask:
    """Which rows are made of steps that count: those wholly in the window, timed, and without a pause."""
    return is_inside(step, span, window.first_step, window.last_step) & is_time(iter_ms) & ~is_paused


def paused_rows(step: Ints, tables: StepTables) -> Mask:
    """Rows in which some rank told a pause."""
    paused = tables.pauses["step"].to_numpy()
    return np.isin(step, paused) if len(paused) else np.zeros(len(step), dtype=np.bool_)


def first_rank(tables: StepTables, launched_t: float | None, *, jumped: bool) -> FirstRank | None:
    """The lowest rank's rows; None where no step was told. `jumped` is whether the wall clock was set meanwhile."""
    if tables.steps.is_empty():
        return None
    rank = tables.steps["rank"].to_numpy()
    # The table goes by rank.
    rows = tables.steps.head(int(np.searchsorted(rank, rank[0], side="right")))
    step, span, t, m, iter_ms, loss = (rows[name].to_numpy() for name in ("step", "span", "t", "m", "iter_ms", "loss"))
    origin_t = _origin_t(tables, t, iter_ms, launched_t)
    return FirstRank(
        rank=int(rank[0]),
        step=step,
        span=span,
        t_s=np.full(len(t), np.nan) if origin_t is None else (_steady(t, m) if jumped else t) - origin_t,
        iter_ms=iter_ms,
        loss=loss,
        loss_told=rows["loss"].is_not_null().to_numpy() if rows["loss"].null_count() else np.ones(len(loss), dtype=np.bool_),
        is_paused=paused_rows(step, tables),
        origin_t=origin_t,
    )


def _steady(t: Floats, m: Floats) -> Floats:
    """The wall clock as it would be had nobody set it after the first step."""
    known = np.flatnonzero(np.isfinite(t) & np.isfinite(m))
    return t if len(known) == 0 else np.asarray(t[known[0]] + m - m[known[0]])


def _origin_t(tables: StepTables, t: Floats, iter_ms: Floats, launched_t: float | None) -> float | None:
    """The launch. Where it is not told, or seems to lie after the first step since the clock was set back, the first that is known."""
    known = np.flatnonzero(np.isfinite(t))
    first_t = float(t[known[0]]) if len(known) else None
    if launched_t is not None and (first_t is None or launched_t <= first_t + CLOCK_SLACK_S):
        return launched_t
    if first_t is None:
        return None
    took_ms = float(iter_ms[known[0]])
    begin_t = first_t - (took_ms / 1000 if np.isfinite(took_ms) else 0.0)
    facts = tables.startup
    told = [begin_t, *([facts.start_t, facts.process_t] if facts is not None else [])]
    return min(value for value in told if value is not None)
