"""How much a run holds: resident memory of its process tree, and what its attempt has written.

In: host_telemetry.csv and the attempt's folder. Out: `newest_rss_bytes`, read from the end of the file, and `Written`, counted at most
once every COUNT_EVERY_S. Nothing here raises, whatever lies in the folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.paths import AttemptPaths
from seatrial.records.telemetry import HOST_COLUMNS

COUNT_EVERY_S = 5.0
TAIL_BYTES = 4096
# torchrun keeps the ranks' output three folders deep, on other hosts two folders below theirs.
DEEPEST = 8
RSS_COLUMN = HOST_COLUMNS.index("rss_kib")
# No host has more than this, in KiB: an exbibyte.
MOST_KIB = 2**50


def other_hosts(attempt: AttemptPaths) -> list[AttemptPaths]:
    """The folders of the hosts beside node 0, whose agent writes to the attempt's own; none for a run on one host."""
    try:
        with os.scandir(attempt.nodes) as entries:
            return [attempt.node(name) for name in sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))]
    except OSError:
        return []


def newest_rss_bytes(host_telemetry: Path) -> int | None:
    """Memory of the whole process tree by the newest sample that has it; None where there is none."""
    try:
        with open(host_telemetry, "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - TAIL_BYTES))
            # What follows the last line end is a row that is still being written.
            rows = source.read(TAIL_BYTES).split(b"\n")[:-1]
    except OSError:
        return None
    return next((found for row in reversed(rows) if (found := _rss_bytes(row)) is not None), None)


def _rss_bytes(row: bytes) -> int | None:
    cells = row.split(b",")
    if len(cells) != len(HOST_COLUMNS):
        return None
    try:
        kib = float(cells[RSS_COLUMN])
    except ValueError:
        return None
    return int(kib * 1024) if 0 <= kib < MOST_KIB else None


@dataclass(frozen=True, kw_only=True)
class Written:
    """What an attempt has written."""

    bytes: int = 0
    largest_file: str = ""
    """Its name within the attempt's folder."""
    largest_bytes: int = 0


class WrittenCount:
    """Counts the files of one attempt: those in its folder, the ranks' output, the stacks, and what other hosts left of both."""

    def __init__(self, attempt: AttemptPaths, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._attempt, self._monotonic = attempt, monotonic
        self._newest = Written()
        self._counted_m: float | None = None

    def look(self) -> Written:
        """The newest count; a new one when the last is old."""
        now_m = self._monotonic()
        if self._counted_m is None or now_m - self._counted_m >= COUNT_EVERY_S:
            self._counted_m, self._newest = now_m, self._count()
        return self._newest

    def _count(self) -> Written:
        total = largest_bytes = 0
        largest = ""
        for path, size in self._files():
            total += size
            if size > largest_bytes:
                largest, largest_bytes = path, size
        name = os.path.relpath(largest, self._attempt.folder) if largest else ""
        return Written(bytes=total, largest_file=name, largest_bytes=largest_bytes)

    def _files(self) -> Iterator[tuple[str, int]]:
        yield from _files_in(str(self._attempt.folder), deeper=0)
        for folder in (self._attempt.rank_logs, self._attempt.stacks, self._attempt.nodes):
            yield from _files_in(str(folder), deeper=DEEPEST)


def _files_in(folder: str, deeper: int) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield from _sizes(entry, deeper)
    except OSError:
        # Gone, or never there: what cannot be listed cannot be counted.
        return


def _sizes(entry: os.DirEntry[str], deeper: int) -> Iterator[tuple[str, int]]:
    try:
        if entry.is_file(follow_symlinks=False):
            yield entry.path, entry.stat(follow_symlinks=False).st_size
        elif deeper and entry.is_dir(follow_symlinks=False):
            yield from _files_in(entry.path, deeper - 1)
    except OSError:
        return
