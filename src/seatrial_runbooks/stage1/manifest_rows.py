"""Tables of a campaign as the checks read them: by the names of their columns, ours and the original scripts' alike.

In: run_manifest.tsv, timing_points.csv or a file of telemetry, whole or damaged. Out: rows as column → text, and what was passed over.
A row that has not as many cells as its header (torn, or glued to the next one) is passed over and counted. A header that comes again,
be it another version's, holds from there on. Of a last line without its end the last cell is not trusted.

Our manifest has one row an attempt, the original's one row each time a run was started: `counting_rows` and `newest` say which counts.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.files import open_file

Row = Mapping[str, str]
RunKey = tuple[str, str, str]
"""Mode, group, repeat."""

MANIFEST_NEEDS = ("group", "repeat", "status")
SUCCESS = "success"
NO_FILE = "there is no such file"
# A row has a few thousand characters; a file without line ends must not be held in memory as one.
LONGEST_LINE_BYTES = 1 << 20
LARGEST = 1e15
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class TableReader:
    """The rows of one file, in order; what was passed over is known when all are read."""

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        self.path = path
        self.delimiter = delimiter
        self.columns: tuple[str, ...] = ()
        self.num_headers = 0
        """More than one where somebody began the table anew without emptying the file."""
        self.num_torn = 0
        self.problem = ""
        """Why there are no rows, where the file cannot be read."""

    def __iter__(self) -> Iterator[Row]:
        try:
            with open_file(self.path) as source:
                while line := source.readline(LONGEST_LINE_BYTES):
                    row = self._row(line.decode("utf-8", errors="replace"))
                    if row is not None:
                        yield row
        except FileNotFoundError:
            self.problem = NO_FILE
        except OSError as error:
            self.problem = error.strerror or "it cannot be read"

    def _row(self, line: str) -> Row | None:
        """None for a header, an empty line, and what is passed over."""
        cells = self._cells(line.strip("\r\n\ufeff"))
        if not any(cells):
            return None
        if not self.columns or cells[0] == self.columns[0] != "":
            self.columns = tuple(cells)
            self.num_headers += 1
            return None
        if len(cells) != len(self.columns):
            self.num_torn += 1
            return None
        if not line.endswith("\n"):
            # Half a number looks like a whole one.
            cells[-1] = ""
        return dict(zip(self.columns, cells, strict=True))

    def _cells(self, line: str) -> list[str]:
        if '"' not in line or self.delimiter != ",":
            return [cell.strip() for cell in line.split(self.delimiter)]
        try:
            return [cell.strip() for cell in next(csv.reader([line]), [])]
        except csv.Error:
            return [line]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What could be read of a run_manifest.tsv."""

    path: Path
    rows: tuple[Row, ...] = ()
    columns: tuple[str, ...] = ()
    num_torn: int = 0
    problem: str = ""
    """Why it is of no use, where it is not."""


def read_manifest(path: Path) -> Manifest:
    """Every whole row of it, in the order of the file."""
    reader = TableReader(path, "\t")
    read = list(reader)
    # Under a header of another version a row may say too little to be of any run.
    rows = tuple(row for row in read if all(name in row for name in MANIFEST_NEEDS))
    missing = [name for name in MANIFEST_NEEDS if name not in reader.columns]
    problem = reader.problem
    if not problem and missing:
        problem = f"its header has no column '{missing[0]}'" if reader.columns else "it is empty"
    return Manifest(
        path=path, rows=() if problem else rows, columns=reader.columns, num_torn=reader.num_torn + len(read) - len(rows), problem=problem
    )


def run_key(row: Row) -> RunKey:
    """Which run a row of a manifest or of timing points speaks of."""
    repeat = number(row.get("repeat", ""))
    whole = repeat is not None and repeat.is_integer()
    return row.get("mode", ""), row.get("group", ""), str(int(repeat)) if whole and repeat is not None else row.get("repeat", "")


def by_run(rows: Iterable[Row]) -> dict[RunKey, list[Row]]:
    """Rows of each run, runs in the order in which they first appear."""
    found: dict[RunKey, list[Row]] = {}
    for row in rows:
        found.setdefault(run_key(row), []).append(row)
    return found


def counting_rows(rows: Iterable[Row]) -> list[Row]:
    """Without our rows of attempts that a newer plan or attempt has replaced; the original's rows have no such mark."""
    return [row for row in rows if flag(row.get("current", "")) is not False]


def newest(rows: Sequence[Row]) -> Row | None:
    """The row of the highest attempt, of equal ones the last in the file; None without rows."""
    numbered = [(number(row.get("attempt", "")) or 0.0, place) for place, row in enumerate(rows)]
    return rows[max(numbered)[1]] if rows else None


def number(text: str) -> float | None:
    """None for an empty cell, for what is no number, for NaN, and for one that no cell of ours comes near."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= LARGEST else None


def flag(text: str) -> bool | None:
    """None where the cell says neither yes nor no."""
    return _FLAGS.get(text.lower())


def dropped_words(num_dropped: int, num_torn: int) -> str:
    """What was passed over, as the end of a note; empty where nothing was."""
    parts = [f"{num_dropped} rows with values that cannot be"] if num_dropped else []
    parts += [f"{num_torn} torn rows"] if num_torn else []
    return f"; dropped: {' and '.join(parts)}" if parts else ""
