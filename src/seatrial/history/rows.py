"""Rows that later campaigns are compared with: one append-only file of JSON lines.

In: `ComparedGroup`s, and names for some of them. Out: the same, as `Row`s. A line is a row with its number, pins a row under a name, or
unpins a name; the last one counts, and nothing is ever removed. Writers lock the file, and start a new line where the last one is torn;
readers skip and count lines that are torn or unknown. The file is `--history FILE`, else SEATRIAL_HISTORY, else
seatrial/history.jsonl in the user's data folder.

    {"v": 1, "kind": "row", "row": 3, "added_t": 1794705558.1, "side": {…}}
    {"v": 1, "kind": "pin", "row": 3, "name": "v100-bf16", "added_t": 1794705560.2}
    {"v": 1, "kind": "unpin", "name": "v100-bf16", "added_t": 1794705999.0}
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import filelock

from seatrial.core.errors import CampaignError, UsageError, did_you_mean
from seatrial.core.files import LONGEST_JSON_LINE, json_object, open_file
from seatrial.core.paths import HISTORY
from seatrial.records.codec import from_json_or_none
from seatrial.records.comparison import ComparedGroup, group_json

VERSION = 1
VARIABLE = HISTORY
ROW, PIN, UNPIN = "row", "pin", "unpin"
LOCK_S = 30.0
# `history:NAME` must not look like `OUT:GROUP`, nor a name like a row's number.
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A stored group."""

    number: int
    added_t: float
    compared: ComparedGroup
    names: tuple[str, ...] = ()
    """Names it is pinned under."""


def history_path(given: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    if given is not None:
        return given
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE]).expanduser()
    data = environment.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "seatrial" / "history.jsonl"


@dataclass(frozen=True, kw_only=True)
class History:
    """The whole file."""

    rows: tuple[Row, ...] = ()
    """Oldest first, with their current names."""
    unreadable: int = 0
    """Lines that are torn, unknown or of a later version."""

    @property
    def pinned_names(self) -> list[str]:
        return sorted(name for row in self.rows for name in row.names)

    @property
    def unreadable_clause(self) -> str:
        """Added to a sentence; empty where every line was read."""
        if not self.unreadable:
            return ""
        return " (1 line of it cannot be read)" if self.unreadable == 1 else f" ({self.unreadable} lines of it cannot be read)"

    def pinned(self, name: str) -> Row | None:
        return next((row for row in self.rows if name in row.names), None)

    def row(self, number: int) -> Row | None:
        return next((row for row in self.rows if row.number == number), None)


def read_history(path: Path) -> History:
    """The whole file; empty where there is none, and a CampaignError where it cannot be read."""
    found: dict[int, Row] = {}
    names: dict[str, int] = {}
    unreadable = 0
    for line in _lines(path):
        kind, number, name = line.get("kind"), line.get("row"), line.get("name")
        row = _row(number, line) if kind == ROW and isinstance(number, int) else None
        if row is not None:
            found.setdefault(row.number, row)
        elif kind == PIN and isinstance(number, int) and isinstance(name, str):
            names[name] = number
        elif kind == UNPIN and isinstance(name, str):
            names.pop(name, None)
        else:
            unreadable += 1
    kept = (replace(row, names=tuple(sorted(name for name, number in names.items() if number == row.number))) for row in found.values())
    return History(rows=tuple(kept), unreadable=unreadable)


def pinned_names(path: Path) -> list[str]:
    """Every pinned name; none where the file cannot be read."""
    with contextlib.suppress(CampaignError):
        return read_history(path).pinned_names
    return []


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """Each line as an object; {} for a line that is none."""
    try:
        with open_file(path) as source:
            while line := source.readline(LONGEST_JSON_LINE):
                if line.strip():
                    yield json_object(line) or {}
    except FileNotFoundError:
        return
    except OSError as error:
        raise CampaignError(f"{path}: {error.strerror}; name another file with --history or {VARIABLE}") from error


def add(path: Path, compared: ComparedGroup, *, now_t: float | None = None) -> Row:
    """Add a group; returns the existing row where its runs are stored already."""
    with _locked(path):
        known = read_history(path).rows
        same = next((row for row in known if _identity(row.compared) == _identity(compared)), None)
        if same is not None:
            return same
        added_t = time.time() if now_t is None else now_t
        row = Row(number=max((row.number for row in known), default=0) + 1, added_t=added_t, compared=compared)
        _append(path, {"v": VERSION, "kind": ROW, "row": row.number, "added_t": row.added_t, "side": group_json(compared)})
        return row


def pin(path: Path, number: int, name: str, *, now_t: float | None = None) -> Row:
    """Give a row a name for comparisons; a name of another row moves to this one."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' is not a valid row name: use letters, digits and . _ + -, but not digits alone")
    with _locked(path):
        history = read_history(path)
        row = history.row(number)
        if row is None:
            raise UsageError(f"{path} has no row {number}{history.unreadable_clause}; `seatrial history list` shows those it has")
        _append(path, {"v": VERSION, "kind": PIN, "row": number, "name": name, "added_t": time.time() if now_t is None else now_t})
        return replace(row, names=tuple(sorted({*row.names, name})))


def unpin(path: Path, name: str, *, now_t: float | None = None) -> None:
    """Remove a name; its row stays."""
    with _locked(path):
        history = read_history(path)
        if name not in history.pinned_names:
            known = did_you_mean(name, history.pinned_names)
            raise UsageError(f"no row of {path} is pinned as '{name}'{history.unreadable_clause}; {known}")
        _append(path, {"v": VERSION, "kind": UNPIN, "name": name, "added_t": time.time() if now_t is None else now_t})


def _row(number: int, line: Mapping[str, Any]) -> Row | None:
    compared, added_t = from_json_or_none(ComparedGroup, line.get("side")), line.get("added_t")
    if compared is None or not isinstance(added_t, (int, float)) or isinstance(added_t, bool):
        return None
    return Row(number=number, added_t=float(added_t), compared=compared)


def _identity(compared: ComparedGroup) -> tuple[object, ...]:
    """Equal for the same campaign, group, runs and figures, which are one row."""
    return compared.campaign, compared.group, tuple(run.identity for run in compared.runs)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    if path.is_dir():
        raise CampaignError(f"{path} is a folder, so nothing was kept; name a file in it with --history or {VARIABLE}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_S):
            yield
    except filelock.Timeout as error:
        raise CampaignError(f"{path} has been locked by another process for {LOCK_S:.0f} s; try again later") from error
    except OSError as error:
        raise CampaignError(
            f"{error.filename or path}: {error.strerror}, so nothing was kept; name another file with --history or {VARIABLE}"
        ) from error


def _append(path: Path, line: Mapping[str, Any]) -> None:
    """Append a line, on disk when this returns. Without the fallback that a running training has: the user can repeat the command and must
    know that it failed."""
    text = "\n" * _is_torn(path) + json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"
    with path.open("ab", buffering=0) as file:
        data = text.encode(errors="backslashreplace")
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, "only a part of the line could be written", str(path))
        os.fsync(file.fileno())


def _is_torn(path: Path) -> bool:
    """Whether the last line has no end: a line appended to it would be lost."""
    with contextlib.suppress(OSError), open_file(path) as source:
        if source.seek(0, os.SEEK_END):
            source.seek(-1, os.SEEK_END)
            return source.read(1) != b"\n"
    return False
