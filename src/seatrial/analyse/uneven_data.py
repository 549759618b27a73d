"""Ranks that wait for data: now and then for long, or in every step.

In: the step tables and the window. Out: causes `data_wait_bursts` and `data_wait`. A step takes as long as its slowest rank, and waits
as long as the rank that waits longest: the others wait for that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seatrial.analyse.grid import find_grid
from seatrial.analyse.quantile import median
from seatrial.analyse.uneven_span import Floats, Span
from seatrial.paths import ATTEMPT_FILES, EVENTS_OF_ALL_RANKS
from seatrial.records.health import UnevenCause
from seatrial.records.steps import StepTables

LEAST_STEPS = 20
"""Of fewer the slow ones are too few to be called anything."""
SLOW_RATIO = 1.5
"""A step this many times the median is slow: the seeds' bound for p90/p50."""
LEAST_BURSTS = 3
"""One or two long waits may be anything."""
LEAST_EXPLAINED = 0.5
"""Waiting is the cause of slow steps where it makes up most of what they take beyond the median."""
LEAST_COST = 0.02
"""Bursts that cost less of the window's time than this change no decision."""
LEAST_SHARE = 0.15
"""In every step some wait is only the hand-over of a batch; from here on the loader sets the pace."""
REGULAR_SHARE = 0.8
"""So many of the distances between bursts must be the same for a rhythm to be told."""
ADVICE = "Raise num_workers or prefetch_factor, or look at the storage behind the data"


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """The counted steps that say how long they waited."""

    number: npt.NDArray[np.int64]
    wall_ms: Floats
    wait_ms: Floats


def data_causes(tables: StepTables, span: Span) -> Iterator[UnevenCause]:
    """Bursts, and a share in every step; both where both are so."""
    steps = _counted(tables, span)
    if steps is None or not steps.wait_ms.sum() > LEAST_COST * steps.wall_ms.sum():
        return
    file = EVENTS_OF_ALL_RANKS if tables.source == "events" else ATTEMPT_FILES.launcher_log.name
    yield from _bursts(steps, span, file)
    yield from _constant(steps, span, file)


def _counted(tables: StepTables, span: Span) -> _Steps | None:
    step, rank, iter_ms, wait_ms = (tables.steps[name].to_numpy() for name in ("step", "rank", "iter_ms", "data_wait_ms"))
    kept = (iter_ms > 0) & (iter_ms < np.inf) & (wait_ms >= 0) & (wait_ms < np.inf)
    if span.window is not None:
        kept &= (step >= span.window.first_step) & (step <= span.window.last_step)
    if len(tables.pauses):
        kept &= ~np.isin(step, tables.pauses["step"].to_numpy())
    # What all ranks wait together is no more than this: most runs need no closer look.
    if not wait_ms[kept].sum() * tables.world_size > LEAST_COST * iter_ms[kept].sum():
        return None
    grid = find_grid(rank[kept], step[kept])
    if len(grid.numbers) < LEAST_STEPS:
        return None
    return _Steps(number=grid.numbers, wall_ms=grid.longest(iter_ms[kept]), wait_ms=grid.longest(wait_ms[kept]))


def _bursts(steps: _Steps, span: Span, file: str) -> Iterator[UnevenCause]:
    usual_ms, usual_wait_ms = median(steps.wall_ms), median(steps.wait_ms)
    slow = steps.wall_ms > SLOW_RATIO * usual_ms
    beyond_ms = steps.wall_ms[slow] - usual_ms
    waited_ms = np.minimum(np.maximum(steps.wait_ms[slow] - usual_wait_ms, 0.0), beyond_ms)
    bursts = waited_ms > LEAST_EXPLAINED * beyond_ms
    if bursts.sum() < LEAST_BURSTS:
        return
    explained, cost = float(waited_ms.sum() / beyond_ms.sum()), float(waited_ms.sum() / steps.wall_ms.sum())
    if explained < LEAST_EXPLAINED or cost < LEAST_COST:
        return
    count, n, burst_ms, every = int(bursts.sum()), len(steps.number), median(waited_ms[bursts]), _every(steps.number[slow][bursts])
    rhythm = f", every {every} steps" if every else ""
    yield UnevenCause(
        kind="data_wait_bursts",
        text=f"In {count} of {n} steps ({span.words}) the ranks waited for data for {burst_ms:.3g} ms beyond the usual "
        f"{usual_wait_ms:.3g} ms{rhythm}: {explained:.0%} of what slow steps take beyond the median, and {cost:.0%} of the window's time. "
        f"{ADVICE}.",
        numbers={
            "bursts": count,
            "burst_ms": burst_ms,
            "usual_wait_ms": usual_wait_ms,
            "explained_ratio": explained,
            "time_ratio": cost,
            "every_steps": every,
        },
        file=file,
        window=span.words,
        n=n,
        strength=explained,
    )


def _every(numbers: npt.NDArray[np.int64]) -> int | None:
    """The usual distance between bursts; None where there is none."""
    between = np.diff(numbers)
    usual = int(np.median(between))
    return usual if (between == usual).mean() >= REGULAR_SHARE else None


def _constant(steps: _Steps, span: Span, file: str) -> Iterator[UnevenCause]:
    wall_ms, wait_ms, n = median(steps.wall_ms), median(steps.wait_ms), len(steps.number)
    share = wait_ms / wall_ms
    if share < LEAST_SHARE:
        return
    yield UnevenCause(
        kind="data_wait",
        text=f"Of {wall_ms:.4g} ms a step takes, the ranks wait {wait_ms:.3g} ms for data ({share:.0%}, medians over {span.words}, "
        f"n = {n}). {ADVICE}.",
        numbers={"wait_ms": wait_ms, "step_ms": wall_ms, "share": share},
        file=file,
        window=span.words,
        n=n,
        strength=min(1.0, share),
    )
