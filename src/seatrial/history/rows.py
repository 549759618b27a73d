"""Rows that later campaigns are compared with: one append-only file of JSON lines.

In: sides, and names for some of them. Out: the same again, as `Row`s. A line is a row with its number, or says that a row is pinned under
a name, or that a name is pinned no more; the last word counts, and nothing is ever taken out. Writers lock the file, and start on a line
of their own where one was cut short; readers pass over what is torn or strange. The file is `--history FILE`, else what
SEATRIAL_HISTORY names, else seatrial/history.jsonl among the user's data.

    {"v": 1, "kind": "row", "row": 3, "added_t": 1794705558.1, "side": {…}}
    {"v": 1, "kind": "pin", "row": 3, "name": "v100-bf16", "added_t": 1794705560.2}
    {"v": 1, "kind": "unpin", "name": "v100-bf16", "added_t": 1794705999.0}
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import filelock

from seatrial.errors import CampaignError, UsageError, did_you_mean
from seatrial.files import append_line, open_file, read_json_lines
from seatrial.records.codec import described, to_json
from seatrial.records.comparison import Side

VERSION = 1
VARIABLE = "SEATRIAL_HISTORY"
ROW, PIN, UNPIN = "row", "pin", "unpin"
LOCK_S = 30.0
# So that `history:NAME` and `OUT:GROUP` can be told apart, and a name from a row's number.
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One side as it was kept."""

    number: int
    added_t: float
    side: Side
    names: tuple[str, ...] = ()
    """Those that it is pinned under."""


def history_path(given: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The file that is meant."""
    if given is not None:
        return given
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE]).expanduser()
    data = environment.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "seatrial" / "history.jsonl"


def rows(path: Path) -> list[Row]:
    """Every row, the oldest first, with the names it has now."""
    found: dict[int, Row] = {}
    names: dict[str, int] = {}
    for line in read_json_lines(path):
        kind, number, name = line.get("kind"), line.get("row"), line.get("name")
        if kind == ROW and isinstance(number, int) and (row := _row(number, line)) is not None:
            found.setdefault(number, row)
        elif kind == PIN and isinstance(number, int) and isinstance(name, str):
            names[name] = number
        elif kind == UNPIN and isinstance(name, str):
            names.pop(name, None)
    return [replace(row, names=tuple(sorted(name for name, of in names.items() if of == row.number))) for row in found.values()]


def add(path: Path, side: Side, *, now_t: float | None = None) -> Row:
    """Keep a side; the row it has already where the very same runs are there."""
    with _locked(path):
        known = rows(path)
        same = next((row for row in known if _identity(row.side) == _identity(side)), None)
        if same is not None:
            return same
        row = Row(number=max((row.number for row in known), default=0) + 1, added_t=time.time() if now_t is None else now_t, side=side)
        _append(path, {"v": VERSION, "kind": ROW, "row": row.number, "added_t": row.added_t, "side": to_json(side)})
        return row


def pin(path: Path, number: int, name: str, *, now_t: float | None = None) -> Row:
    """Give a row a name that comparisons can use; a name that another row had goes over to this one."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot be a name of a row: use letters, digits and . _ + -, and not digits alone")
    with _locked(path):
        row = next((row for row in rows(path) if row.number == number), None)
        if row is None:
            raise UsageError(f"{path} has no row {number}; `seatrial history list` shows those it has")
        _append(path, {"v": VERSION, "kind": PIN, "row": number, "name": name, "added_t": time.time() if now_t is None else now_t})
        return replace(row, names=tuple(sorted({*row.names, name})))


def unpin(path: Path, name: str, *, now_t: float | None = None) -> None:
    """Take a name away; its row stays."""
    with _locked(path):
        known = pinned_names(path)
        if name not in known:
            raise UsageError(f"no row of {path} is pinned as '{name}'; {did_you_mean(name, known)}")
        _append(path, {"v": VERSION, "kind": UNPIN, "name": name, "added_t": time.time() if now_t is None else now_t})


def pinned(path: Path, name: str) -> Row | None:
    """The row of that name; None where there is none."""
    return next((row for row in rows(path) if name in row.names), None)


def pinned_names(path: Path) -> list[str]:
    """Every name that is pinned now."""
    return sorted(name for row in rows(path) for name in row.names)


def _row(number: int, line: Mapping[str, Any]) -> Row | None:
    side, added_t = described(Side, line.get("side")), line.get("added_t")
    if side is None or not isinstance(added_t, (int, float)) or isinstance(added_t, bool):
        return None
    return Row(number=number, added_t=float(added_t), side=side)


def _identity(side: Side) -> tuple[object, ...]:
    """The same campaign, group and runs with the same figures: added twice, it is one."""
    return side.campaign, side.group, tuple((run.run, run.started_t, tuple(sorted(run.figures.items()))) for run in side.runs)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_S):
            yield
    except filelock.Timeout as error:
        raise CampaignError(f"{path} is being written by somebody else for {LOCK_S:.0f} s now; try again when that is over") from error
    except OSError as error:
        raise CampaignError(f"{error.filename or path}: {error.strerror}; name another file with --history or {VARIABLE}") from error


def _append(path: Path, line: Mapping[str, Any]) -> None:
    text = json.dumps(line, ensure_ascii=False, allow_nan=False)
    if not append_line(path, "\n" * _is_torn(path) + text):
        raise CampaignError(f"{path} cannot be written to, so nothing was kept; name another file with --history or {VARIABLE}")


def _is_torn(path: Path) -> bool:
    """Whether the last line was cut short: what is appended to it would be lost with it."""
    with contextlib.suppress(OSError), open_file(path) as source:
        if source.seek(0, os.SEEK_END):
            source.seek(-1, os.SEEK_END)
            return source.read(1) != b"\n"
    return False
