"""The measured window on the wall clock: what the machine's samples are laid beside.

In: the step table and the window. Out: `WindowSpan`, of the first rank's steps, pauses and all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seatrial.records.measure import Window
from seatrial.records.steps import StepTables


@dataclass(frozen=True, kw_only=True)
class WindowSpan:
    """From the end of the step before the window to the end of its last; None where not known."""

    first_t: float | None = None
    last_t: float | None = None
    samples: float | None = None
    """What all ranks went through in it."""


def window_span(tables: StepTables, window: Window | None) -> WindowSpan:
    """Where the window lies in time."""
    if window is None:
        return WindowSpan()
    step, rank, t, done, span = (tables.steps[name].to_numpy() for name in ("step", "rank", "t", "samples", "span"))
    own = rank == rank[0]
    before, inside = own & (step < window.first_step), own & (step >= window.first_step) & (step <= window.last_step)
    samples = float((done * span)[inside].sum()) * tables.world_size
    return WindowSpan(
        first_t=_finite(np.nanmax(t[before], initial=-np.inf)),
        last_t=_finite(np.nanmax(t[inside], initial=-np.inf)),
        samples=samples if np.isfinite(samples) and samples > 0 else None,
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
