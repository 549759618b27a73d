"""run_manifest.tsv as the original driver wrote it, of whatever version.

In: the folder. Out: `ManifestRows`: every row that names a run and how it ended, oldest first, as cells by column name. Columns are found
by their names, so fewer of them, or another order, are no matter. A manifest that the driver set aside because its header had changed
(`run_manifest.tsv.bak_<time>`) is read first. A torn row is passed over; one that a later row was glued onto costs that one nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.original.text_lines import read_lines
from seatrial.paths import OriginalPaths
from seatrial.records.caution import Caution
from seatrial.records.columns import MANIFEST_SEED

NEEDED = ("group", "repeat", "status")
OURS = "hash"
"""A column that only our own manifest has."""
MODES = ("sweep", "ab")
STATUSES = ("success", "failed")
ABSENT = ("", "nan", "none", "null", "n/a", "[n/a]", "unknown")
"""How the driver writes that it does not know."""
# The name of a folder, and of nothing else: no separator, no dot at its head.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,180}")
MOST_REPEATS = 10**6


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
    def run(self) -> str:
        return f"{self.group}_r{self.repeat}"

    @property
    def exit_code(self) -> int | None:
        return whole(self.cells.get("exit_code"))

    @property
    def is_success(self) -> bool:
        """As the row says, unless its own exit code contradicts it."""
        return self.cells["status"].lower() == "success" and self.exit_code in (None, 0)

    @property
    def duration_s(self) -> float | None:
        found = number(self.cells.get("duration_sec"))
        return found if found is not None and found >= 0 else None


@dataclass(frozen=True, kw_only=True)
class ManifestRows:
    """What the folder's manifests hold."""

    rows: tuple[Row, ...] = ()
    cautions: tuple[Caution, ...] = ()


def manifests_of(folder: Path) -> list[Path]:
    """Every manifest there is, those that were set aside first, by the time in their names."""
    paths = OriginalPaths(folder)
    return [path for path in (*paths.set_aside_manifests(), paths.manifest) if path.is_file()]


def is_original_manifest(path: Path) -> bool:
    """Whether the file begins with a header of the original driver, or at least with a row of it."""
    head = read_lines(path, most_bytes=1 << 20).lines[:1]
    return bool(head) and OURS not in head[0].split("\t") and _columns(head[0]) is not None


def read_manifests(folder: Path) -> ManifestRows:
    """All rows of all manifests, oldest first."""
    read = [_read(path) for path in manifests_of(folder)]
    return ManifestRows(
        rows=tuple(row for one in read for row in one.rows),
        cautions=tuple(caution for one in read for caution in one.cautions),
    )


def _read(path: Path) -> ManifestRows:
    text = read_lines(path)
    columns = _columns(text.lines[0]) if text.lines else None
    if text.problem or columns is None:
        why = text.problem or "it does not begin with the names of its columns"
        return ManifestRows(cautions=(_caution(f"{path.name} cannot be used ({why}): runs are known by their folders alone"),))
    rows: list[Row | None] = []
    headers: dict[tuple[str, ...], None] = {}
    for line in (line for line in text.lines if line.strip("\t ")):
        if (header := _header(line)) is not None:
            # A driver of another version that went on in the same file: its header holds from here on.
            columns, headers = header, {**headers, header: None}
        else:
            # Half a number looks like a whole one, so a row counts only where all its cells are there.
            rows.append(_row(line, columns))
    cautions = [*_passed_over(path.name, rows.count(None), len(rows)), *_changed(path.name, list(headers))]
    return ManifestRows(rows=tuple(row for row in rows if row is not None), cautions=tuple(cautions))


def _header(line: str) -> tuple[str, ...] | None:
    cells = tuple(cell.strip() for cell in line.split("\t"))
    return cells if all(name in cells for name in NEEDED) else None


def _columns(head: str) -> tuple[str, ...] | None:
    """The names in the header; the driver's own where the header was lost and a row of all its columns stands there; None for neither."""
    cells = head.split("\t")
    is_row = len(cells) == len(MANIFEST_SEED) and cells[MANIFEST_SEED.index("status")] in STATUSES
    return _header(head) or (MANIFEST_SEED if is_row else None)


def _row(line: str, columns: Sequence[str]) -> Row | None:
    """None for a row that is torn, or names no run."""
    cells = line.split("\t")
    if len(cells) > len(columns):
        # A row was torn and the next one appended to it: the next one's cells are the last, and its first is glued to what was there.
        cells = cells[-len(columns) :]
        cells[0] = next((mode for mode in MODES if cells[0].endswith(mode)), cells[0])
    if len(cells) < len(columns):
        return None
    known = {name: cell.strip() for name, cell in zip(columns, cells, strict=True) if cell.strip().lower() not in ABSENT}
    repeat = whole(known.get("repeat"))
    if not NAME.fullmatch(known.get("group", "")) or repeat is None or not 0 < repeat <= MOST_REPEATS or "status" not in known:
        return None
    return Row(cells=known | {"repeat": str(repeat)})


def _passed_over(name: str, count: int, lines: int) -> list[Caution]:
    if not count:
        return []
    rows = "1 row was" if count == 1 else f"{count} rows were"
    return [
        _caution(
            f"In {name} {rows} passed over, of {lines}: torn, as when a driver is killed or a disk fails, or without the name of a run",
            count,
        )
    ]


def _changed(name: str, headers: Sequence[Sequence[str]]) -> list[Caution]:
    if not headers:
        return [_caution(f"{name} has lost its header; its rows were read by the order of the columns that the driver writes")]
    lacking = [column for column in MANIFEST_SEED if not all(column in columns for columns in headers)]
    if not lacking:
        return []
    return [
        _caution(
            f"{name} is of another version of the driver: {len(lacking)} of its {len(MANIFEST_SEED)} columns are not there "
            f"({', '.join(lacking[:4])}{' …' if len(lacking) > 4 else ''}); what the logs say of them was taken instead"
        )
    ]


def _caution(text: str, count: int | None = None) -> Caution:
    numbers = {} if count is None else {"rows": count}
    return Caution(kind="original_manifest", text=f"{text}.", numbers=dict(numbers))


def number(text: str | None) -> float | None:
    """A finite number, None for anything else."""
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e15 else None


def whole(text: str | None) -> int | None:
    """A whole number, however it is written."""
    value = number(text)
    return int(value) if value is not None and value.is_integer() else None
