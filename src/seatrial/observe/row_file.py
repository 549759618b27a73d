"""A .csv that grows by whole rows: header first, each write flushed, and a bad disk that costs at most rows and nothing else.

In: rows as column → value. Out: the file, made with its first row (so that none is left with a header alone); rows that its disk does
not take are kept elsewhere until it does (seatrial.disk.append). How many rows could be written nowhere is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.disk.append import AppendFile
from seatrial.tables import format_cell


class RowFile:
    """One file, one writer."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._columns = columns
        self._file = AppendFile(path)
        self.lost_rows = 0
        self.problem = ""

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Write the rows in one go; how many went in, which is all or none of them."""
        header = "" if self._file.offset_bytes else ",".join(self._columns) + "\n"
        text = header + "".join(self._line(row) for row in rows)
        if self._file.append(text.encode()):
            return len(rows)
        self.lost_rows += len(rows)
        self.problem = self.problem or self._file.last_error
        return 0

    def close(self) -> None:
        """OSError when the disk tells only now that it lost something; the file is closed all the same."""
        if not self._file.close():
            raise OSError(self._file.last_error)

    def _line(self, row: Mapping[str, Any]) -> str:
        # A driver's name for a card may hold a comma; without quotes the simplest reader reads every row right.
        return ",".join(format_cell(row.get(column)).replace(",", " ").replace('"', " ") for column in self._columns) + "\n"
