"""What every rank did in the steps that all ranks tell of, and where they wait for one another.

In: the step tables of an attempt and its window. Out: `RankWork`, phases laid out as ranks × steps; and the phase in which the ranks
synchronise, or None where that cannot be told.

All ranks leave the synchronising phase together. From one such moment to the next every rank takes the same time, so a rank that works
longer elsewhere is in this phase for just as much less: it is the phase that makes up for all the others. Which one it is shows in the
noise: what a rank lost in the phases since the last meeting, it makes up for here, step by step. Where steps were not told one after
another (phases on every tenth, lines at every fiftieth), the phase that makes up for the others varies the most between ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seatrial.analyse.grid import find_grid
from seatrial.records.events import PHASES
from seatrial.records.measure import Window
from seatrial.records.steps import StepTables

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Columns = slice | npt.NDArray[np.intp]

NAMES = tuple(name.removesuffix("_ms") for name in PHASES)
USUAL = ("bwd", "step")
"""Where trainings meet: the all-reduce of DDP in bwd, that of a partitioned optimiser in step."""
UNUSUAL = ("fwd", "preprocess")
"""Where they may meet all the same: gathered weights, a copy that blocks. Waiting for data is a rank's own."""
LEAST_PAIRS = 20
"""Steps that follow one another, for their noise to be laid side by side."""
SURE_T = 3.0
"""A difference this many standard errors from 0 is no chance."""
CLEARLY_MORE = 4.0
"""Squares of times: twice as long."""


@dataclass(frozen=True, kw_only=True)
class RankWork:
    """Steps that every rank tells the phases of; all tables are ranks × steps, in ms."""

    ranks: Ints
    steps: Ints
    phases: dict[str, Floats]
    """By name in the probe's words, in the order of a step; a phase that a rank does not have is 0 there."""
    shared: tuple[str, ...]
    """Phases that every rank has."""
    iter_ms: Floats | None
    """None unless every rank tells it."""

    @property
    def total_ms(self) -> Floats:
        """A step's time: by wall clock, else the sum of its phases."""
        return self.iter_ms if self.iter_ms is not None else self.sum_ms

    @property
    def sum_ms(self) -> Floats:
        return np.asarray(np.sum(list(self.phases.values()), axis=0))


def rank_work(tables: StepTables, window: Window | None) -> RankWork:
    """Steps of the window that held no pause on any rank; without a window, of the whole run."""
    steps = tables.steps
    rank, step = steps["rank"].to_numpy(), steps["step"].to_numpy()
    kept = _in_window(step, window, tables.pauses["step"].to_numpy())
    grid = find_grid(rank[kept], step[kept]) if not kept.all() else find_grid(rank, step)
    # Rows go by rank, then step: what all ranks have in common is a block of equal rows for each of them.
    rows = np.flatnonzero(kept) if grid.is_full else np.flatnonzero(kept)[(grid.seen == len(grid.ranks))[grid.place]]
    shape = (len(grid.ranks), -1) if len(rows) else (len(grid.ranks), 0)
    values = {name: steps[name].to_numpy()[rows].reshape(shape) for name in (*PHASES, "iter_ms")}
    numbers = grid.numbers if grid.is_full else grid.numbers[grid.seen == len(grid.ranks)]
    return _told(grid.ranks, numbers, np.stack([values[name] for name in PHASES]), values["iter_ms"])


def _in_window(step: Ints, window: Window | None, paused: Ints) -> Mask:
    kept = np.ones(len(step), dtype=np.bool_)
    if window is not None:
        kept &= (step >= window.first_step) & (step <= window.last_step)
    if len(paused):
        kept &= ~np.isin(step, paused)
    return kept


def _told(ranks: Ints, numbers: Ints, phases: Floats, iter_ms: Floats) -> RankWork:
    """The steps in which every rank tells all the phases it has. On most steps of a GPU only the wait for data is told."""
    finite = np.isfinite(phases)
    has_phases = finite[1:].any(axis=0)
    used = finite.sum(axis=2, where=has_phases) * 2 > has_phases.sum(axis=1)
    whole = ((finite | ~used[:, :, None]).all(axis=0) & has_phases).all(axis=0)
    kept = phases[:, :, whole] if not whole.all() else phases
    wall = iter_ms[:, whole]
    return RankWork(
        ranks=ranks,
        steps=numbers[whole],
        phases={name: np.where(used[at][:, None], kept[at], 0.0) for at, name in enumerate(NAMES) if used[at].any()},
        shared=tuple(name for at, name in enumerate(NAMES) if used[at].all()),
        iter_ms=wall if wall.size and np.isfinite(wall).all() else None,
    )


def synchronising_phase(work: RankWork) -> str | None:
    """The phase in which ranks wait for one another; None where two are as likely, or none is shared."""
    apart = {name: values - values.mean(axis=0) for name, values in work.phases.items()}
    usual = [name for name in USUAL if name in work.shared]
    found = _of_two(work, apart) if len(usual) == 2 else usual[0] if usual else None
    if len(usual) == 2 and found is None:
        return None
    unusual = [name for name in UNUSUAL if name in work.shared]
    varies = {name: float(np.square(apart[name]).mean()) for name in (*usual, *unusual)}
    other = max(unusual, key=lambda name: varies[name], default=None)
    if other is None or (found is not None and varies[found] * CLEARLY_MORE >= varies[other]):
        return found
    return other


def _of_two(work: RankWork, apart: dict[str, Floats]) -> str | None:
    """`bwd` or `step`: by the noise, else by which differs more between ranks, else by which has one rank that stands out below."""
    noise = {name: values - values.mean(axis=1, keepdims=True) for name, values in apart.items()}
    pairs = _pairs(work.steps)
    bwd, step = (_misfit(noise, name, pairs) for name in USUAL)
    surplus = step - bwd
    error = float(surplus.std()) / math.sqrt(len(surplus))
    mean = float(surplus.mean())
    if abs(mean) > SURE_T * error:
        return "bwd" if mean > 0 else "step"
    return _by_level(*(apart[name].mean(axis=1) for name in USUAL))


def _pairs(steps: Ints) -> tuple[Columns, Columns] | None:
    """Steps and those right before them; None where there are too few."""
    before = np.flatnonzero(np.diff(steps) == 1)
    if len(before) < LEAST_PAIRS:
        return None
    # Where every step follows the last, as in a clean run, a slice copies nothing.
    return (slice(1, None), slice(None, -1)) if len(before) == len(steps) - 1 else (before + 1, before)


def _misfit(noise: dict[str, Floats], phase: str, pairs: tuple[Columns, Columns] | None) -> Floats:
    """By step, how badly the noise fits ranks that meet at the end of `phase`: what is left of a rank's time between two meetings, less
    what the phase itself varies. In the right one that varies most which makes up for the others, and nothing is left."""
    if pairs is None:
        return -_square_means(noise[phase])
    now, before = pairs
    names = list(noise)
    meets = names.index(phase) + 1
    left = sum((noise[name][:, now] for name in names[:meets]), start=np.zeros(()))
    left = sum((noise[name][:, before] for name in names[meets:]), start=left)
    return _square_means(left) - _square_means(noise[phase][:, now])


def _square_means(values: Floats) -> Floats:
    """By step, over the ranks."""
    return np.asarray(np.einsum("rs,rs->s", values, values) / len(values))


def _by_level(bwd: Floats, step: Floats) -> str | None:
    """By the ranks' means alone. Of two ranks one cannot tell who waits and who works where both phases differ."""
    varies_bwd, varies_step = float(np.square(bwd).sum()), float(np.square(step).sum())
    if varies_bwd >= varies_step * CLEARLY_MORE or varies_step == 0:
        return "bwd"
    if varies_step >= varies_bwd * CLEARLY_MORE:
        return "step"
    if len(bwd) == 2:
        return None
    return "bwd" if -bwd.min() - bwd.max() >= -step.min() - step.max() else "step"
