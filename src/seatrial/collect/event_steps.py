"""The step table from the probe's events.

In: an attempt. Out: `StepTables` with source `events`, or None where no rank wrote a valid step; cautions list what was skipped.

A rank's steps follow one another on one monotonic clock, and `iter_ms` is the time between two of them on that clock, less the pauses
in between. So a step whose number and clock disagree with its neighbours is dropped, and a time longer than what passed on the clock is
cleared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.collect.effective_settings import read_effective
from seatrial.collect.events import (
    LARGEST_FILE_BYTES,
    SkippedLines,
    rank_of_file,
    read_event_files,
    read_rank_locations,
    read_reported_figures,
    read_startup,
)
from seatrial.core.log_lines import LARGEST_STEP
from seatrial.core.paths import ATTEMPT_FILES, AttemptPaths
from seatrial.core.subsequence import longest_non_decreasing
from seatrial.core.text import count, count_were, format_bytes
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import Caution
from seatrial.records.events import PAUSE_TABLE_COLUMNS, PHASES, STEP_TABLE_COLUMNS
from seatrial.records.launch import NodesRecord

STEP_SCHEMA: dict[str, Any] = {name: pl.Int64 if name in ("rank", "step", "span") else pl.Float64 for name in STEP_TABLE_COLUMNS}
PAUSE_SCHEMA: dict[str, Any] = {"rank": pl.Int64, "step": pl.Int64, "name": pl.String, "pause_ms": pl.Float64}
OTHER_COLUMNS = ["kind", *PAUSE_TABLE_COLUMNS, "world_size"]
RANK, STEP, PAUSE_MS = (PAUSE_TABLE_COLUMNS.index(name) for name in ("rank", "step", "pause_ms"))
DURATION_SLACK = 1.05
DURATION_SLACK_MS = 1000.0
"""A step cannot take longer than the run, but they are timed by two clocks."""


def empty_steps() -> pl.DataFrame:
    return pl.DataFrame(schema=STEP_SCHEMA)


def empty_pauses() -> pl.DataFrame:
    return pl.DataFrame(schema=PAUSE_SCHEMA)


def steps_on_harness_clock(steps: pl.DataFrame, nodes: NodesRecord | None) -> pl.DataFrame:
    """The step table with `t` converted to the harness's clock. `m` stays: it is only compared within a rank."""
    skewed = [node for node in nodes.nodes if node.clock_offset_s] if nodes is not None else []
    if not skewed or steps.is_empty():
        return steps
    rank = steps["rank"].to_numpy()
    offset_s = np.zeros(len(rank))
    for node in skewed:
        offset_s[(rank >= node.first_rank) & (rank < node.first_rank + node.ranks)] = node.clock_offset_s
    return steps.with_columns(t=pl.col("t") - pl.Series(offset_s))


def read_event_steps(attempt: Attempt, ahead: Mapping[Path, pl.DataFrame] | None = None) -> tuple[StepTables | None, tuple[Caution, ...]]:
    """The tables of an attempt whose workload has the probe, None where there is no step in them, and cautions about its files."""
    paths = AttemptPaths(Path(attempt.folder))
    sources = paths.all_events()
    if not sources:
        return None, ()
    events, skipped = read_event_files(sources, attempt, ahead)
    is_step = events["kind"] == "step"
    written, unnumbered = _step_rows(events, is_step)
    # Few lines are not steps: everything else is looked up in these.
    is_other = ~is_step
    others = {name: events[name].filter(is_other).to_list() for name in OTHER_COLUMNS}
    sizes = [size for kind, size in zip(others["kind"], others["world_size"], strict=True) if kind == "start" and size and size > 0]
    world_size = _world_size(sizes, attempt.spec.place.ranks, written["rank"])
    longest_ms = _longest_ms(attempt)
    checked = check_steps(written, world_size, longest_ms, unnumbered)
    cautions = tuple(event_cautions(skipped, checked, sizes, world_size))
    if checked.steps.is_empty():
        return None, cautions
    steps = steps_on_harness_clock(checked.steps, attempt.nodes)
    num_effective = Counter(rank for kind, rank in zip(others["kind"], others["rank"], strict=True) if kind == "effective")
    of_the_run = [path for path in sources if 0 <= rank_of_file(path) < world_size]
    tables = StepTables(
        source="events",
        steps=steps,
        pauses=_pauses(others, longest_ms),
        world_size=world_size,
        effective=read_effective(of_the_run, attempt, num_effective),
        startup=read_startup(attempt, steps),
        locations=read_rank_locations(sources, attempt),
        reported=read_reported_figures(_files_with("figure", others, sources), attempt),
        cautions=cautions,
    )
    return tables, cautions


def _step_rows(events: pl.DataFrame, is_step: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """The step table as written, and the ranks of steps without a number."""
    # Column by column: filtering the whole table plans a query first, which takes ten times as long.
    columns = {name: events[name].filter(is_step) for name in STEP_TABLE_COLUMNS if name != "span"}
    spans = pl.Series("span", np.ones(len(columns["step"]), dtype=np.int64))
    steps = pl.DataFrame([spans if name == "span" else columns[name] for name in STEP_TABLE_COLUMNS])
    if not columns["step"].null_count():
        return steps, pl.Series(dtype=pl.Int64)
    without = columns["step"].is_null()
    return steps.filter(~without), steps["rank"].filter(without)


def _files_with(kind: str, others: dict[str, list[Any]], sources: Sequence[Path]) -> list[Path]:
    ranks = {rank for found, rank in zip(others["kind"], others["rank"], strict=True) if found == kind}
    return [path for path in sources if rank_of_file(path) in ranks] if ranks else []


def _world_size(sizes: Sequence[int], requested: int, ranks: pl.Series) -> int:
    """The size that most ranks report; on a tie the plan's, else the lowest. Without any report, what the files show."""
    if not sizes:
        return max(requested, len(ranks.unique()))
    votes = Counter(sizes)
    return min(votes, key=lambda size: (-votes[size], size != requested, size))


def _longest_ms(attempt: Attempt) -> float:
    if attempt.outcome is None or attempt.outcome.duration_s <= 0:
        return math.inf
    return attempt.outcome.duration_s * 1000 * DURATION_SLACK + DURATION_SLACK_MS


def _pauses(others: dict[str, list[Any]], longest_ms: float) -> pl.DataFrame:
    columns = [others[name] for name in ("kind", *PAUSE_TABLE_COLUMNS)]
    rows = [row for kind, *row in zip(*columns, strict=True) if kind == "pause" and row[STEP] is not None]
    if not rows:
        return empty_pauses()
    for row in rows:
        # The pause is known, its length is not.
        row[PAUSE_MS] = row[PAUSE_MS] if row[PAUSE_MS] is not None and 0 <= row[PAUSE_MS] <= longest_ms else None
    rows.sort(key=lambda row: (row[RANK], row[STEP]))
    return pl.DataFrame(rows, schema=PAUSE_SCHEMA, orient="row")


CLOCK_SLACK_MS = 1000.0
"""A step's time and its clock agree to microseconds; this much apart, one of them is wrong."""
MAX_WORK = 1e12
"""Largest number of samples or tokens in one step."""
WORK = ("samples", "tokens")
Counts = dict[int, int]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class CheckedSteps:
    """Valid steps by rank and step, each once; counts of what was dropped or cleared are by rank."""

    steps: pl.DataFrame
    foreign_ranks: Counts = field(default_factory=dict)
    """Steps of ranks outside the run."""
    duplicates: Counts = field(default_factory=dict)
    unordered: Counts = field(default_factory=dict)
    """Steps written after a later one, each once."""
    misplaced: Counts = field(default_factory=dict)
    """Steps whose number is out of range or contradicts the clock."""
    bad_times: Counts = field(default_factory=dict)
    bad_values: Counts = field(default_factory=dict)
    """Phases, samples and tokens out of range."""


def check_steps(written: pl.DataFrame, world_size: int, longest_ms: float, unnumbered: pl.Series) -> CheckedSteps:
    """The valid steps of a table. `longest_ms`: upper bound for a step of this run; `unnumbered`: ranks of steps without a number."""
    own, foreign_ranks = _split(written, (written["rank"].to_numpy() >= 0) & (written["rank"].to_numpy() < world_size))
    number = own["step"].to_numpy()
    in_range, out_of_range = _split(own, (number >= 0) & (number <= LARGEST_STEP))
    once, duplicates, unordered = _without_duplicates(in_range)
    placed, misplaced = _split(once, _is_in_place(once))
    timed, bad_times = _clear_bad_times(placed, longest_ms)
    valid, bad_values = _clear_bad_values(timed, longest_ms)
    return CheckedSteps(
        steps=valid,
        foreign_ranks=foreign_ranks,
        duplicates=duplicates,
        unordered=unordered,
        misplaced=_sum((out_of_range, misplaced, dict(Counter(unnumbered.to_list())))),
        bad_times=bad_times,
        bad_values=bad_values,
    )


def _split(table: pl.DataFrame, kept: Mask) -> tuple[pl.DataFrame, Counts]:
    """Rows to keep, and how many rows of each rank are dropped. A valid table is not copied."""
    return (table, {}) if kept.all() else (table.filter(kept), _by_rank(table, ~kept))


def _by_rank(table: pl.DataFrame, odd: Mask) -> Counts:
    ranks, counts = np.unique(table["rank"].to_numpy()[odd], return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))


def _sum(parts: Iterable[Counts]) -> Counts:
    total: Counts = {}
    for part in parts:
        for rank, number in part.items():
            total[rank] = total.get(rank, 0) + number
    return total


def _without_duplicates(table: pl.DataFrame) -> tuple[pl.DataFrame, Counts, Counts]:
    """The table by rank and step. A step written twice (flushed again after an error) counts once, as first written."""
    rank, step = np.diff(table["rank"].to_numpy()), np.diff(table["step"].to_numpy())
    if bool(((rank > 0) | ((rank == 0) & (step > 0))).all()):
        return table, {}, {}
    once, duplicates = _split(table, table.select(pl.struct("rank", "step").is_first_distinct()).to_series().to_numpy())
    goes_back = np.concatenate([[False], (rank == 0) & (step < 0)])
    unordered = {one: number for one, number in _by_rank(table, goes_back).items() if one not in duplicates}
    return once.sort("rank", "step"), duplicates, unordered


def _is_in_place(table: pl.DataFrame) -> Mask:
    """Which rows lie between their neighbours on the monotonic clock of their rank."""
    rank, m = table["rank"].to_numpy(), table["m"].to_numpy()
    kept = np.ones(len(table), dtype=np.bool_)
    goes_back = (np.diff(rank) == 0) & (np.diff(m) < 0)
    # NaN hides its neighbours from the comparison.
    known = np.isfinite(m)
    if not goes_back.any() and known.all():
        return kept
    for one in np.unique(rank):
        rows = np.flatnonzero((rank == one) & known)
        kept[rows] = False
        kept[rows[longest_non_decreasing(m[rows].tolist())]] = True
    return kept


def _clear_bad_times(table: pl.DataFrame, longest_ms: float) -> tuple[pl.DataFrame, Counts]:
    """Null for a time that is out of range or longer than what passed on the clock, and for clocks out of range."""
    rank, step, m, iter_ms = (table[name].to_numpy() for name in ("rank", "step", "m", "iter_ms"))
    same_rank = np.concatenate([[False], np.diff(rank) == 0])[: len(rank)]
    passed_ms = np.concatenate([[0.0], np.diff(m) * 1000])[: len(rank)]
    has_time = table["iter_ms"].is_not_null().to_numpy() if table["iter_ms"].null_count() else np.ones(len(table), dtype=np.bool_)
    follows = same_rank & np.concatenate([[False], np.diff(step) == 1])[: len(rank)]
    # Less than what passed is consistent: a pause in between is not part of the step.
    bad_time = has_time & (~((iter_ms >= 0) & (iter_ms <= longest_ms)) | (follows & (iter_ms > passed_ms + CLOCK_SLACK_MS)))
    bad_clock = _from_first_jump(rank, same_rank & (passed_ms > longest_ms)) | np.isinf(m) | np.isinf(table["t"].to_numpy())
    bad = bad_time | bad_clock
    if not bad.any():
        return table, {}
    time, clock = pl.Series(bad_time), pl.Series(bad_clock)
    changed = table.with_columns(
        iter_ms=pl.when(time).then(None).otherwise(pl.col("iter_ms")),
        m=pl.when(clock).then(None).otherwise(pl.col("m")),
        t=pl.when(clock).then(None).otherwise(pl.col("t")),
    )
    return changed, _by_rank(table, bad)


def _from_first_jump(rank: npt.NDArray[np.int64], jumps: Mask) -> Mask:
    """Rows of a rank from its first jump on: a clock that left the run's time does not come back."""
    if not jumps.any():
        return jumps
    before = np.cumsum(jumps)
    first = np.searchsorted(rank, rank, side="left")
    return np.asarray(before > np.where(first > 0, before[first - 1], 0))


def _clear_bad_values(table: pl.DataFrame, longest_ms: float) -> tuple[pl.DataFrame, Counts]:
    """Null for a phase or an amount of work out of range."""
    columns, counts = {}, []
    for name in (*PHASES, *WORK):
        values = table[name].to_numpy()
        # An empty cell is NaN here, and a NaN that was written is as good as empty.
        bad = (values < 0) | (values > (MAX_WORK if name in WORK else longest_ms))
        if bad.any():
            columns[name] = pl.Series(name, np.where(bad, np.nan, values)).fill_nan(None)
            counts.append(_by_rank(table, bad))
    return (table.with_columns(**columns) if columns else table), _sum(counts)


NAMED_FILES = 3
"""Files named in a sentence; of more, only their number is given."""
ONLY_THIS_RUN = "check that nothing but this run writes into its folder"
CHECK_WRITER = "check what writes these events"


def event_cautions(skipped: Sequence[SkippedLines], checked: CheckedSteps, sizes: Sequence[int], world_size: int) -> Iterator[Caution]:
    """What was not used of each file and each rank's steps, why, and the remedy."""
    yield from _file_cautions(skipped)
    for kind, counts, unit, why in (
        ("other_ranks", checked.foreign_ranks, "step", f"skipped, as the run has {count(world_size, 'rank')}; {ONLY_THIS_RUN}"),
        (
            "duplicate_steps",
            checked.duplicates,
            "step",
            "written more than once, and only the first of each counts; use one probe for the whole script, and do not restart the script "
            "within a run",
        ),
        (
            "lines_out_of_order",
            checked.unordered,
            "step",
            "out of order and were sorted; details of the rank's start-up may be lost. Check what rewrote the file",
        ),
        (
            "steps_out_of_place",
            checked.misplaced,
            "step",
            f"skipped, as the step number is out of range or contradicts the clock; {CHECK_WRITER}",
        ),
        (
            "bad_times",
            checked.bad_times,
            "step",
            f"left without a time: the one written is negative, no number, longer than the run, or contradicts the clock; {CHECK_WRITER}",
        ),
        ("bad_values", checked.bad_values, "value", "skipped: phases, samples or tokens that are negative or too large"),
    ):
        if counts:
            files = name_files([ATTEMPT_FILES.events(rank).name for rank in counts])
            total = sum(counts.values())
            yield Caution(kind=kind, numbers={f"{unit}s": total}, text=f"In {files} {count_were(total, unit)} {why}.")
    if len(set(sizes)) > 1:
        reported = ", ".join(str(size) for size in sorted(set(sizes))[:4])
        yield Caution(
            kind="other_world_size",
            numbers={"taken": world_size},
            text=f"The start events report different numbers of ranks ({reported}); {world_size} is used; {ONLY_THIS_RUN}.",
        )


def _file_cautions(skipped: Sequence[SkippedLines]) -> Iterator[Caution]:
    for one in skipped:
        if one.problem:
            text = f"{one.file} holds nothing readable ({one.problem}), so the steps of that rank are unknown."
            yield Caution(kind="unreadable_file", text=text)
    cut = {one.file: one.left_out_bytes for one in skipped if one.left_out_bytes}
    if cut:
        yield Caution(
            kind="large_events",
            numbers={"left_out_bytes": sum(cut.values())},
            text=f"Of {name_files(list(cut))} only the first {format_bytes(LARGEST_FILE_BYTES)} were read: figures are of those steps.",
        )
    truncated = [one.file for one in skipped if one.is_truncated]
    if truncated:
        yield Caution(
            kind="torn_line",
            numbers={"files": len(truncated)},
            text=f"Truncated in the middle of a line: {name_files(truncated)}, as after a kill or on a full disk.",
        )
    foreign = {one.file: one.foreign for one in skipped if one.foreign}
    if foreign:
        yield Caution(
            kind="foreign_lines",
            numbers={"lines": sum(foreign.values())},
            text=f"In {name_files(list(foreign))} {count_were(sum(foreign.values()), 'line')} skipped: of another run, attempt or rank, or "
            "no event at all; check that nothing but the probe writes into the run's folder.",
        )


def name_files(names: Sequence[str]) -> str:
    """'events_rank0.jsonl and events_rank1.jsonl', 'events_rank0.jsonl and 12 other files'."""
    if len(names) <= NAMED_FILES:
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{names[0]} and {len(names) - 1} other files"
