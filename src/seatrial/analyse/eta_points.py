"""What was said of the time to go at every logged step, or would have been, and how good it was.

In: the step and pause tables of a run, its spec, and the estimates its own log gives. Out: `EtaPoint`s of rank 0 and, where several ranks
tell when their steps ended, of the slowest rank (`global_max`), and their `EtaQuality`. Each estimate is made from what lay before it,
by the same estimator that speaks while a run runs; the truth beside it is rank 0's clock at its last step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.eta_blocks import cut_blocks
from seatrial.analyse.timing_points import logged_rows
from seatrial.eta.errors import quality
from seatrial.eta.estimator import LEAST_MARKS, EtaEstimator
from seatrial.records.eta import GLOBAL_MAX, OFF, RANK0, EtaEstimate, EtaPoint, EtaQuality
from seatrial.records.run_spec import RunSpec

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

# A rank that is slower than rank 0 by less than this share is not worth an estimate of its own.
SLOWER_RATIO = 1.001
# Blocks of a replay are larger than those of a run under way: a thousand runs are replayed at once.
BLOCKS_IN_A_REPLAY = 32
# A script that logs every step would get a table as long as its events.
MOST_POINTS = 500


@dataclass(frozen=True, kw_only=True)
class _Marks:
    """When steps of one rank ended."""

    step: Whole
    end_s: Floats
    paused_s: Floats
    """Named pauses up to then."""


def eta_points(
    steps: pl.DataFrame, pauses: pl.DataFrame, spec: RunSpec, *, source: str = "events", told: Sequence[EtaPoint] = ()
) -> tuple[EtaPoint, ...]:
    """Points of all modes; none where the plan wants none, or does not say how many steps there are, or no step's end is known.

    `told` are those the script itself printed: they are then the points, with the truth put beside them.
    """
    ranks = list(_ranks(steps, pauses)) if spec.timing.eta_mode != OFF else []
    if not ranks:
        return ()
    last_step = _last_step(ranks[0].step, spec.steps, source)
    if told:
        return tuple(_with_truth(told, ranks[0], last_step))
    if last_step is None:
        return ()
    rows = _point_rows(ranks[0].step, spec.timing.log_every)
    found = [_Said(RANK0, _replay(ranks[0], rows, spec, last_step))]
    if len(ranks) > 1:
        found.append(_Said(GLOBAL_MAX, _slowest(ranks, rows, found[0].estimates, spec, last_step)))
    computed_from = "events" if source == "events" else "steps"
    return tuple(point for said in found for point in _points(said, ranks[0], rows, last_step, computed_from))


def run_length_s(rank0: pl.DataFrame) -> float | None:
    """From the end of the first step that is known to that of the last."""
    end_s = _ends_s(rank0)
    known = end_s[np.isfinite(end_s)]
    return float(known[-1] - known[0]) if len(known) else None


def eta_quality(points: Sequence[EtaPoint], run_length_s: float | None) -> EtaQuality | None:
    """Of the points of one mode; None where no estimate can be held against a truth."""
    return quality([(points, run_length_s)]) if run_length_s else None


def _ends_s(steps: pl.DataFrame) -> Floats:
    """The monotonic clock at the end of each step, else the wall clock."""
    end_s = steps["m"].to_numpy()
    return end_s if len(end_s) and not np.isnan(end_s).all() else steps["t"].to_numpy()


def _ranks(steps: pl.DataFrame, pauses: pl.DataFrame) -> Iterator[_Marks]:
    """The marks of every rank that tells when its steps ended, lowest first."""
    if steps.is_empty():
        return
    rank, step, end_s = steps["rank"].to_numpy(), steps["step"].to_numpy(), _ends_s(steps)
    # How long a pause took that a log only hints at is not known.
    pause = tuple(pauses[name].to_numpy() for name in ("rank", "step", "pause_ms"))
    borders = [0, *(np.flatnonzero(np.diff(rank)) + 1).tolist(), len(rank)]
    for start, end in pairwise(borders):
        kept = start + _known_rows(end_s[start:end])
        if len(kept) > 1:
            yield _Marks(step=step[kept], end_s=end_s[kept], paused_s=_paused_s(pause, int(rank[start]), step[kept]))


def _known_rows(end_s: Floats) -> npt.NDArray[np.intp]:
    """Rows whose time is known and later than all before; of lines that came together only the last came at that time."""
    known = np.flatnonzero(np.isfinite(end_s))
    if len(known) == 0:
        return known
    times = end_s[known]
    highest = np.maximum.accumulate(times)
    if bool((np.diff(times) > 0).all()):
        return known
    is_last = np.append(np.diff(highest) > 0, True) & (times == highest)
    return np.asarray(known[is_last], dtype=np.intp)


def _paused_s(pause: tuple[Any, ...], rank: int, step: Whole) -> Floats:
    """All pauses of the rank up to each step, whose rows are in the order of steps."""
    of_rank = (pause[0] == rank) & np.isfinite(pause[2]) if len(pause[0]) else pause[0]
    if not of_rank.any():
        return np.zeros(len(step))
    sums = np.concatenate([[0.0], np.cumsum(pause[2][of_rank]) / 1000])
    return np.asarray(sums[np.searchsorted(pause[1][of_rank], step, side="right")], dtype=np.float64)


def _last_step(step: Whole, steps: int | None, source: str) -> int | None:
    """The number of the last step; scripts count from 0 or from 1, the probe from 0."""
    if steps is None:
        return None
    return steps if source != "events" and step[0] > 0 else steps - 1


def _point_rows(step: Whole, log_every: int) -> npt.NDArray[np.intp]:
    rows = logged_rows(step, log_every)
    every = max(-(-len(rows) // MOST_POINTS), 1)
    return np.asarray(rows[::every], dtype=np.intp)


def _replay(marks: _Marks, rows: npt.NDArray[np.intp], spec: RunSpec, last_step: int) -> list[EtaEstimate | None]:
    """The estimate at each of the rows."""
    estimator = EtaEstimator(last_step + 1, spec.timing.eta_min_samples)
    counts = np.diff(rows, prepend=0)
    if len(counts) == 0 or int(np.median(counts[-3:])) < LEAST_MARKS:
        return list(_replay_marks(estimator, marks, rows))
    return list(_replay_blocks(estimator, marks, rows, (last_step + 1) // BLOCKS_IN_A_REPLAY))


def _replay_marks(estimator: EtaEstimator, marks: _Marks, rows: npt.NDArray[np.intp]) -> Iterator[EtaEstimate | None]:
    """Few marks: one after another."""
    at = 0
    told = list(zip(marks.step.tolist(), marks.end_s.tolist(), marks.paused_s.tolist(), strict=True))
    for row in rows.tolist():
        for step, end_s, paused_s in told[at : row + 1]:
            estimator.add(step, end_s, paused_s)
        at = row + 1
        yield estimator.estimate()


def _replay_blocks(estimator: EtaEstimator, marks: _Marks, rows: npt.NDArray[np.intp], block_steps: int) -> Iterator[EtaEstimate | None]:
    """Many marks: cut into blocks that end at the rows."""
    starts, ends = _bounds(rows, marks.step, block_steps)
    wanted = set(rows.tolist())
    if 0 in wanted:
        yield estimator.estimate()
    for end, cut_block in zip(ends.tolist(), cut_blocks(marks.step, marks.end_s, marks.paused_s, starts, ends), strict=True):
        estimator.add_block(int(marks.step[end]), *cut_block)
        if end in wanted:
            yield estimator.estimate()


def _bounds(rows: npt.NDArray[np.intp], step: Whole, block_steps: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """First and last mark of each block: the marks between two rows, in parts where they are many."""
    borders = [0]
    for row in rows.tolist():
        before = borders[-1]
        steps = int(step[row] - step[before])
        parts = max(1, min((row - before) // LEAST_MARKS, round(steps / max(block_steps, 1))))
        borders += [before + (row - before) * part // parts for part in range(1, parts + 1)] if row > before else []
    return np.array(borders[:-1], dtype=np.intp), np.array(borders[1:], dtype=np.intp)


def _slowest(
    ranks: Sequence[_Marks], rows: npt.NDArray[np.intp], rank0: list[EtaEstimate | None], spec: RunSpec, last_step: int
) -> list[EtaEstimate | None]:
    """At each row the estimate of the rank that is slowest by then; rank 0's own where no other is much slower."""
    at_steps = ranks[0].step[rows]
    passed_s = np.stack([_passed_s(marks, at_steps) for marks in ranks])
    slowest = np.where(passed_s.max(axis=0) > SLOWER_RATIO * passed_s[0], passed_s.argmax(axis=0), 0)
    estimates = {0: rank0}
    for number in np.unique(slowest).tolist():
        if number:
            marks = ranks[number]
            known = np.searchsorted(marks.step, at_steps).clip(max=len(marks.step) - 1)
            estimates[number] = _replay(marks, known, spec, last_step)
    return [estimates[number][place] for place, number in enumerate(slowest.tolist())]


def _passed_s(marks: _Marks, at_steps: Whole) -> Floats:
    """Time from the rank's first step to each of these; nothing where it did not get there."""
    place = np.searchsorted(marks.step, at_steps).clip(max=len(marks.step) - 1)
    return np.where(marks.step[place] == at_steps, marks.end_s[place] - marks.end_s[0], 0.0)


@dataclass(frozen=True)
class _Said:
    """The estimates of one mode, row by row."""

    mode: str
    estimates: list[EtaEstimate | None]


def _points(said: _Said, rank0: _Marks, rows: npt.NDArray[np.intp], last_step: int, source: str) -> Iterator[EtaPoint]:
    reached = bool(rank0.step[-1] == last_step)
    left_s = (rank0.end_s[-1] - rank0.end_s[rows]).tolist()
    index = 0
    for step, actual_s, estimate in zip(rank0.step[rows].tolist(), left_s, said.estimates, strict=True):
        if estimate is not None:
            yield EtaPoint(
                index=index,
                step=step,
                remain_steps=max(last_step - step, 0),
                eta_s=estimate.eta_s,
                mode=said.mode,
                source=source,
                low_s=estimate.low_s,
                high_s=estimate.high_s,
                basis_iter_ms=estimate.basis_iter_ms,
                samples=estimate.samples,
                actual_s=actual_s if reached else None,
            )
            index += 1


def _with_truth(told: Sequence[EtaPoint], rank0: _Marks, last_step: int | None) -> Iterator[EtaPoint]:
    """Printed points: the script's own count of steps to go says which step is its last."""
    for point in told:
        ends_at = point.step + point.remain_steps if last_step is None else min(last_step, point.step + point.remain_steps)
        row, last_row = np.searchsorted(rank0.step, (point.step, ends_at)).clip(max=len(rank0.step) - 1).tolist()
        is_known = rank0.step[row] == point.step and rank0.step[last_row] == ends_at
        yield replace(point, actual_s=float(rank0.end_s[last_row] - rank0.end_s[row]) if is_known else None)
