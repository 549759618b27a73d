"""What all hosts of an attempt printed.

In: an attempt's folder. Out: `logs_of`: each host's launcher.log; and the last lines of all of them as one text for
collect.failure.cause, in the order in which they arrived by one clock, each marked `[host NAME]: ` where there are several. Lines of one
host stay in their order whatever its arrivals say.
"""

from __future__ import annotations

import bisect
import heapq
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.hosts.folders import HostFolder, host_folders
from seatrial.collect.logs.arrivals import Arrival, read_arrivals
from seatrial.collect.logs.line_marks import host_mark
from seatrial.collect.stored import read_nodes
from seatrial.disk.append import kept_elsewhere
from seatrial.files import open_file, tail_lines
from seatrial.paths import AttemptPaths

LEAST_LINES = 40
"""Of each host, however many there are: a traceback is as long."""
LEAST_BYTES = 2 << 10
MOST_SHOWN = 200
"""So many are the end of a log for a reader. More are to be searched for a cause, which the host that failed first printed first: of each
host some must be there, whatever the others print afterwards."""


@dataclass(frozen=True, kw_only=True)
class HostLog:
    """One host's output."""

    host: str
    """Empty for a run on one host."""
    path: Path


def logs_of(attempt: AttemptPaths) -> list[HostLog]:
    """Node 0's first."""
    return [HostLog(host=folder.name, path=folder.paths.launcher_log) for folder in _folders(attempt)]


def last_lines(attempt: AttemptPaths, count: int, most_bytes: int, host: str = "") -> list[str]:
    """The newest lines of all hosts together, or of `host` alone, `count` of them; where more than MOST_SHOWN are asked for, LEAST_LINES
    of each host at least, within `most_bytes` of all. Of one host its own, without a mark."""
    folders = _folders(attempt)
    if len(folders) == 1:
        return _own_lines(folders[0].paths.launcher_log, count, most_bytes)
    folders = [folder for folder in folders if folder.name == host] or folders
    each, each_bytes = max(min(count, LEAST_LINES), count // len(folders)), max(most_bytes // len(folders), LEAST_BYTES)
    # A stable merge: hosts' own order holds, and of lines that came at one moment node 0's stand first.
    merged = heapq.merge(*(list(_stamped(folder, each, each_bytes)) for folder in folders), key=lambda line: line[0])
    lines = [text for _, text in merged]
    return lines[-count:] if count <= MOST_SHOWN else lines


def _folders(attempt: AttemptPaths) -> list[HostFolder]:
    return host_folders(attempt, read_nodes(attempt)[0])


def _own_lines(log: Path, count: int, most_bytes: int) -> list[str]:
    """With what lies elsewhere while its disk fails."""
    elsewhere = kept_elsewhere(log)
    return [line for path in (log, elsewhere) if path for line in tail_lines(path, count, most_bytes)][-count:]


def _stamped(folder: HostFolder, count: int, most_bytes: int) -> Iterator[tuple[float, str]]:
    """(when by the harness's clock, marked line); times never go back."""
    log, mark = folder.paths.launcher_log, host_mark(folder.name)
    lines = _own_lines(log, count, most_bytes)
    rows = read_arrivals(folder.paths.arrivals).rows
    size = _size_of(log)
    ends = _ends(lines, size)
    at_t = -math.inf
    for line, end in zip(lines, ends, strict=True):
        at_t = max(at_t, _arrived(rows, end) - folder.offset_s)
        yield at_t, f"{mark}{line}"


def _ends(lines: list[str], size: int) -> list[int]:
    """About where each line ends in the file, counted from its end: bytes that are no UTF-8 make it a little less."""
    ends, end = [], size
    for line in reversed(lines):
        ends.append(end)
        end -= len(line.encode("utf-8", errors="replace")) + 1
    return ends[::-1]


def _arrived(rows: Sequence[Arrival], end: int) -> float:
    at = bisect.bisect_left(rows, end, key=lambda row: row.end_bytes)
    t = rows[at].t if at < len(rows) else rows[-1].t if rows else -math.inf
    return t if math.isfinite(t) else -math.inf


def _size_of(log: Path) -> int:
    try:
        with open_file(log) as source:
            return os.fstat(source.fileno()).st_size
    except OSError:
        return 0
