"""launcher.log and launcher_arrivals.csv: one writer, every byte stamped, and a bad disk that costs the run nothing.

In: bytes as they arrive from processes and rank files. Out: the merged log, whose lines carry `[rank3]: ` where several processes
write, and one row (end offset, wall clock, monotonic) for what arrived together, so that a reader knows when any byte came.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from seatrial.agent.reports import note
from seatrial.disk.append import AppendFile
from seatrial.records.columns import ARRIVALS

# Closer arrivals than this share a row: a printing loop must not write more stamps than text.
ARRIVALS_APART_S = 0.002
# A process that never ends its line must not fill the memory; its text is cut here into lines.
LONGEST_PENDING_BYTES = 64 * 1024

# A carriage return ends a line too: progress bars have no other.
_LINE_END = re.compile(rb"\r\n|\n|\r")


class LogFile:
    """An append-only file that is there from the start; what its disk does not take is kept elsewhere, what nobody takes is counted."""

    def __init__(self, path: Path) -> None:
        self._file = AppendFile(path)
        self._told_kept = self._told_lost = False
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    @property
    def offset_bytes(self) -> int:
        return self._file.offset_bytes

    @property
    def lost_bytes(self) -> int:
        return self._file.lost_bytes

    def append(self, data: bytes) -> None:
        """Write all of `data`, or as much as any disk takes."""
        self._file.append(data)
        if self._file.lost_bytes and not self._told_lost:
            self._told_lost = True
            self._say("the run goes on and its output is dropped until there is room")
        elif self._file.fallback_bytes and not self._told_kept:
            self._told_kept = True
            self._say("the run goes on and its output is kept elsewhere until it can")

    def close(self) -> None:
        self._file.close()

    def _say(self, what: str) -> None:
        note(f"{self._file.path} cannot be written ({self._file.last_error}); {what}")


class MergedLog:
    """launcher.log with its arrival times."""

    def __init__(
        self, log: Path, arrivals: Path, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._arrivals = LogFile(log), LogFile(arrivals)
        self._wall, self._monotonic = wall, monotonic
        self._waiting: tuple[int, float, float] | None = None
        self._last_row_m = float("-inf")
        if self._arrivals.offset_bytes == 0:
            self._arrivals.append(f"{','.join(ARRIVALS)}\n".encode())

    def append(self, data: bytes) -> None:
        """Add bytes that arrived now."""
        if not data:
            return
        t, m = self._wall(), self._monotonic()
        if m - self._last_row_m >= ARRIVALS_APART_S:
            self.stamp()
        self._log.append(data)
        self._waiting = (self._log.offset_bytes, t, m)
        if m - self._last_row_m >= ARRIVALS_APART_S:
            self.stamp()

    def stamp(self) -> None:
        """Write the row that still waits, with the time at which its bytes came."""
        if self._waiting:
            offset_bytes, t, m = self._waiting
            self._arrivals.append(f"{offset_bytes},{t:.6f},{m:.6f}\n".encode())
            self._waiting, self._last_row_m = None, m

    def close(self) -> None:
        self.stamp()
        self._log.close()
        self._arrivals.close()

    @property
    def lost_bytes(self) -> int:
        return self._log.lost_bytes


class Lines:
    """Bytes of one source in, whole marked lines out; what is not yet a line waits."""

    def __init__(self, rank: int | None = None) -> None:
        self._mark = b"" if rank is None else b"[rank%d]: " % rank
        self._pending = b""
        self._after_return = False

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` completes."""
        lines, begin = [], 0
        for end in _LINE_END.finditer(data):
            lines.append(self._marked(self._pending + data[begin : end.end()]))
            self._pending, begin = b"", end.end()
        self._pending += data[begin:]
        if len(self._pending) > LONGEST_PENDING_BYTES:
            lines.append(self.finish())
        return b"".join(lines)

    def finish(self) -> bytes:
        """What was printed without a line end, as a line."""
        rest, self._pending = self._pending, b""
        return self._marked(rest + b"\n") if rest else b""

    def _marked(self, line: bytes) -> bytes:
        # A lone return starts a bar anew, and a newline after a return belongs to the line before: neither is a line of its own.
        bare = line == b"\r" or (line == b"\n" and self._after_return)
        self._after_return = line.endswith(b"\r")
        return line if bare else self._mark + line


class Verbatim:
    """The only source of a log: bytes pass as they come."""

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""
