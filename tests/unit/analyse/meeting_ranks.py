"""Ranks that meet in one phase of every step, with known work: what their clocks tell, as step tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.straggler_work import NAMES
from seatrial.records.steps import StepTables
from tests.unit.analyse import factory

Floats = npt.NDArray[np.float64]
WORK_MS = {"data_wait": 4.0, "preprocess": 6.0, "fwd": 30.0, "bwd": 45.0, "step": 15.0}


def own_work(ranks: int, steps: int, *, noise: float = 0.02, extra: Mapping[tuple[int, str], float] | None = None) -> dict[str, Floats]:
    """By phase, ranks × steps in ms; `extra` is by rank and phase, in ms."""
    chance = np.random.default_rng([ranks, steps])
    work = {}
    for name, mean_ms in WORK_MS.items():
        means = np.full((ranks, steps), mean_ms)
        for (rank, phase), more_ms in (extra or {}).items():
            means[rank] += more_ms if phase == name else 0.0
        work[name] = means * np.exp(chance.normal(0.0, noise, (ranks, steps)))
    return work


def meeting(work: Mapping[str, Floats], meets_in: str = "bwd", outside: Floats | None = None) -> dict[str, Floats]:
    """The phases as clocks tell them, and iter_ms: where the ranks meet, all leave together when the last has come."""
    at = NAMES.index(meets_in)
    since = np.sum([work[name] for name in NAMES[at + 1 :]] or [np.zeros_like(work[meets_in])], axis=0)
    since = since if outside is None else since + outside
    arrival = np.sum([work[name] for name in NAMES[: at + 1]], axis=0)
    arrival[:, 1:] += since[:, :-1]
    told = {**work, meets_in: work[meets_in] + arrival.max(axis=0) - arrival}
    return {**told, "iter": np.sum(list(told.values()), axis=0) + (0.0 if outside is None else outside)}


def as_tables(told: Mapping[str, Floats], *, phase_every: int = 1, **changes: Any) -> StepTables:
    """Step tables of all ranks; `phase_every` as on GPUs."""
    ranks, steps = told["bwd"].shape
    taken = np.arange(steps) % phase_every == 0
    parts = []
    for rank in range(ranks):
        columns = {
            f"{name}_ms": np.where(taken | (name == "data_wait"), values[rank], np.nan) for name, values in told.items() if name != "iter"
        }
        parts.append(factory.steps_of(told["iter"][rank].tolist(), rank=rank, **columns).with_columns(pl.all().fill_nan(None)))
    return factory.tables(*parts, **changes)


def run(
    ranks: int = 4,
    steps: int = 60,
    *,
    meets_in: str = "bwd",
    noise: float = 0.02,
    extra: Mapping[tuple[int, str], float] | None = None,
    phase_every: int = 1,
    **changes: Any,
) -> StepTables:
    """All of it at once."""
    return as_tables(meeting(own_work(ranks, steps, noise=noise, extra=extra), meets_in), phase_every=phase_every, **changes)
