"""run_manifest.tsv files: the original driver's, of any version, or ours, which has its columns and more; intact or damaged.

In: a file or a folder. Out: `Manifests`: every row that names a run and its status, as cells by column name, and cautions. A repeated
header, possibly another version's, applies from there on; without any header a row of all the driver's columns is read by position. A
truncated row is skipped and counted; a row appended to it is still read. The last cell of a file without a final newline is ignored.
NUL bytes, which a crash leaves where data never reached the disk, are a gap before a row, and in a cell make its value unknown.

Ours has a row per attempt, the original's one per start of a run: `current_rows` and `newest` select the one that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.logs.bounded_lines import bounded_lines, skipped_bytes
from seatrial.core.paths import OriginalPaths
from seatrial.core.text import MAX_NAMED, MIB, count_were
from seatrial.records.caution import Caution
from seatrial.records.columns import MANIFEST_STAGE1
from seatrial.records.outcome import Outcome

LARGEST_BYTES = 64 * MIB
BYTE_ORDER_MARK = "\ufeff"
NUL = "\0"


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """Lines of a text file from another machine; no lines and no problem without a file."""

    lines: tuple[str, ...] = ()
    ends_whole: bool = True
    """False without a final newline: its writer was killed, or the disk was full."""
    left_out_bytes: int = 0
    problem: str = ""

    @property
    def whole_lines(self) -> tuple[str, ...]:
        """The lines without an unfinished last one: half a number looks like a whole one."""
        return self.lines if self.ends_whole else self.lines[:-1]


def read_lines(path: Path, max_bytes: int = LARGEST_BYTES) -> TextFile:
    """Lines without line ends and byte order mark; invalid UTF-8 is replaced. Of a very large file the middle is left out."""
    try:
        found = [piece.text for piece in bounded_lines(path, max_bytes)]
        left_out = skipped_bytes(path, max_bytes)
    except FileNotFoundError:
        return TextFile()
    except OSError as error:
        return TextFile(problem=error.strerror or "it cannot be read")
    lines = [text.decode("utf-8", errors="replace").rstrip("\r\n") for text in found]
    if lines:
        lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
    return TextFile(lines=tuple(lines), ends_whole=not found or found[-1].endswith(b"\n"), left_out_bytes=left_out)


LARGEST_NUMBER = 1e15
"""Larger than any cell of a campaign."""
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def number(text: str | None) -> float | None:
    """The number in a cell; None for an empty or missing cell, for NaN, and for anything else."""
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and abs(value) <= LARGEST_NUMBER else None


def whole(text: str | None) -> int | None:
    """An integer in any notation."""
    value = number(text)
    return int(value) if value is not None and value.is_integer() else None


def flag(text: str | None) -> bool | None:
    """A truth value; None where the cell is neither true nor false."""
    return _FLAGS.get(text.lower()) if text else None


Columns = tuple[str, ...]
RunKey = tuple[str, int]
"""Group and repeat, which name a run's folder."""
NEEDED = ("group", "repeat", "status")
OF_A_GROUP = ("mode", "world_size")
FIRST = MANIFEST_STAGE1[0]
MODES = ("sweep", "ab")
SUCCESS, FAILED = Outcome.OK.stage1_status, Outcome.FAILED.stage1_status
ABSENT = ("", "nan", "none", "null", "n/a", "[n/a]", "unknown")
"""How the driver writes an unknown value."""
# A single folder name: no separator, no leading dot.
NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+=@-]{0,180}")
MAX_REPEATS = 10**6
NO_FILE = "there is no such file"
NO_HEADER = "it has no header with the column names"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row; unknown cells are left out."""

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
        """Success by its status, unless the exit code contradicts it."""
        return self.says_success and self.exit_code in (None, 0)

    @property
    def status(self) -> str:
        """The status in stage 1's words."""
        return SUCCESS if self.is_success else FAILED

    @property
    def duration_s(self) -> float | None:
        found = number(self.cells.get("duration_sec"))
        return found if found is not None and found >= 0 else None

    @property
    def attempt(self) -> int:
        """Number of the attempt; 0 in the original's rows, which have none."""
        return whole(self.cells.get("attempt")) or 0

    @property
    def is_current(self) -> bool:
        """False for one of ours whose attempt a newer plan or attempt has replaced; the original's rows have no such mark."""
        return flag(self.cells.get("current")) is not False


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What could be read of one file."""

    path: Path
    rows: tuple[Row, ...] = ()
    headers: tuple[Columns, ...] = ()
    """Each header once; () if it was lost."""
    num_torn: int = 0
    """Rows that were skipped: truncated, or without the name of a run."""
    problem: str = ""
    """Why it cannot be used."""
    num_with_nul: int = 0
    """Lines with NUL bytes."""


def read_manifest(path: Path) -> Manifest:
    text = read_lines(path)
    if not text.lines:
        return Manifest(path=path, problem=text.problem or ("it is empty" if path.exists() else NO_FILE))
    rows: list[Row] = []
    damaged: list[int] = []
    headers: dict[Columns, None] = {}
    columns: Columns = ()
    num_torn, num_with_nul, is_usable = 0, 0, False
    for index, line in enumerate(text.lines):
        num_with_nul += NUL in line
        if not line.strip(f"\t {NUL}"):
            continue
        cells = _cells(line)
        if _is_header(cells):
            # Another version of the driver continued the file: its header applies from here on.
            columns = tuple(cells) if all(name in cells for name in NEEDED) else ()
            headers |= {columns: None} if columns else {}
        else:
            columns = columns or (MANIFEST_STAGE1 if not headers and _is_whole_row(cells) else ())
            if not text.ends_whole and index == len(text.lines) - 1:
                # Half a number looks like a whole one.
                cells[-1] = ""
            row = _parse_row(_last_row(cells, columns), columns)
            damaged += [len(rows)] if row and NUL in line else []
            rows += [row] if row else []
            num_torn += row is None or len(cells) > len(columns)
        is_usable = is_usable or bool(columns)
    if not is_usable:
        first = _cells(text.lines[0])
        missing = next(name for name in NEEDED if name not in first)
        is_header = any(name in first for name in NEEDED)
        return Manifest(path=path, problem=f"its header has no column '{missing}'" if is_header else NO_HEADER)
    for place in damaged:
        rows[place] = _with_cells_of_its_group(rows[place], rows)
    return Manifest(path=path, rows=tuple(rows), headers=tuple(headers), num_torn=num_torn, num_with_nul=num_with_nul)


def is_original_manifest(path: Path) -> bool:
    """Whether the file begins with a header of the original driver, or at least with a row of it."""
    head = read_lines(path, max_bytes=1 << 20).lines[:1]
    cells = _cells(head[0]) if head else []
    return "hash" not in cells and (all(name in cells for name in NEEDED) or _is_whole_row(cells))


def _cells(line: str) -> list[str]:
    """A cell with NUL bytes is empty: what is left of it may be half a number. A header's names are known, and are read without them."""
    names = [cell.strip() for cell in line.replace(NUL, "").split("\t")]
    if _is_header(names):
        return names
    return ["" if NUL in cell else cell.strip() for cell in line.lstrip(NUL).split("\t")]


def _is_header(cells: Sequence[str]) -> bool:
    """Whether it is a header, also one without needed columns: rows below that name no run."""
    needed = [name in cells for name in NEEDED]
    return all(needed) or (any(needed) and FIRST in cells)


def _is_whole_row(cells: Sequence[str]) -> bool:
    """Whether it is a row of all the driver's columns, in their order."""
    return len(cells) == len(MANIFEST_STAGE1) and cells[MANIFEST_STAGE1.index("status")].lower() in (SUCCESS, FAILED)


def _last_row(cells: Sequence[str], columns: Columns) -> Sequence[str]:
    """The row that was appended to a truncated one: its cells come last, the first joined to what was there."""
    if len(cells) <= len(columns) or columns[:1] != (FIRST,):
        return cells
    first, *others = cells[-len(columns) :]
    return [next((mode for mode in MODES if first.endswith(mode)), first), *others]


def _parse_row(cells: Sequence[str], columns: Columns) -> Row | None:
    """The row; None if it is truncated or names no run."""
    if not columns or len(cells) != len(columns):
        return None
    known = {name: cell for name, cell in zip(columns, cells, strict=True) if cell.lower() not in ABSENT}
    repeat = whole(known.get("repeat"))
    if not NAME.fullmatch(known.get("group", "")) or repeat is None or not 0 < repeat <= MAX_REPEATS or "status" not in known:
        return None
    return Row(cells=known | {"repeat": str(repeat)})


def _with_cells_of_its_group(row: Row, rows: Sequence[Row]) -> Row:
    """The row with lost cells that identify its group, where all others of the group agree on them."""
    found = {name: {one.cells[name] for one in rows if one.group == row.group and name in one.cells} for name in OF_A_GROUP}
    agreed = {name: next(iter(values)) for name, values in found.items() if len(values) == 1}
    return Row(cells=agreed | row.cells)


def by_run(rows: Iterable[Row]) -> dict[RunKey, list[Row]]:
    """Rows of each run, runs in the order in which they first appear."""
    found: dict[RunKey, list[Row]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


def current_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows without those of attempts that no longer count."""
    return [row for row in rows if row.is_current]


def newest(rows: Sequence[Row]) -> Row | None:
    """The row of the highest attempt, the last one on a tie; None without rows."""
    return max(enumerate(rows), key=lambda placed: (placed[1].attempt, placed[0]))[1] if rows else None


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """All manifests of a folder, or a single file."""

    path: Path
    """Path of the current one."""
    files: tuple[Manifest, ...] = ()
    """Oldest first; missing ones are left out."""

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for file in self.files for row in file.rows)

    @property
    def num_torn(self) -> int:
        return sum(file.num_torn for file in self.files)

    @property
    def problem(self) -> str:
        """Why the newest cannot be used."""
        return self.files[-1].problem if self.files else NO_FILE

    @property
    def set_aside(self) -> tuple[Manifest, ...]:
        return tuple(file for file in self.files if file.path != self.path)

    def has_column(self, name: str) -> bool:
        return any(name in columns for file in self.files for columns in file.headers or (MANIFEST_STAGE1,))

    @property
    def cautions(self) -> tuple[Caution, ...]:
        return tuple(caution for file in self.files for caution in _cautions(file))


def manifests_of(folder: Path) -> list[Path]:
    """Every manifest; those that the driver set aside because its header had changed (`run_manifest.tsv.bak_<time>`) first."""
    paths = OriginalPaths(folder)
    return [path for path in (*paths.set_aside_manifests(), paths.manifest) if path.is_file()]


def read_manifests(folder: Path) -> Manifests:
    return Manifests(path=OriginalPaths(folder).manifest, files=tuple(map(read_manifest, manifests_of(folder))))


def read_one_manifest(path: Path) -> Manifests:
    return Manifests(path=path, files=(read_manifest(path),))


def _cautions(file: Manifest) -> Iterator[Caution]:
    name = file.path.name
    if file.problem:
        yield _caution(f"{name} cannot be used ({file.problem}): runs are known by their folders alone")
        return
    if file.num_torn:
        why = "truncated, as when a driver is killed or a disk fails, or without the name of a run"
        yield _caution(f"In {name} {count_were(file.num_torn, 'row')} skipped, of {len(file.rows) + file.num_torn}: {why}", file.num_torn)
    if file.num_with_nul:
        why = "as after a crash or on a failing disk; cells with them are unknown, and were filled from the logs where possible"
        yield _caution(f"In {name} {count_were(file.num_with_nul, 'line')} found with NUL bytes, {why}", file.num_with_nul)
    if not file.headers:
        yield _caution(f"{name} has lost its header; its rows were read by the order of the driver's columns")
        return
    missing = [column for column in MANIFEST_STAGE1 if not all(column in columns for columns in file.headers)]
    if missing:
        names = f"{', '.join(missing[:MAX_NAMED])}{' …' if len(missing) > MAX_NAMED else ''}"
        yield _caution(
            f"{name} is of another version of the driver: {len(missing)} of {len(MANIFEST_STAGE1)} columns are missing ({names}) and were "
            "filled from the logs where possible"
        )


def _caution(text: str, count: int | None = None) -> Caution:
    return Caution(kind="original_manifest", text=f"{text}.", numbers={} if count is None else {"rows": count})
