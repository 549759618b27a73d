"""Which written steps can be.

In: the step table as written, the number of ranks, and the longest that a step of this run can have taken. Out: `Checked`: the table by
rank and step, each step once, and how many of each rank's steps or values were not taken, and why.

A rank's steps are taken one after another on one monotonic clock, and `iter_ms` is the time between two of them on that very clock, less
the pauses in between. So a step whose number and clock disagree with the others' is a lie or damage, and a time longer than what passed
on the clock is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.collect.growing import longest_growing
from seatrial.log_lines import LARGEST_STEP
from seatrial.records.events import PHASES

CLOCK_SLACK_MS = 1000.0
"""A time and the clock beside it agree to microseconds; this much apart, one of them is wrong."""
MOST_WORK = 1e12
"""Samples or tokens of one step."""
WORK = ("samples", "tokens")
Counts = dict[int, int]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Steps that can be; counts are by rank."""

    steps: pl.DataFrame
    beyond: Counts = field(default_factory=dict)
    """Steps of ranks that the run does not have."""
    duplicates: Counts = field(default_factory=dict)
    unordered: Counts = field(default_factory=dict)
    """Steps that stand behind a later one, though each is written once."""
    misplaced: Counts = field(default_factory=dict)
    """Steps whose number cannot be, or contradicts the clock."""
    bad_times: Counts = field(default_factory=dict)
    bad_values: Counts = field(default_factory=dict)
    """Phases, samples and tokens that cannot be."""


def check_steps(written: pl.DataFrame, world_size: int, longest_ms: float, unnumbered: pl.Series) -> Checked:
    """The table as it can be believed; `unnumbered` are the ranks of steps that have no number at all."""
    own, beyond = _split(written, (written["rank"].to_numpy() >= 0) & (written["rank"].to_numpy() < world_size))
    number = own["step"].to_numpy()
    possible, impossible = _split(own, (number >= 0) & (number <= LARGEST_STEP))
    once, duplicates, unordered = _each_once(possible)
    placed, misplaced = _split(once, _in_place(once))
    timed, bad_times = _possible_times(placed, longest_ms)
    sound, bad_values = _possible_values(timed, longest_ms)
    return Checked(
        steps=sound,
        beyond=beyond,
        duplicates=duplicates,
        unordered=unordered,
        misplaced=_sum((impossible, misplaced, dict(Counter(unnumbered.to_list())))),
        bad_times=bad_times,
        bad_values=bad_values,
    )


def _split(table: pl.DataFrame, kept: Mask) -> tuple[pl.DataFrame, Counts]:
    """Rows to keep, and how many of each rank are not. A clean table is not copied."""
    return (table, {}) if kept.all() else (table.filter(kept), _by_rank(table, ~kept))


def _by_rank(table: pl.DataFrame, odd: Mask) -> Counts:
    ranks, counts = np.unique(table["rank"].to_numpy()[odd], return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))


def _sum(parts: Iterable[Counts]) -> Counts:
    total: Counts = {}
    for part in parts:
        for rank, count in part.items():
            total[rank] = total.get(rank, 0) + count
    return total


def _each_once(table: pl.DataFrame) -> tuple[pl.DataFrame, Counts, Counts]:
    """By rank and step. A step written twice (flushed again after an error) counts once, as first written."""
    rank, step = np.diff(table["rank"].to_numpy()), np.diff(table["step"].to_numpy())
    if bool(((rank > 0) | ((rank == 0) & (step > 0))).all()):
        return table, {}, {}
    once, duplicates = _split(table, table.select(pl.struct("rank", "step").is_first_distinct()).to_series().to_numpy())
    goes_back = np.concatenate([[False], (rank == 0) & (step < 0)])
    unordered = {one: count for one, count in _by_rank(table, goes_back).items() if one not in duplicates}
    return once.sort("rank", "step"), duplicates, unordered


def _in_place(table: pl.DataFrame) -> Mask:
    """Which rows lie between those before and after them on the monotonic clock of their rank."""
    rank, m = table["rank"].to_numpy(), table["m"].to_numpy()
    kept = np.ones(len(table), dtype=np.bool_)
    goes_back = (np.diff(rank) == 0) & (np.diff(m) < 0)
    # NaN hides what lies on both of its sides.
    known = np.isfinite(m)
    if not goes_back.any() and known.all():
        return kept
    for one in np.unique(rank):
        rows = np.flatnonzero((rank == one) & known)
        kept[rows] = False
        kept[rows[longest_growing(m[rows].tolist())]] = True
    return kept


def _possible_times(table: pl.DataFrame, longest_ms: float) -> tuple[pl.DataFrame, Counts]:
    """Null for a time that no step can take, or that is longer than what passed on the clock; and for clocks that cannot be."""
    rank, step, m, iter_ms = (table[name].to_numpy() for name in ("rank", "step", "m", "iter_ms"))
    same_rank = np.concatenate([[False], np.diff(rank) == 0])[: len(rank)]
    passed_ms = np.concatenate([[0.0], np.diff(m) * 1000])[: len(rank)]
    told = table["iter_ms"].is_not_null().to_numpy() if table["iter_ms"].null_count() else np.ones(len(table), dtype=np.bool_)
    follows = same_rank & np.concatenate([[False], np.diff(step) == 1])[: len(rank)]
    # Less than what passed is no contradiction: a pause in between is no part of the step.
    cannot_be = told & (~((iter_ms >= 0) & (iter_ms <= longest_ms)) | (follows & (iter_ms > passed_ms + CLOCK_SLACK_MS)))
    no_clock = _behind(rank, same_rank & (passed_ms > longest_ms)) | np.isinf(m) | np.isinf(table["t"].to_numpy())
    odd = cannot_be | no_clock
    if not odd.any():
        return table, {}
    time, clock = pl.Series(cannot_be), pl.Series(no_clock)
    changed = table.with_columns(
        iter_ms=pl.when(time).then(None).otherwise(pl.col("iter_ms")),
        m=pl.when(clock).then(None).otherwise(pl.col("m")),
        t=pl.when(clock).then(None).otherwise(pl.col("t")),
    )
    return changed, _by_rank(table, odd)


def _behind(rank: npt.NDArray[np.int64], jumps: Mask) -> Mask:
    """Rows of a rank from its first jump on: a clock that left the run's time does not come back."""
    if not jumps.any():
        return jumps
    before = np.cumsum(jumps)
    first = np.searchsorted(rank, rank, side="left")
    return np.asarray(before > np.where(first > 0, before[first - 1], 0))


def _possible_values(table: pl.DataFrame, longest_ms: float) -> tuple[pl.DataFrame, Counts]:
    """Null for a phase or an amount of work that cannot be."""
    columns, counts = {}, []
    for name in (*PHASES, *WORK):
        values = table[name].to_numpy()
        # An empty cell is NaN here, and a NaN that was written is as good as empty.
        odd = (values < 0) | (values > (MOST_WORK if name in WORK else longest_ms))
        if odd.any():
            columns[name] = pl.Series(name, np.where(odd, np.nan, values)).fill_nan(None)
            counts.append(_by_rank(table, odd))
    return (table.with_columns(**columns) if columns else table), _sum(counts)
