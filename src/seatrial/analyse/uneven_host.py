"""A host whose processors are taken by others.

In: the host's samples, the window, and the number of its processors. Out: causes `host_steal` (the machine below a virtual one took
them) and `host_load` (other processes did, or more want to run than there are processors).

`cpu_*_pct` are shares of all processors together, `tree_cpu_pct` is the run's own use as percent of one: only with the number of
processors do they compare.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from seatrial.analyse.column import column
from seatrial.analyse.quantile import median
from seatrial.analyse.telemetry_cautions import STEAL_PCT
from seatrial.analyse.uneven_span import Floats, Span
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.health import UnevenCause

FILE = ATTEMPT_FILES.host_telemetry.name
LEAST_SAMPLES = 10
"""Of fewer a single busy moment would be a large share."""
BUSY_PCT = 90.0
"""Near enough to all processors that a rank which wants one waits for it."""
OTHERS_PCT = 20.0
"""Of all processors; what less than this takes, the system's own services may take."""
LEAST_CONTENDED = 0.2
"""Of the samples: fewer than one in five leave the median step alone."""
CROWDED_RATIO = 1.5
"""Processes that want to run for each processor: from here on one in three waits."""
LEAST_CROWDED = 0.5
"""The load is a mean over a minute, so that most of the window must be busy for it to speak of the window."""


def host_causes(table: pl.DataFrame, span: Span, cores: int | None) -> Iterator[UnevenCause]:
    """What others took from the run."""
    rows = span.rows(table)
    if len(rows) < LEAST_SAMPLES:
        return
    yield from _steal(column(rows, "cpu_steal_pct"), span)
    if cores:
        yield from _load(rows, span, cores)


def _steal(steal_pct: Floats, span: Span) -> Iterator[UnevenCause]:
    known = steal_pct[~np.isnan(steal_pct)]
    if len(known) < LEAST_SAMPLES or not known.mean() > STEAL_PCT:
        return
    mean, most = float(known.mean()), float(known.max())
    yield UnevenCause(
        kind="host_steal",
        text=f"The machine below this virtual one took {mean:.0f} % of the processors' time (up to {most:.0f} % in a sample, "
        f"n = {len(known)}, {span.words}). Use a host of your own or processors that are reserved, and run again.",
        numbers={"steal_mean_pct": mean, "steal_max_pct": most},
        file=FILE,
        window=span.words,
        n=len(known),
        strength=min(1.0, mean / 100),
    )


def _load(rows: pl.DataFrame, span: Span, cores: int) -> Iterator[UnevenCause]:
    busy, own = column(rows, "cpu_user_pct") + column(rows, "cpu_system_pct"), column(rows, "tree_cpu_pct") / cores
    known = ~np.isnan(busy + own)
    if known.sum() < LEAST_SAMPLES:
        return
    busy, own, load = busy[known], own[known], column(rows, "load1")[known]
    full = busy >= BUSY_PCT
    contended = full & (busy - own >= OTHERS_PCT)
    if contended.mean() >= LEAST_CONTENDED:
        yield _others(busy[contended], own[contended], float(contended.mean()), len(busy), span, cores)
    elif full.mean() >= LEAST_CROWDED and not np.isnan(load).any() and median(load) >= CROWDED_RATIO * cores:
        yield _crowd(median(load), float(full.mean()), float(own[full].mean()), len(busy), span, cores)


def _others(busy: Floats, own: Floats, share: float, n: int, span: Span, cores: int) -> UnevenCause:
    taken = float((busy - own).mean())
    return UnevenCause(
        kind="host_load",
        text=f"In {share:.0%} of {n} samples ({span.words}) the host's {cores} processors were at least {BUSY_PCT:.0f} % busy, and "
        f"{taken:.0f} % of them worked for processes that are not the run's, {own.mean():.0f} % for the run. End what else runs there "
        "(`top` names it), and run again.",
        numbers={"contended_ratio": share, "others_pct": taken, "own_pct": float(own.mean()), "cores": cores},
        file=FILE,
        window=span.words,
        n=n,
        strength=min(1.0, share),
    )


def _crowd(load: float, share: float, own: float, n: int, span: Span, cores: int) -> UnevenCause:
    return UnevenCause(
        kind="host_load",
        text=f"{load:.1f} processes wanted to run on {cores} processors in the median of {n} samples ({span.words}), which were at least "
        f"{BUSY_PCT:.0f} % busy in {share:.0%} of them; {own:.0f} % of them worked for the run itself. Give it fewer loader workers and "
        "threads (num_workers, OMP_NUM_THREADS), or a host with more processors.",
        numbers={"load": load, "busy_ratio": share, "own_pct": own, "cores": cores},
        file=FILE,
        window=span.words,
        n=n,
        strength=min(1.0, 1 - cores / load),
    )
