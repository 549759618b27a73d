"""One run_manifest.tsv: the original driver's, of whatever version, or ours, which has its columns and more; whole or damaged.

In: the file. Out: a `Manifest`: every row that names a run and how it ended, in the order of the file, as cells by column name. Columns
are found by their names, so fewer of them, or another order, are no matter; a header that comes again, be it another version's, holds
from there on, and where it was lost a row of all the driver's columns is read by their order. A torn row is passed over and counted; one
that a later row was glued onto costs that one nothing. Of a last line without its end the last cell is not trusted.

Ours has one row an attempt, the original's one row each time a run was started: `counting_rows` and `newest` say which counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.original.cells import flag, number, whole
from seatrial.collect.original.text_lines import TextLines, read_lines
from seatrial.records.columns import MANIFEST_SEED
from seatrial.records.outcome import Outcome

Columns = tuple[str, ...]
RunKey = tuple[str, int]
"""Group and repeat: what a run's folder is named after."""

NEEDED = ("group", "repeat", "status")
FIRST = MANIFEST_SEED[0]
MODES = ("sweep", "ab")
SUCCESS, FAILED = Outcome.OK.seed_status, Outcome.FAILED.seed_status
ABSENT = ("", "nan", "none", "null", "n/a", "[n/a]", "unknown")
"""How the driver writes that it does not know."""
# The name of a folder, and of nothing else: no separator, no dot at its head.
NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+=@-]{0,180}")
MOST_REPEATS = 10**6
NO_FILE = "there is no such file"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row; cells that are empty or say nothing are not there."""

    cells: dict[str, str]

    @property
    def group(self) -> str:
        return self.cells["group"]

    @property
    def repeat(self) -> int:
        return int(self.cells["repeat"])

    @property
    def key(self) -> RunKey:
        return self.group, self.repeat

    @property
    def run(self) -> str:
        return f"{self.group}_r{self.repeat}"

    @property
    def exit_code(self) -> int | None:
        return whole(self.cells.get("exit_code"))

    @property
    def says_success(self) -> bool:
        return self.cells["status"].lower() == SUCCESS

    @property
    def is_success(self) -> bool:
        """As the row says, unless its own exit code contradicts it."""
        return self.says_success and self.exit_code in (None, 0)

    @property
    def status(self) -> str:
        """The seeds' word for what it counts as."""
        return SUCCESS if self.is_success else FAILED

    @property
    def duration_s(self) -> float | None:
        found = number(self.cells.get("duration_sec"))
        return found if found is not None and found >= 0 else None

    @property
    def attempt(self) -> int:
        """0 in the original's, which do not number them."""
        return whole(self.cells.get("attempt")) or 0

    @property
    def is_current(self) -> bool:
        """False for one of ours whose attempt a newer plan or attempt has replaced; the original's have no such mark."""
        return flag(self.cells.get("current")) is not False


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What could be read of one file."""

    path: Path
    rows: tuple[Row, ...] = ()
    headers: tuple[Columns, ...] = ()
    """Every one that names a run, once; none where it was lost."""
    num_torn: int = 0
    """Rows that were passed over: torn, or without the name of a run."""
    problem: str = ""
    """Why it is of no use, where it is not."""


def read_manifest(path: Path) -> Manifest:
    """Every whole row of it."""
    text = read_lines(path)
    if not text.lines:
        return Manifest(path=path, problem=text.problem or ("it is empty" if path.exists() else NO_FILE))
    reading = _Reading()
    for line in text.whole_lines:
        reading.take(line)
    if not text.ends_whole:
        reading.take(text.lines[-1], is_cut=True)
    if not reading.is_usable:
        return Manifest(path=path, problem=_why_unusable(text))
    return Manifest(path=path, rows=tuple(reading.rows), headers=tuple(reading.headers), num_torn=reading.num_torn)


def is_original_manifest(path: Path) -> bool:
    """Whether the file begins with a header of the original driver, or at least with a row of it."""
    head = read_lines(path, most_bytes=1 << 20).lines[:1]
    return bool(head) and "hash" not in head[0].split("\t") and (_header(head[0]) is not None or _is_whole_row(head[0]))


class _Reading:
    """Takes the lines of one file in turn."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.headers: dict[Columns, None] = {}
        self.num_torn = 0
        self.is_usable = False
        self._columns: Columns = ()

    def take(self, line: str, *, is_cut: bool = False) -> None:
        if not line.strip("\t "):
            return
        header = _header(line)
        if header is not None or _is_header_of_no_use(line):
            # A driver of another version that went on in the same file: its header holds from here on.
            self._columns = header or ()
            self.headers |= {header: None} if header else {}
        else:
            self._columns = self._columns or (MANIFEST_SEED if not self.headers and _is_whole_row(line) else ())
            self._take_row(line, is_cut)
        self.is_usable = self.is_usable or bool(self._columns)

    def _take_row(self, line: str, is_cut: bool) -> None:
        cells = line.split("\t")
        if is_cut:
            # Half a number looks like a whole one.
            cells[-1] = ""
        row = _row(_unglued(cells, self._columns), self._columns)
        self.rows += [row] if row else []
        self.num_torn += row is None or len(cells) > len(self._columns)


def _header(line: str) -> Columns | None:
    cells = tuple(cell.strip() for cell in line.split("\t"))
    return cells if all(name in cells for name in NEEDED) else None


def _is_header_of_no_use(line: str) -> bool:
    """Names of columns, and not those without which no run is named."""
    cells = {cell.strip() for cell in line.split("\t")}
    return any(name in cells for name in NEEDED) and FIRST in cells


def _is_whole_row(line: str) -> bool:
    """Whether the line is a row of all the driver's columns, in their order."""
    cells = line.split("\t")
    return len(cells) == len(MANIFEST_SEED) and cells[MANIFEST_SEED.index("status")].strip().lower() in (SUCCESS, FAILED)


def _unglued(cells: Sequence[str], columns: Columns) -> Sequence[str]:
    """Where a row was torn and the next one appended to it: the next one's cells are the last, and its first is glued to what was there."""
    if len(cells) <= len(columns) or columns[:1] != (FIRST,):
        return cells
    first, *others = cells[-len(columns) :]
    return [next((mode for mode in MODES if first.endswith(mode)), first), *others]


def _row(cells: Sequence[str], columns: Columns) -> Row | None:
    """None for a row that is torn, or names no run."""
    if not columns or len(cells) != len(columns):
        return None
    known = {name: cell.strip() for name, cell in zip(columns, cells, strict=True) if cell.strip().lower() not in ABSENT}
    repeat = whole(known.get("repeat"))
    if not NAME.fullmatch(known.get("group", "")) or repeat is None or not 0 < repeat <= MOST_REPEATS or "status" not in known:
        return None
    return Row(cells=known | {"repeat": str(repeat)})


def _why_unusable(text: TextLines) -> str:
    head = [cell.strip() for cell in text.lines[0].split("\t")]
    if not any(name in head for name in NEEDED):
        return "it does not begin with the names of its columns"
    return f"its header has no column '{next(name for name in NEEDED if name not in head)}'"


def by_run(rows: Iterable[Row]) -> dict[RunKey, list[Row]]:
    """Rows of each run, runs in the order in which they first appear."""
    found: dict[RunKey, list[Row]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


def counting_rows(rows: Iterable[Row]) -> list[Row]:
    """Without those of attempts that no longer count."""
    return [row for row in rows if row.is_current]


def newest(rows: Sequence[Row]) -> Row | None:
    """The row of the highest attempt, of equal ones the last in the file; None without rows."""
    return max(enumerate(rows), key=lambda placed: (placed[1].attempt, placed[0]))[1] if rows else None
