"""What one group of a campaign shows of its stability, and whether that holds.

In: the rows of a folder's manifests and thresholds. Out: a `GroupCheck`: figures over the repeats that ended well, and a reason for each
threshold that does not hold. A repeat counts once, by its newest successful row; a row that says success beside an exit code that says
otherwise is none. What cannot be computed is a reason too: an empty cell, a group without rows, a CV of a single repeat.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seatrial.collect.original.cells import flag, number
from seatrial.collect.original.manifest_rows import Row, by_run, counting_rows, newest
from seatrial.collect.original.manifests import Manifests
from seatrial.errors import did_you_mean
from seatrial.records.stability import exceeds
from seatrial.tables import format_cell

RATIO, ITER_P50, TELEMETRY_EMPTY = "iter_p90_over_p50", "last_iter_ms_p50", "gpu_telemetry_empty_flag"
NOT_ENFORCED = 1.0
LEAST_FOR_CV = 2


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What a group must hold; a figure at its limit holds."""

    min_repeats: int = 3
    max_iter_ratio_median: float = 1.5
    max_iter_ratio_max: float = 2.5
    max_iter_p50_cv: float = 0.05
    max_telemetry_empty_ratio: float = NOT_ENFORCED
    """Share of rows without GPU telemetry; at 1 it is not enforced."""


@dataclass(frozen=True, kw_only=True)
class GroupCheck:
    """One group's figures, None where there is none, and why it does not hold."""

    group: str
    num_repeats: int = 0
    num_failed: int = 0
    """Repeats that never ended well."""
    ratio_median: float | None = None
    ratio_max: float | None = None
    iter_p50_ms: float | None = None
    iter_p50_cv: float | None = None
    telemetry_empty_ratio: float | None = None
    reasons: tuple[str, ...] = ()


def group_check(group: str, manifests: Manifests, thresholds: Thresholds) -> GroupCheck:
    """Its figures, and every reason for which it does not hold."""
    runs = by_run(counting_rows(_rows_of(group, manifests)))
    counted = [row for rows in runs.values() if (row := newest(_successful(rows))) is not None]
    ratios, iters_ms = _numbers(counted, RATIO), _numbers(counted, ITER_P50)
    empty = [flag(row.cells.get(TELEMETRY_EMPTY)) for row in counted]
    figures = GroupCheck(
        group=group,
        num_repeats=len(counted),
        num_failed=len(runs) - len(counted),
        ratio_median=statistics.median(ratios) if ratios else None,
        ratio_max=max(ratios, default=None),
        iter_p50_ms=statistics.fmean(iters_ms) if iters_ms else None,
        iter_p50_cv=statistics.stdev(iters_ms) / statistics.fmean(iters_ms) if len(iters_ms) >= LEAST_FOR_CV else None,
        telemetry_empty_ratio=empty.count(True) / len(empty) if empty and None not in empty else None,
    )
    reasons = [*_no_rows(group, manifests)] or [*_missing(counted, manifests), *_beyond(figures, thresholds)]
    return replace(figures, reasons=tuple(reasons))


def _rows_of(group: str, manifests: Manifests) -> list[Row]:
    return [row for row in manifests.rows if row.group == group]


def _successful(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.is_success]


def _numbers(rows: Sequence[Row], column: str) -> list[float]:
    return [value for row in rows if (value := number(row.cells.get(column))) is not None and value > 0]


def _no_rows(group: str, manifests: Manifests) -> Iterator[str]:
    known = {row.group for row in manifests.rows}
    if group not in known:
        yield f"the manifest has no row of this group; {did_you_mean(group, known)}"
    elif not counting_rows(_rows_of(group, manifests)):
        yield "all its rows are of attempts that no longer count (column current); run it again"


def _missing(counted: Sequence[Row], manifests: Manifests) -> Iterator[str]:
    for column in (RATIO, ITER_P50):
        without = [row for row in counted if not _numbers([row], column)]
        if without:
            is_there = manifests.has_column(column)
            why = "a run that printed too few timing lines has none" if is_there else "the manifest has no such column"
            yield f"no usable {column} in {', '.join(f'r{row.repeat}' for row in without)}: {why}"


def _beyond(figures: GroupCheck, thresholds: Thresholds) -> Iterator[str]:
    """A reason for each threshold that does not hold, with its flag."""
    if figures.num_repeats < thresholds.min_repeats:
        yield f"successful repeats: {figures.num_repeats}, at least {thresholds.min_repeats} are needed (--min-repeats)"
    limits = (
        ("median iter p90/p50", figures.ratio_median, thresholds.max_iter_ratio_median, "--max-iter-ratio-median"),
        ("largest iter p90/p50", figures.ratio_max, thresholds.max_iter_ratio_max, "--max-iter-ratio-max"),
        ("CV of iter p50", figures.iter_p50_cv, thresholds.max_iter_p50_cv, "--max-iter-p50-cv"),
        ("share without GPU telemetry", figures.telemetry_empty_ratio, thresholds.max_telemetry_empty_ratio, "--max-telemetry-empty-ratio"),
    )
    for what, value, most, name in limits:
        if value is not None and exceeds(value, most):
            yield f"{what} {shown(value)} is above {shown(most)} ({name})"
    if figures.num_repeats == 1:
        yield "a CV of iter p50 needs at least 2 repeats: one says nothing of the spread between them"
    if figures.num_repeats and figures.telemetry_empty_ratio is None and thresholds.max_telemetry_empty_ratio < NOT_ENFORCED:
        yield f"whether there was GPU telemetry is not told ({TELEMETRY_EMPTY} is empty), and --max-telemetry-empty-ratio asks for it"


def passed_over(manifests: Manifests, groups: Sequence[str]) -> Iterator[str]:
    """What of the manifests was read and not counted, and which were read besides the one that is written now."""
    for file in manifests.set_aside:
        yield f"{file.path.name}, which the driver set aside, {f'cannot be used: {file.problem}' if file.problem else 'was read first'}"
    if manifests.num_torn:
        yield f"{_counted(manifests.num_torn, 'torn row')} passed over"
    for group in groups:
        rows = _rows_of(group, manifests)
        counting = counting_rows(rows)
        denied = sum(row.says_success and not row.is_success for row in counting)
        if denied:
            yield f"{group}: {_counted(denied, 'row')} taken for failed, which said success beside an exit code that says otherwise"
        if len(rows) > len(counting):
            yield f"{group}: {_counted(len(rows) - len(counting), 'row')} passed over, of attempts that no longer count"
        older = sum(len(own) - 1 for own in by_run(counting).values() if _successful(own))
        if older:
            yield f"{group}: {_counted(older, 'other row')} passed over, of repeats that count by their newest success"


def _counted(num: int, what: str) -> str:
    return f"1 {what} was" if num == 1 else f"{num} {what}s were"


def shown(value: float | None) -> str:
    """Six digits at most; a dash for none."""
    return "-" if value is None else format_cell(float(f"{value:.6g}"))
