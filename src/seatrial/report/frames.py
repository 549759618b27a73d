"""Tables for other programs: rows as typed frames, frames as CSV or Parquet.

In: rows of plain values, or frames of one schema that come one by one. Out: one file, written aside and renamed, or CSV text. Never
more than one of the frames is in memory, so that a table may be larger than that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.files import written_aside
from seatrial.records.measure import Cell
from seatrial.tables import format_cell

if TYPE_CHECKING:
    import polars as pl

FORMATS = ("csv", "parquet")
Schema = Mapping[str, Any]

# What a column without a single value would hold, by its name: its type must not depend on whether this campaign filled it.
_NUMBER_NAME = re.compile(
    r"_(?:ms|s|sec|w|j|c|mhz|mib|kib|pct|per_sec|p50|p90|ratio|mean|std|min|max|low|high|count|rows|points|step|steps|fraction|loss|runs)$"
    r"|_over_p50|_score$|^rank|^speedup"
)


def typed_frame(rows: Sequence[Mapping[str, Cell]], columns: Sequence[str]) -> pl.DataFrame:
    """The rows as a frame: numbers as numbers, booleans as booleans, everything else as text; None where there is no value."""
    import polars as pl

    data = {name: [_told(row.get(name)) for row in rows] for name in columns}
    schema = {name: _type_of(name, values) for name, values in data.items()}
    shown = {name: [_text(value) for value in values] if schema[name] == pl.String else values for name, values in data.items()}
    return pl.DataFrame(shown, schema=schema, strict=False)


def _type_of(name: str, values: Iterable[Cell]) -> Any:
    import polars as pl

    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pl.Float64 if _NUMBER_NAME.search(name) else pl.String
    if kinds == {bool}:
        return pl.Boolean
    if kinds == {int}:
        return pl.Int64
    return pl.Float64 if kinds <= {int, float} else pl.String


def _told(value: Cell) -> Cell:
    """None for what a table leaves empty: text without a character, a number that is none."""
    return None if value == "" or (isinstance(value, float) and not math.isfinite(value)) else value


def _text(value: Cell) -> str | None:
    return None if value is None else format_cell(value)


def write_frames(path: Path, frames: Iterable[pl.DataFrame], schema: Schema, form: str) -> int:
    """Write `path` whole, in `form`, and return how many rows it has."""
    counted = _Counted(frames)
    with written_aside(path) as temporary:
        if form == "parquet":
            _write_parquet(temporary, counted, schema)
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as target:
                target.writelines(csv_parts(counted, schema))
    return counted.rows


def csv_parts(frames: Iterable[pl.DataFrame], schema: Schema) -> Iterator[str]:
    """The header, then each frame's lines; no number has an exponent and an empty cell is no value."""
    import polars as pl

    yield pl.DataFrame(schema=schema).write_csv()
    for frame in frames:
        yield frame.write_csv(include_header=False, float_scientific=False)


def _write_parquet(path: Path, frames: Iterable[pl.DataFrame], schema: Schema) -> None:
    from polars.io.plugins import register_io_source

    def source(with_columns: Any, predicate: Any, n_rows: int | None, batch_size: int | None) -> Iterator[pl.DataFrame]:
        yield from frames

    register_io_source(source, schema=dict(schema)).sink_parquet(path)


class _Counted:
    """Frames as they pass by, and the rows seen so far."""

    def __init__(self, frames: Iterable[pl.DataFrame]) -> None:
        self._frames, self.rows = frames, 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for frame in self._frames:
            self.rows += len(frame)
            yield frame
