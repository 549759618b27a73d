"""The ETA replayed at every logged step, and its quality.

In: the step and pause tables of a run, its spec, and the estimates its own log printed. Out: `EtaPoint`s of rank 0 and, where several ranks
have step times, of the slowest rank (`global_max`), and their `EtaQuality`. Each estimate uses only earlier steps, with the estimator of a
live run; the actual time is rank 0's clock at its last step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.step_times import logged_rows
from seatrial.records.eta import GLOBAL_MAX, MIN_MARKS, OFF, RANK0, EtaEstimate, EtaEstimator, EtaPoint, EtaQuality, measure_eta_quality
from seatrial.records.eta_model import LONG_RATIO, LONG_SD, LONG_STEPS, LOW_PART, LOW_SD, MEDIAN_SQUARE, Block, SplitMarks, split_marks
from seatrial.records.plan import RunSpec

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
# A rank slower than rank 0 by less than this needs no estimate of its own.
SLOWER_RATIO = 1.001
# Blocks of a replay are larger than those of a live run: a thousand runs are replayed at once.
BLOCKS_IN_A_REPLAY = 32
# A script that logs every step would get a table as long as its events.
MAX_POINTS = 500


@dataclass(frozen=True, kw_only=True)
class _Marks:
    """When steps of one rank ended."""

    step: Whole
    end_s: Floats
    paused_s: Floats
    """Time in named pauses up to then."""


class CutBlock(NamedTuple):
    """The arguments of `EtaEstimator.add_block` after the step."""

    seen: int
    end: int
    one: SplitMarks
    pauses: list[tuple[int, float, int]]


class _Plain:
    """Mean and noise of every block as if it had no long step, and which blocks may have one."""

    def __init__(self, steps: Whole, took_s: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> None:
        each, counts, rows = took_s / steps, ends - starts, np.arange(len(starts))
        ordered = _sorted(each, starts, ends)
        median = ordered[rows, (counts - 1) // 2]
        limit = np.maximum(LONG_RATIO * median, LONG_SD * (median - ordered[rows, counts // LOW_PART]) / LOW_SD)
        more, most = ordered[rows, counts - 1] - median, steps.max()
        self.has_long = (more * np.sqrt(most) > limit) & (more * most > LONG_STEPS * median)
        self.mean_s = np.add.reduceat(took_s, starts) / np.add.reduceat(steps, starts)
        self.variance = np.zeros(len(starts))
        if counts.max() > 1:
            squares = np.diff(each) ** 2 / (1 / steps[:-1] + 1 / steps[1:])
            middle = _sorted(squares, starts, ends - 1)[rows, (counts - 1) // 2]
            self.variance = np.where(counts > 1, middle / MEDIAN_SQUARE, 0.0)


def eta_points(
    steps: pl.DataFrame, pauses: pl.DataFrame, spec: RunSpec, *, source: str = "events", printed: Sequence[EtaPoint] = ()
) -> tuple[EtaPoint, ...]:
    """Points of all modes; none where the plan turns them off, the number of steps is unknown, or no step's end is known. Where the script
    itself `printed` points, these with the actual times."""
    ranks = list(_ranks(steps, pauses)) if spec.timing.eta_mode != OFF else []
    if not ranks:
        return ()
    last_step = _last_step(ranks[0].step, spec.steps, source)
    if printed:
        return tuple(_with_truth(printed, ranks[0], last_step))
    if last_step is None:
        return ()
    logged = logged_rows(ranks[0].step, spec.timing.log_every)
    rows = logged[:: max(-(-len(logged) // MAX_POINTS), 1)]
    found = {RANK0: _replay(ranks[0], rows, spec, last_step)}
    if len(ranks) > 1:
        found[GLOBAL_MAX] = _slowest(ranks, rows, found[RANK0], spec, last_step)
    computed_from = "events" if source == "events" else "steps"
    return tuple(point for mode, estimates in found.items() for point in _points(mode, estimates, ranks[0], rows, last_step, computed_from))


def run_length_s(rank0: pl.DataFrame) -> float | None:
    """From the end of the first known step to that of the last."""
    end_s = _ends_s(rank0)
    known = end_s[np.isfinite(end_s)]
    return float(known[-1] - known[0]) if len(known) else None


def eta_quality(points: Sequence[EtaPoint], run_length_s: float | None) -> EtaQuality | None:
    """Quality of the points of one mode; None where no estimate has an actual time."""
    return measure_eta_quality([(points, run_length_s)]) if run_length_s else None


def _ends_s(steps: pl.DataFrame) -> Floats:
    """The monotonic clock at the end of each step, else the wall clock."""
    end_s = steps["m"].to_numpy()
    return end_s if len(end_s) and not np.isnan(end_s).all() else steps["t"].to_numpy()


def _ranks(steps: pl.DataFrame, pauses: pl.DataFrame) -> Iterator[_Marks]:
    """The marks of every rank whose step ends are known, lowest first."""
    if steps.is_empty():
        return
    rank, step, end_s = steps["rank"].to_numpy(), steps["step"].to_numpy(), _ends_s(steps)
    # Pauses read from a log have no known length.
    pause = tuple(pauses[name].to_numpy() for name in ("rank", "step", "pause_ms"))
    borders = [0, *(np.flatnonzero(np.diff(rank)) + 1).tolist(), len(rank)]
    for start, end in pairwise(borders):
        kept = start + _known_rows(end_s[start:end])
        if len(kept) > 1:
            yield _Marks(step=step[kept], end_s=end_s[kept], paused_s=_paused_s(pause, int(rank[start]), step[kept]))


def _known_rows(end_s: Floats) -> npt.NDArray[np.intp]:
    """Rows whose time is known and later than all previous ones; of lines that arrived together only the last has its own time."""
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
    """Total pauses of the rank up to each step; rows are in the order of steps."""
    own = (pause[0] == rank) & np.isfinite(pause[2]) if len(pause[0]) else pause[0]
    if not own.any():
        return np.zeros(len(step))
    sums = np.concatenate([[0.0], np.cumsum(pause[2][own]) / 1000])
    return np.asarray(sums[np.searchsorted(pause[1][own], step, side="right")], dtype=np.float64)


def _last_step(step: Whole, steps: int | None, source: str) -> int | None:
    """The number of the last step; scripts count from 0 or from 1, the probe from 0."""
    if steps is None:
        return None
    return steps if source != "events" and step[0] > 0 else steps - 1


def _replay(marks: _Marks, rows: npt.NDArray[np.intp], spec: RunSpec, last_step: int) -> list[EtaEstimate | None]:
    """The estimate at each of the rows."""
    estimator = EtaEstimator(last_step + 1, spec.timing.eta_min_samples)
    counts = np.diff(rows, prepend=0)
    if len(counts) == 0 or int(np.median(counts[-3:])) < MIN_MARKS:
        return list(_replay_marks(estimator, marks, rows))
    return list(_replay_blocks(estimator, marks, rows, (last_step + 1) // BLOCKS_IN_A_REPLAY))


def _replay_marks(estimator: EtaEstimator, marks: _Marks, rows: npt.NDArray[np.intp]) -> Iterator[EtaEstimate | None]:
    """Few marks: one after another."""
    at = 0
    printed = list(zip(marks.step.tolist(), marks.end_s.tolist(), marks.paused_s.tolist(), strict=True))
    for row in rows.tolist():
        for step, end_s, paused_s in printed[at : row + 1]:
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
        parts = max(1, min((row - before) // MIN_MARKS, round(steps / max(block_steps, 1))))
        borders += [before + (row - before) * part // parts for part in range(1, parts + 1)] if row > before else []
    return np.array(borders[:-1], dtype=np.intp), np.array(borders[1:], dtype=np.intp)


def _slowest(
    ranks: Sequence[_Marks], rows: npt.NDArray[np.intp], rank0: list[EtaEstimate | None], spec: RunSpec, last_step: int
) -> list[EtaEstimate | None]:
    """At each row the estimate of the rank that is slowest by then; rank 0's own where no other is much slower."""
    at_steps = ranks[0].step[rows]
    # Time from the rank's first step to each of these; 0 where it did not reach it.
    indices = [np.searchsorted(marks.step, at_steps).clip(max=len(marks.step) - 1) for marks in ranks]
    passed_s = np.stack(
        [np.where(marks.step[at] == at_steps, marks.end_s[at] - marks.end_s[0], 0.0) for marks, at in zip(ranks, indices, strict=True)]
    )
    slowest = np.where(passed_s.max(axis=0) > SLOWER_RATIO * passed_s[0], passed_s.argmax(axis=0), 0)
    estimates = {0: rank0}
    for number in np.unique(slowest).tolist():
        if number:
            estimates[number] = _replay(ranks[number], indices[number], spec, last_step)
    return [estimates[number][at] for at, number in enumerate(slowest.tolist())]


def _points(
    mode: str, estimates: Sequence[EtaEstimate | None], rank0: _Marks, rows: npt.NDArray[np.intp], last_step: int, source: str
) -> Iterator[EtaPoint]:
    reached = bool(rank0.step[-1] == last_step)
    left_s = (rank0.end_s[-1] - rank0.end_s[rows]).tolist()
    index = 0
    for step, actual_s, estimate in zip(rank0.step[rows].tolist(), left_s, estimates, strict=True):
        if estimate is not None:
            yield EtaPoint(
                index=index,
                step=step,
                remain_steps=max(last_step - step, 0),
                eta_s=estimate.eta_s,
                mode=mode,
                source=source,
                low_s=estimate.low_s,
                high_s=estimate.high_s,
                basis_iter_ms=estimate.basis_iter_ms,
                samples=estimate.samples,
                actual_s=actual_s if reached else None,
            )
            index += 1


def _with_truth(printed: Sequence[EtaPoint], rank0: _Marks, last_step: int | None) -> Iterator[EtaPoint]:
    """Printed points: the last step follows from the script's own count of steps to go."""
    for point in printed:
        ends_at = point.step + point.remain_steps if last_step is None else min(last_step, point.step + point.remain_steps)
        row, last_row = np.searchsorted(rank0.step, (point.step, ends_at)).clip(max=len(rank0.step) - 1).tolist()
        is_known = rank0.step[row] == point.step and rank0.step[last_row] == ends_at
        yield replace(point, actual_s=float(rank0.end_s[last_row] - rank0.end_s[row]) if is_known else None)


def cut_blocks(step: Whole, end_s: Floats, paused_s: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> list[CutBlock]:
    """The blocks from mark `starts` to mark `ends`, contiguous from the first mark on. `split_marks` is called only where a block has a
    long step or the block before left one; most have none."""
    if len(starts) == 0:
        return []
    last = int(ends[-1]) + 1
    steps, pauses = np.diff(step[:last]), np.maximum(np.diff(paused_s[:last]), 0.0)
    took_s = np.maximum(np.diff(end_s[:last]) - pauses, 0.0)
    plain = _Plain(steps, took_s, starts, ends)
    means = zip((step[ends] - step[starts]).tolist(), plain.mean_s.tolist(), plain.variance.tolist(), strict=True)
    passed = (step[:last] - step[0]).tolist()
    found: list[CutBlock] = []
    carried = 0
    for mean, has_long, start, end in zip(means, plain.has_long.tolist(), starts.tolist(), ends.tolist(), strict=True):
        # The first block may begin with steps that were only launched.
        if has_long or carried or start == 0:
            begin = start - carried
            marks = list(zip(steps[begin:end].tolist(), took_s[begin:end].tolist(), strict=True))
            one = split_marks(marks, passed[begin])
        else:
            one = SplitMarks(Block(*mean), [], 0)
        carried = one.held
        found.append(CutBlock(passed[end], passed[end - carried], one, []))
    for at in np.flatnonzero(pauses).tolist():
        number = int(np.searchsorted(ends, at, side="right"))
        found[number].pauses.append((passed[at + 1], float(pauses[at]), int(steps[at])))
    return found


def _sorted(values: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> Floats:
    """The values of each block sorted in a row of its own, padded with NaN."""
    indices = starts[:, None] + np.arange(int((ends - starts).max()) + 1)
    found = values[np.minimum(indices, len(values) - 1)]
    found[indices >= ends[:, None]] = np.nan
    return np.sort(found, axis=1)
