"""Events of one attempt as tables.

In: events_rank*.jsonl, one JSON object a line. Out: `StepTables` with source `events`, or None where no rank wrote a step; what was
passed over or cannot be is counted in its cautions.

Clean files go through polars in one pass with a fixed schema. Where it refuses one (a torn last line after a kill, a stray line
of another program, a loss that is not finite and so is written as a word), files are taken one by one and that one is read line
by line; both readers give equal tables where both can read.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.collect.effective import read_effective
from seatrial.collect.event_cautions import event_cautions
from seatrial.collect.startup import read_startup
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.events import PAUSE_TABLE_COLUMNS, STEP_TABLE_COLUMNS
from seatrial.records.steps import StepTables

TEXT_COLUMNS = ("run", "kind", "name")
WHOLE_COLUMNS = ("attempt", "rank", "step", "world_size")
# A thousand ranks' files together would be text of a gigabyte.
FILES_AT_ONCE = 64
# Loss may be a word (nan, inf) where JSON has no number for it.
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
SCHEMA: dict[str, Any] = {
    **dict.fromkeys(TEXT_COLUMNS, pl.String),
    **dict.fromkeys(WHOLE_COLUMNS, pl.Int64),
    **dict.fromkeys([name for name in STEP_TABLE_COLUMNS if name not in ("rank", "step", "span")], pl.Float64),
    "pause_ms": pl.Float64,
}
KEPT = [name for name in SCHEMA if name not in ("run", "attempt")]
OF_OTHERS = ["kind", *PAUSE_TABLE_COLUMNS, "world_size"]
STEP_SCHEMA: dict[str, Any] = {name: pl.Int64 if name in ("rank", "step", "span") else pl.Float64 for name in STEP_TABLE_COLUMNS}
RANK, STEP = PAUSE_TABLE_COLUMNS.index("rank"), PAUSE_TABLE_COLUMNS.index("step")
PAUSE_SCHEMA: dict[str, Any] = {"rank": pl.Int64, "step": pl.Int64, "name": pl.String, "pause_ms": pl.Float64}


def read_events(attempt: Attempt) -> StepTables | None:
    """The tables of an attempt whose workload has the probe; None when there is no step in them."""
    paths = AttemptPaths(Path(attempt.folder))
    sources = paths.all_events()
    if not sources:
        return None
    events, foreign = read_files(sources, attempt)
    written = _written(events)
    if written.is_empty():
        return None
    steps, bad_times = _possible_times(_each_once(written))
    # Few lines are not steps: everything else is asked of this small rest.
    is_other = events["kind"] != "step"
    others = {name: events[name].filter(is_other).to_list() for name in OF_OTHERS}
    # Where every line is of this attempt, the table knows whether one of them is worth another look at the text.
    may_be_effective = foreign > 0 or "effective" in others["kind"]
    return StepTables(
        source="events",
        steps=steps,
        pauses=_pauses(others),
        world_size=max((size for size in others["world_size"] if size), default=attempt.spec.place.ranks),
        effective=read_effective(paths.events(0)) if may_be_effective else {},
        startup=read_startup(attempt, steps),
        cautions=tuple(event_cautions(attempt.spec.run, foreign=foreign, duplicates=len(written) - len(steps), bad_times=bad_times)),
    )


def _written(events: pl.DataFrame) -> pl.DataFrame:
    """The step table as written."""
    is_step = events["kind"] == "step"
    # Column by column: a filter of the whole table is planned as a query first, which takes ten times as long as the filter.
    columns = {name: events[name].filter(is_step) for name in STEP_TABLE_COLUMNS if name != "span"}
    spans = pl.Series("span", np.ones(len(columns["step"]), dtype=np.int64))
    steps = pl.DataFrame([spans if name == "span" else columns[name] for name in STEP_TABLE_COLUMNS])
    return steps.drop_nulls("step") if columns["step"].null_count() else steps


def _pauses(others: dict[str, list[Any]]) -> pl.DataFrame:
    """The pause table, of the events that are no steps."""
    columns = [others[name] for name in ("kind", *PAUSE_TABLE_COLUMNS)]
    rows = [row for kind, *row in zip(*columns, strict=True) if kind == "pause" and row[STEP] is not None]
    if not rows:
        return empty_pauses()
    rows.sort(key=lambda row: (row[RANK], row[STEP]))
    return pl.DataFrame(rows, schema=PAUSE_SCHEMA, orient="row")


def _each_once(table: pl.DataFrame) -> pl.DataFrame:
    """In order. A step written twice (flushed again after an error) counts once, as first written."""
    if _in_order(table):
        return table
    return table.unique(["rank", "step"], keep="first", maintain_order=True).sort("rank", "step")


def _possible_times(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The table with null for a time that no step can take, and how many there were."""
    if _all_times(table["iter_ms"].to_numpy()):
        return table, 0
    is_bad = (~(pl.col("iter_ms").is_finite() & (pl.col("iter_ms") >= 0))).fill_null(value=False)
    bad = table.select(is_bad.sum()).item()
    return (table.with_columns(iter_ms=pl.when(is_bad).then(None).otherwise(pl.col("iter_ms"))) if bad else table), bad


def _all_times(values: npt.NDArray[np.float64]) -> bool:
    """Whether every value is a time that a step can take, as it is in a clean run."""
    return bool(((values >= 0) & (values < np.inf)).all())


def _in_order(table: pl.DataFrame) -> bool:
    """Whether rows already go by rank and then step, each once: as a clean run's do."""
    rank, step = np.diff(table["rank"].to_numpy()), np.diff(table["step"].to_numpy())
    return bool(((rank > 0) | ((rank == 0) & (step > 0))).all())


def empty_steps() -> pl.DataFrame:
    """A step table without rows."""
    return pl.DataFrame(schema=STEP_SCHEMA)


def empty_pauses() -> pl.DataFrame:
    """A pause table without rows."""
    return pl.DataFrame(schema=PAUSE_SCHEMA)


def read_files(paths: Sequence[Path], attempt: Attempt) -> tuple[pl.DataFrame, int]:
    """Events of this run and attempt in all files, and how many lines are not such: a copied folder or a stray process must not mix in."""
    parts, foreign = [], 0
    for at in range(0, len(paths), FILES_AT_ONCE):
        for table in _read_some(list(paths[at : at + FILES_AT_ONCE])):
            mine = _mine(table, attempt)
            foreign += len(table) - len(mine)
            # A tenth of what `select` takes, which plans a query first.
            parts.append(mine[KEPT])
    return (pl.concat(parts) if len(parts) > 1 else parts[0]), foreign


def _read_some(paths: list[Path]) -> list[pl.DataFrame]:
    try:
        return [pl.scan_ndjson(paths, schema=SCHEMA).collect() if len(paths) > 1 else pl.read_ndjson(paths[0], schema=SCHEMA)]
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        return [read_file(path) for path in paths]


def _mine(table: pl.DataFrame, attempt: Attempt) -> pl.DataFrame:
    mine = (table["run"] == attempt.spec.run) & (table["attempt"] == attempt.number)
    if table["rank"].null_count():
        mine &= table["rank"].is_not_null()
    return table if mine.all(ignore_nulls=False) else table.filter(mine)


def read_file(path: Path) -> pl.DataFrame:
    """All events of one file, as SCHEMA."""
    try:
        return pl.read_ndjson(path, schema=SCHEMA)
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        return read_file_by_line(path)


def read_file_by_line(path: Path) -> pl.DataFrame:
    """The same table, line by line: what a line lacks is null, and a line that is not an event lacks everything."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA}
    for event in _objects(path):
        for name, column in columns.items():
            column.append(_value(name, event.get(name)))
    return pl.DataFrame(columns, schema=SCHEMA)


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    """One object for each line that is not blank, {} for rubbish; a last line torn by a kill is nothing."""
    with open(path, encoding="utf-8", errors="replace") as source:
        for line in source:
            event = _object(line)
            if event is not None:
                yield event
            elif line.endswith("\n") and not line.isspace():
                yield {}


def _object(line: str) -> dict[str, Any] | None:
    with contextlib.suppress(json.JSONDecodeError, RecursionError):
        value = json.loads(line, object_pairs_hook=_first_of_each)
        return value if isinstance(value, dict) else None
    return None


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A name given twice counts as first given, as it does for polars."""
    return dict(reversed(pairs))


def _value(name: str, value: Any) -> Any:
    if name in TEXT_COLUMNS:
        # A whole number under a text's name is read as its digits, as polars does.
        return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
    if isinstance(value, str):
        value = NOT_FINITE.get(value.lower())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if name in WHOLE_COLUMNS:
        # Beyond 64 bits it is rubbish, not a step.
        return int(value) if math.isfinite(value) and int(value) == value and abs(value) < 2**63 else None
    return float(value)
