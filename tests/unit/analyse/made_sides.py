"""Sides of comparisons, made up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seatrial.records.comparison import Side, SideRun
from seatrial.records.health import LossCourse

MACHINE = {"host": "node-1", "gpu_name": "Example GPU", "driver_version": "550"}


def side(
    name: str, rates: Sequence[float], *, metric: str = "samples_per_s", offset_s: float = 0.0, run: Any = None, **changes: Any
) -> Side:
    """A side with one run a rate, in rounds of 100 s; `offset_s` is where in its round it begins."""
    runs = tuple(
        SideRun(
            run=f"{name}_r{at}",
            repeat=at,
            started_t=1000.0 + 100 * at + offset_s,
            figures={metric: rate, "steps_per_s": rate / 10},
            window="steps 40–199",
            n=160,
            **(run or {}),
        )
        for at, rate in enumerate(rates, start=1)
    )
    values: dict[str, Any] = {"group": name, "source": "out", "campaign": "/out", "machine": MACHINE, "runs": runs}
    return Side(name=name, **{**values, **changes})


def elsewhere(name: str, rates: Sequence[float], **changes: Any) -> Side:
    """A side of another campaign."""
    return side(name, rates, **{"campaign": f"/other/{name}", "source": "other", **changes})


def course(last: float, *, first: float = 5.0, steps: int = 200, noise: float = 0.02, seed: int = 0) -> LossCourse:
    """A loss that falls from `first` to `last`, a point a step."""
    random = np.random.default_rng(seed)
    losses = [last + (first - last) * math.exp(-6 * step / steps) + random.normal(0, noise) for step in range(steps)]
    return LossCourse(steps=tuple(range(steps)), losses=tuple(losses), n=steps, noise=noise)
