"""Tables of samples and of timing points, as the leak diagnosis reads them: by the names of their columns, ours and the original's alike.

In: a CSV file, whole or damaged. Out: rows as column → text, and what was passed over. A row that has not as many cells as its header
is passed over and counted. A header that comes again, be it another version's, holds from there on. Of a last line without its end the
last cell is not trusted. seatrial.tables reads what was written whole, all at once, and counts no damage; samples of days are read here a
row at a time. Manifests: seatrial.collect.original.manifest_rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from seatrial.collect.original.manifest_rows import NO_FILE
from seatrial.files import open_file

Cells = Mapping[str, str]
"""Column → text; a cell may be empty, or not there."""

# A row has a few hundred characters; a file without line ends must not be held in memory as one.
LONGEST_LINE_BYTES = 1 << 20


class TableReader:
    """The rows of one file, in order; what was passed over is known when all are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: tuple[str, ...] = ()
        self.num_headers = 0
        """More than one where somebody began the table anew without emptying the file."""
        self.num_torn = 0
        self.problem = ""
        """Why there are no rows, where the file cannot be read."""

    def __iter__(self) -> Iterator[Cells]:
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

    def _row(self, line: str) -> Cells | None:
        """None for a header, an empty line, and what is passed over."""
        cells = _cells(line.strip("\r\n\ufeff"))
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


def dropped_words(num_dropped: int, num_torn: int) -> str:
    """What was passed over, as the end of a note; empty where nothing was."""
    parts = [f"{num_dropped} rows with values that cannot be"] if num_dropped else []
    parts += [f"{num_torn} torn rows"] if num_torn else []
    return f"; dropped: {' and '.join(parts)}" if parts else ""


def _cells(line: str) -> list[str]:
    if '"' not in line:
        return [cell.strip() for cell in line.split(",")]
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return [line]
