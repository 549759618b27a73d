"""Events of one attempt as tables.

In: events_rank*.jsonl, one JSON object a line. Out: `StepTables` with source `events`, or None where no rank wrote a step that can be;
what was passed over or cannot be is said in cautions. How files are read: files.py; what is believed: checks.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from seatrial.collect.events.cautions import event_cautions
from seatrial.collect.events.checks import check_steps
from seatrial.collect.events.effective import read_effective
from seatrial.collect.events.files import rank_in_name, read_event_files
from seatrial.collect.events.places import read_places
from seatrial.collect.events.reported import read_reported
from seatrial.collect.events.startup import read_startup
from seatrial.collect.hosts.one_clock import steps_on_one_clock
from seatrial.collect.step_schema import PAUSE_SCHEMA, empty_pauses
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.events import PAUSE_TABLE_COLUMNS, STEP_TABLE_COLUMNS
from seatrial.records.steps import StepTables

OF_OTHERS = ["kind", *PAUSE_TABLE_COLUMNS, "world_size"]
RANK, STEP, PAUSE_MS = (PAUSE_TABLE_COLUMNS.index(name) for name in ("rank", "step", "pause_ms"))
DURATION_SLACK = 1.05
DURATION_SLACK_MS = 1000.0
"""A step cannot take longer than the run, as two clocks tell it."""


def read_events(attempt: Attempt, ahead: Mapping[Path, pl.DataFrame] | None = None) -> tuple[StepTables | None, tuple[Caution, ...]]:
    """The tables of an attempt whose workload has the probe, None when there is no step in them, and what is to be said of its files."""
    paths = AttemptPaths(Path(attempt.folder))
    sources = paths.all_events()
    if not sources:
        return None, ()
    events, passed = read_event_files(sources, attempt, ahead)
    is_step = events["kind"] == "step"
    written, unnumbered = _written(events, is_step)
    # Few lines are not steps: everything else is asked of this small rest.
    is_other = ~is_step
    others = {name: events[name].filter(is_other).to_list() for name in OF_OTHERS}
    sizes = [size for kind, size in zip(others["kind"], others["world_size"], strict=True) if kind == "start" and size and size > 0]
    world_size = _world_size(sizes, attempt.spec.place.ranks, written["rank"])
    longest_ms = _longest_ms(attempt)
    checked = check_steps(written, world_size, longest_ms, unnumbered)
    steps = steps_on_one_clock(checked.steps, attempt.nodes)
    cautions = tuple(event_cautions(attempt.spec.run, passed, checked, sizes, world_size))
    if checked.steps.is_empty():
        return None, cautions
    # Where every line is of this attempt, the table knows whether one of them is worth another look at the text.
    may_be_effective = bool(passed) or "effective" in others["kind"]
    tables = StepTables(
        source="events",
        steps=steps,
        pauses=_pauses(others, longest_ms),
        world_size=world_size,
        effective=read_effective(paths.events(0), attempt) if may_be_effective else {},
        startup=read_startup(attempt, steps),
        places=read_places(sources, attempt),
        reported=read_reported(_that_tell("figure", others, sources), attempt),
        cautions=cautions,
    )
    return tables, cautions


def _written(events: pl.DataFrame, is_step: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """The step table as written, and the ranks of steps without a number."""
    # Column by column: a filter of the whole table is planned as a query first, which takes ten times as long as the filter.
    columns = {name: events[name].filter(is_step) for name in STEP_TABLE_COLUMNS if name != "span"}
    spans = pl.Series("span", np.ones(len(columns["step"]), dtype=np.int64))
    steps = pl.DataFrame([spans if name == "span" else columns[name] for name in STEP_TABLE_COLUMNS])
    if not columns["step"].null_count():
        return steps, pl.Series(dtype=pl.Int64)
    without = columns["step"].is_null()
    return steps.filter(~without), steps["rank"].filter(without)


def _that_tell(kind: str, others: dict[str, list[Any]], sources: Sequence[Path]) -> list[Path]:
    """Files of the ranks that wrote an event of this kind."""
    ranks = {rank for found, rank in zip(others["kind"], others["rank"], strict=True) if found == kind}
    return [path for path in sources if rank_in_name(path) in ranks] if ranks else []


def _world_size(sizes: Sequence[int], asked: int, ranks: pl.Series) -> int:
    """As most ranks tell it; of equally many, what the plan asks for, else the lowest. Where none tells it, what the files show."""
    if not sizes:
        return max(asked, len(ranks.unique()))
    told = Counter(sizes)
    return min(told, key=lambda size: (-told[size], size != asked, size))


def _longest_ms(attempt: Attempt) -> float:
    if attempt.outcome is None or attempt.outcome.duration_s <= 0:
        return math.inf
    return attempt.outcome.duration_s * 1000 * DURATION_SLACK + DURATION_SLACK_MS


def _pauses(others: dict[str, list[Any]], longest_ms: float) -> pl.DataFrame:
    """The pause table, of the events that are no steps."""
    columns = [others[name] for name in ("kind", *PAUSE_TABLE_COLUMNS)]
    rows = [row for kind, *row in zip(*columns, strict=True) if kind == "pause" and row[STEP] is not None]
    if not rows:
        return empty_pauses()
    for row in rows:
        # How long it was is then not known; that there was one is.
        row[PAUSE_MS] = row[PAUSE_MS] if row[PAUSE_MS] is not None and 0 <= row[PAUSE_MS] <= longest_ms else None
    rows.sort(key=lambda row: (row[RANK], row[STEP]))
    return pl.DataFrame(rows, schema=PAUSE_SCHEMA, orient="row")
