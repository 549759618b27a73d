"""A .csv that grows by whole rows: header first, each write flushed, and a full disk that costs rows but nothing else.

In: rows as column → value. Out: the file, made with its first row (so that none is left with a header alone), and how many rows could
not be written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.tables import format_cell


class RowFile:
    """One file, one writer."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path, self._columns = path, columns
        self._handle: int | None = None
        self._size = 0
        self.lost_rows = 0
        self.problem = ""

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Write the rows in one go; how many went in, which is all or none of them."""
        text = "".join(self._line(row) for row in rows)
        try:
            self._write(text.encode())
        except OSError as error:
            self.lost_rows += len(rows)
            self.problem = self.problem or error.strerror or str(error)
            self._take_back()
            return 0
        return len(rows)

    def close(self) -> None:
        """OSError when the disk tells only now that it lost something; the file is closed all the same."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _line(self, row: Mapping[str, Any]) -> str:
        # A driver's name for a card may hold a comma; without quotes the simplest reader reads every row right.
        return ",".join(format_cell(row.get(column)).replace(",", " ").replace('"', " ") for column in self._columns) + "\n"

    def _write(self, data: bytes) -> None:
        if self._handle is None:
            self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._size = os.fstat(self._handle).st_size
        if self._size == 0:
            data = (",".join(self._columns) + "\n").encode() + data
        left = data
        while left:
            left = left[os.write(self._handle, left) :]
        self._size += len(data)

    def _take_back(self) -> None:
        """Cut off the part of a row that did go in: a reader must not take half a number for a whole one."""
        with contextlib.suppress(OSError):
            if self._handle is not None:
                os.ftruncate(self._handle, self._size)
