"""charts/ranks.csv: how even the ranks are.

In: the step tables, the work of all ranks in the window. Out: each rank's median step time and, where their phases tell in which of them
the ranks meet, its median of own work and of waiting for the others. The rank that is least in that phase came last: what the others are
in it beyond that is waiting (analyse.straggler_work).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seatrial.analyse.charts.cells import cells
from seatrial.analyse.charts.first_rank import counted_rows, paused_rows
from seatrial.analyse.charts.thinning import Floats, Places, kept_places
from seatrial.analyse.grid import find_grid
from seatrial.analyse.quantile import median, row_medians
from seatrial.analyse.straggler import LEAST_STEPS
from seatrial.analyse.straggler_work import RankWork, synchronising_phase
from seatrial.records.charts import Columns
from seatrial.records.measure import Window
from seatrial.records.steps import StepTables

MEETING = ("fwd", "bwd", "step")
"""Without any of these nothing tells where ranks meet."""


@dataclass(frozen=True, kw_only=True)
class _Times:
    """By rank."""

    ranks: npt.NDArray[np.int64]
    p50_ms: Floats
    n: npt.NDArray[np.int64]


def rank_table(tables: StepTables, work: RankWork, window: Window, most: int) -> Columns:
    """One row a rank, of more than `most` the extremes; {} where fewer than two ranks told counted steps."""
    times = _times(tables, window)
    if times is None or len(times.ranks) < 2:
        return {}
    own_ms, wait_ms = _own_and_waiting(work, times, tables.world_size)
    kept = _kept(times.p50_ms, own_ms, most)
    places = {place.rank: place for place in tables.places}
    ranks = list(times.ranks[kept].tolist())
    at = [places.get(rank) for rank in ranks]
    return {
        "rank": ranks,
        "host": [place.host if place else "" for place in at],
        "gpu": [place.gpu if place else "" for place in at],
        "iter_p50_ms": cells(times.p50_ms[kept]),
        "work_p50_ms": cells(own_ms[kept]),
        "wait_p50_ms": cells(wait_ms[kept]),
        "first_step": [window.first_step] * len(ranks),
        "last_step": [window.last_step] * len(ranks),
        "n": list(times.n[kept].tolist()),
    }


def _times(tables: StepTables, window: Window) -> _Times | None:
    """Of the counted steps; None of a single rank, at no cost: most runs of a large campaign have one."""
    rank = tables.steps["rank"].to_numpy()
    if rank[0] == rank[-1]:
        return None
    step, span, iter_ms = (tables.steps[name].to_numpy() for name in ("step", "span", "iter_ms"))
    kept = counted_rows(step, span, iter_ms, paused_rows(step, tables), window)
    rank, iter_ms = rank[kept], iter_ms[kept]
    if len(rank) == 0:
        return None
    grid = find_grid(rank, step[kept])
    if grid.is_full:
        table = iter_ms.reshape(len(grid.ranks), -1)
        return _Times(ranks=grid.ranks, p50_ms=row_medians(table), n=np.full(len(grid.ranks), table.shape[1]))
    parts = np.split(iter_ms, np.flatnonzero(np.diff(rank)) + 1)
    return _Times(ranks=grid.ranks, p50_ms=np.array([median(part) for part in parts]), n=np.array([len(part) for part in parts]))


def _own_and_waiting(work: RankWork, times: _Times, world_size: int) -> tuple[Floats, Floats]:
    """Medians by rank; NaN where it cannot be told apart."""
    unknown = np.full(len(times.ranks), np.nan)
    is_whole = len(work.ranks) == world_size and np.array_equal(work.ranks, times.ranks)
    if not is_whole or len(work.steps) < LEAST_STEPS or not any(name in work.phases for name in MEETING):
        return unknown, unknown
    phase = synchronising_phase(work)
    if phase is None:
        return unknown, unknown
    waits = work.phases[phase] - work.phases[phase].min(axis=0)
    return row_medians(work.total_ms - waits), row_medians(waits)


def _kept(p50_ms: Floats, own_ms: Floats, most: int) -> Places:
    if len(p50_ms) <= most:
        return np.arange(len(p50_ms))
    half = most // 2
    return np.union1d(kept_places(p50_ms, most - half), kept_places(own_ms, half, np.isfinite(own_ms)))
