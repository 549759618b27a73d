"""Event files as one table, whatever stands in them.

In: events_rank*.jsonl, one JSON object a line. Out: the events of this run, attempt and rank, and for each file what was passed over.

Clean files go through polars together, in one pass with a fixed schema. Where anything is odd (a line that polars refuses, of another
run, or of another rank than the file's), every file is read by itself, in blocks, so that memory stays bounded; a block that polars
refuses is read line by line. Both ways give equal tables where both can read.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from seatrial.collect.events.line import event_in
from seatrial.collect.file_parts import LONGEST_LINE_BYTES, blocks
from seatrial.files import open_file
from seatrial.records.attempt import Attempt
from seatrial.records.events import STEP_TABLE_COLUMNS
from seatrial.units import MIB

TEXT_COLUMNS = ("run", "kind", "name")
WHOLE_COLUMNS = ("attempt", "rank", "step", "world_size")
SCHEMA: dict[str, Any] = {
    **dict.fromkeys(TEXT_COLUMNS, pl.String),
    **dict.fromkeys(WHOLE_COLUMNS, pl.Int64),
    **dict.fromkeys([name for name in STEP_TABLE_COLUMNS if name not in ("rank", "step", "span")], pl.Float64),
    "pause_ms": pl.Float64,
}
KEPT = [name for name in SCHEMA if name not in ("run", "attempt")]
# A thousand ranks' files together would be text of a gigabyte.
FILES_AT_ONCE = 64
BLOCK_BYTES = 32 * MIB
LARGEST_FILE_BYTES = 512 * MIB
"""Two million steps of one rank. What stands beyond is not read, and that is said."""
# Loss may be a word (nan, inf) where JSON has no number for it.
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
REFUSED = (pl.exceptions.PolarsError, UnicodeDecodeError)


@dataclass(frozen=True, kw_only=True)
class Passed:
    """What of one file was not taken."""

    file: str
    foreign: int = 0
    """Lines of another run, attempt or rank, and lines that are no event at all."""
    torn: bool = False
    """Whether it ends in the middle of a line."""
    left_out_bytes: int = 0
    """Beyond LARGEST_FILE_BYTES."""
    problem: str = ""
    """Why nothing of it could be read."""

    @property
    def is_nothing(self) -> bool:
        return not (self.foreign or self.torn or self.left_out_bytes or self.problem)


def read_event_files(
    paths: Sequence[Path], attempt: Attempt, ahead: Mapping[Path, pl.DataFrame] | None = None
) -> tuple[pl.DataFrame, tuple[Passed, ...]]:
    """Events of this run and attempt in all files: a copied folder, a stray process or a damaged line must not mix in. `ahead` are
    tables of files that have been read already."""
    clean = _read_clean(paths, attempt, ahead or {})
    if clean is not None:
        return clean, ()
    tables, passed = [], []
    for path in paths:
        table, left = read_own_events(path, attempt)
        tables.append(table)
        passed.append(left)
    return pl.concat(tables), tuple(one for one in passed if not one.is_nothing)


def _read_clean(paths: Sequence[Path], attempt: Attempt, ahead: Mapping[Path, pl.DataFrame]) -> pl.DataFrame | None:
    """All files in one pass; None where one of them is not as the probe writes it."""
    known = ahead.get(paths[0]) if len(paths) == 1 else None
    if known is None and not all(map(_is_ordinary, paths)):
        return None
    parts = []
    for at in range(0, len(paths), FILES_AT_ONCE):
        table = _read_some(paths[at : at + FILES_AT_ONCE]) if known is None else known
        if table is None or not _all_mine(table, attempt) or not _in_order(table, paths):
            return None
        parts.append(table)
    # By names in brackets: a tenth of what `select` takes, which plans a query first.
    return pl.concat([part[KEPT] for part in parts]) if len(parts) > 1 else parts[0]


def _is_ordinary(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and 0 < found.st_size <= LARGEST_FILE_BYTES


def _read_some(paths: Sequence[Path]) -> pl.DataFrame | None:
    try:
        return pl.scan_ndjson(list(paths), schema=SCHEMA).collect() if len(paths) > 1 else pl.read_ndjson(paths[0], schema=SCHEMA)
    except (*REFUSED, OSError):
        return None


def _all_mine(table: pl.DataFrame, attempt: Attempt) -> bool:
    if table["rank"].null_count():
        return False
    return bool(((table["run"] == attempt.spec.run) & (table["attempt"] == attempt.number)).all(ignore_nulls=False))


def _in_order(table: pl.DataFrame, paths: Sequence[Path]) -> bool:
    """Whether lines go by rank, of ranks that the files are of, and steps by number: a line of one rank in another's file does not."""
    is_step = table["kind"] == "step"
    by_step = np.diff(table["step"].filter(is_step).to_numpy())
    if len(paths) == 1:
        return bool((by_step > 0).all()) and bool((table["rank"].to_numpy() == rank_in_name(paths[0])).all())
    by_rank = np.diff(table["rank"].filter(is_step).to_numpy())
    grows = bool(((by_rank > 0) | ((by_rank == 0) & (by_step > 0))).all())
    return grows and set(table["rank"].unique().to_list()) <= set(map(rank_in_name, paths))


def rank_in_name(path: Path) -> int:
    """The rank whose events the file holds; -1 for a name that tells none."""
    digits = re.fullmatch(r"events_rank(\d{1,9})", path.stem)
    return int(digits.group(1)) if digits else -1


def read_own_events(path: Path, attempt: Attempt) -> tuple[pl.DataFrame, Passed]:
    """One file by itself, in blocks."""
    rank = rank_in_name(path)
    parts, foreign, torn = [], 0, False
    try:
        with open_file(path) as source:
            size = os.fstat(source.fileno()).st_size
            for block in blocks(source, LARGEST_FILE_BYTES, BLOCK_BYTES, LONGEST_LINE_BYTES):
                table = read_block(block)
                mine = table.filter((pl.col("run") == attempt.spec.run) & (pl.col("attempt") == attempt.number) & (pl.col("rank") == rank))
                foreign += len(table) - len(mine)
                parts.append(mine[KEPT])
                torn = not block.endswith(b"\n") and event_in(block[block.rfind(b"\n") + 1 :]) is None
    except OSError as error:
        return _nothing(), Passed(file=path.name, problem=error.strerror or "cannot be read")
    if size == 0:
        return _nothing(), Passed(file=path.name, problem="is empty")
    left_out = max(0, size - LARGEST_FILE_BYTES)
    return pl.concat(parts), Passed(file=path.name, foreign=foreign, torn=torn and not left_out, left_out_bytes=left_out)


def _nothing() -> pl.DataFrame:
    return pl.DataFrame(schema={name: SCHEMA[name] for name in KEPT})


def read_block(block: bytes) -> pl.DataFrame:
    """Every line as a row of SCHEMA: what a line lacks is null, and a line that is no event lacks everything."""
    try:
        return pl.read_ndjson(io.BytesIO(block), schema=SCHEMA) if block else pl.DataFrame(schema=SCHEMA)
    except REFUSED:
        return read_block_by_line(block)


def read_block_by_line(block: bytes) -> pl.DataFrame:
    """The same table, line by line: for what polars refuses whole."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA}
    for event in _objects(io.BytesIO(block)):
        for name, column in columns.items():
            column.append(_value(name, event.get(name)))
    return pl.DataFrame(columns, schema=SCHEMA)


def _objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """One object for each line that is not blank, {} for rubbish; a last line torn by a kill is nothing."""
    for line in lines:
        event = event_in(line) if len(line) <= LONGEST_LINE_BYTES else None
        if event is not None:
            yield event
        elif line.endswith(b"\n") and not line.isspace():
            yield {}


def _value(name: str, value: Any) -> Any:
    if name in TEXT_COLUMNS:
        # A whole number under a text's name is read as its digits, as polars does.
        return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
    if isinstance(value, str):
        value = NOT_FINITE.get(value.lower())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, int) and abs(value) >= 2**63:
        # Beyond 64 bits it is rubbish, not a step.
        return None if name in WHOLE_COLUMNS else math.inf if value > 0 else -math.inf
    if name in WHOLE_COLUMNS:
        return int(value) if abs(value) < 2**63 and int(value) == value else None
    return float(value)
