"""The output of an order's processes, merged: their pipes and the launcher's rank files go to launcher.log, line by line.

In: bytes as they arrive from processes and rank files. Out: launcher.log, whose lines begin with `[rank3]: ` where several processes
write, and launcher_arrivals.csv, with one row (end offset, wall clock, monotonic) for bytes that arrived together. Disk errors do not
affect the run.

Rank files: torchrun creates FOLDER/<id>/attempt_<n>/<local_rank>/{stdout,stderr}.log, one for each rank and stream; deepspeed creates
FOLDER/<date and time>_rank<rank>.log, one for each rank. On many hosts torchrun's names still have local ranks, and `first_rank` is the
rank of the first of them; deepspeed's have global ranks. What was in FOLDER before the run is not followed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.agent.harness import note
from seatrial.core.durable_writes import AppendFile
from seatrial.core.linux import IN_CREATE, IN_MODIFY, IN_MOVED_TO, IN_Q_OVERFLOW, inotify_or_none
from seatrial.core.paths import AttemptPaths
from seatrial.core.shell import PIPE_BYTES
from seatrial.records.columns import ARRIVALS
from seatrial.records.launch import AgentOrder

# Arrivals closer than this share a row: a printing loop must not produce more time stamps than text.
MIN_ARRIVAL_INTERVAL_S = 0.002
# A line that does not end must not fill the memory: it is split at this length.
MAX_PENDING_BYTES = 64 * 1024
STREAM_NAMES = ("stdout.log", "stderr.log")
DEEPSPEED_NAME = re.compile(r"\d{14}_rank(\d{1,9})\.log")
READ_BYTES = 64 * 1024
# Read from one file before the others and the pipes get their turn.
MAX_BYTES_PER_TURN = 1024 * 1024
# A carriage return ends a line too: progress bars have no other line end.
_LINE_END = re.compile(rb"\r\n|\n|\r")


class LogFile:
    """An append-only file that exists from the start; on disk errors the fallback folder is used, and what is lost is counted."""

    def __init__(self, path: Path) -> None:
        self._file = AppendFile(path)
        self._noted_fallback = self._noted_loss = False
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
        self._file.append(data)
        if self._file.lost_bytes and not self._noted_loss:
            self._noted_loss = True
            self._note("the run continues and its output is dropped until there is room")
        elif self._file.fallback_bytes and not self._noted_fallback:
            self._noted_fallback = True
            self._note("the run continues and its output is written to the fallback folder")

    def close(self) -> None:
        self._file.close()

    def _note(self, what: str) -> None:
        note(f"{self._file.path} cannot be written ({self._file.last_error}); {what}")


class MergedLog:
    """launcher.log with its arrival times."""

    def __init__(
        self, log: Path, arrivals: Path, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._arrivals = LogFile(log), LogFile(arrivals)
        self._wall, self._monotonic = wall, monotonic
        self._pending_row: tuple[int, float, float] | None = None
        self._last_row_m = float("-inf")
        if self._arrivals.offset_bytes == 0:
            self._arrivals.append(f"{','.join(ARRIVALS)}\n".encode())

    @property
    def lost_bytes(self) -> int:
        return self._log.lost_bytes

    def append(self, data: bytes) -> None:
        if not data:
            return
        t, m = self._wall(), self._monotonic()
        if m - self._last_row_m >= MIN_ARRIVAL_INTERVAL_S:
            self.write_row()
        self._log.append(data)
        self._pending_row = (self._log.offset_bytes, t, m)
        if m - self._last_row_m >= MIN_ARRIVAL_INTERVAL_S:
            self.write_row()

    def write_row(self) -> None:
        """Write the pending row, with the time at which its bytes arrived."""
        if self._pending_row:
            offset_bytes, t, m = self._pending_row
            self._arrivals.append(f"{offset_bytes},{t:.6f},{m:.6f}\n".encode())
            self._pending_row, self._last_row_m = None, m

    def close(self) -> None:
        self.write_row()
        self._log.close()
        self._arrivals.close()


class LineMarker:
    """Splits the bytes of one source into whole lines, marked with their rank; an unfinished line is kept."""

    def __init__(self, rank: int | None = None) -> None:
        self._mark = b"" if rank is None else b"[rank%d]: " % rank
        self._pending = b""
        self._after_return = False

    def feed(self, data: bytes) -> bytes:
        lines, begin = [], 0
        for end in _LINE_END.finditer(data):
            lines.append(self._marked(self._pending + data[begin : end.end()]))
            self._pending, begin = b"", end.end()
        self._pending += data[begin:]
        if len(self._pending) > MAX_PENDING_BYTES:
            lines.append(self.finish())
        return b"".join(lines)

    def finish(self) -> bytes:
        """The unfinished line, as a line."""
        rest, self._pending = self._pending, b""
        return self._marked(rest + b"\n") if rest else b""

    def _marked(self, line: bytes) -> bytes:
        # A lone return restarts a progress bar, and a newline after a return belongs to the line before: neither is a line of its own.
        bare = line == b"\r" or (line == b"\n" and self._after_return)
        self._after_return = line.endswith(b"\r")
        return line if bare else self._mark + line


class PassThrough:
    """Passes bytes unchanged, where a log has a single source."""

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


@dataclass
class StartedProcess:
    """One started process and its output pipe; `returncode` is None while it lives, `pipe` None after its end."""

    pid: int
    pipe: int | None
    lines: LineMarker | PassThrough
    own_log: LogFile | None
    process: subprocess.Popen[bytes]
    returncode: int | None = None

    def read(self) -> bytes:
        """New output, as it goes into the merged log; at its end the pipe is closed."""
        if self.pipe is None:
            return b""
        try:
            data = os.read(self.pipe, PIPE_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            return self.close()
        if self.own_log:
            self.own_log.append(data)
        return self.lines.feed(data)

    def drain(self, sink: Callable[[bytes], None], timeout_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read what is available, within the timeout: a grandchild may never stop printing."""
        deadline_m = monotonic() + timeout_s
        while self.pipe is not None and _is_readable(self.pipe) and monotonic() < deadline_m:
            sink(self.read())

    def ended(self, returncode: int) -> None:
        # Popen must not wait for what waitpid(-1) has already collected.
        self.returncode = self.process.returncode = returncode

    def close(self) -> bytes:
        """Close the pipe; returns the unfinished line, if any."""
        if self.pipe is None:
            return b""
        os.close(self.pipe)
        self.pipe = None
        if self.own_log:
            self.own_log.close()
        return self.lines.finish()


def _is_readable(fd: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return bool(select.select([fd], [], [], 0)[0])
    return False


class RankFile:
    """One growing file and its read position."""

    def __init__(self, path: Path, rank: int) -> None:
        self.lines = LineMarker(rank)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._read_bytes = 0

    def read(self, max_bytes: int) -> Iterator[bytes]:
        count = 0
        while count < max_bytes and (data := os.read(self._fd, READ_BYTES)):
            count += len(data)
            self._read_bytes += len(data)
            yield self.lines.feed(data)

    @property
    def unread_bytes(self) -> int:
        return max(0, os.fstat(self._fd).st_size - self._read_bytes)

    def close(self) -> None:
        os.close(self._fd)


class RankFiles:
    """All rank files below one folder, followed while they are written; every completed line goes to `sink`."""

    def __init__(self, folder: Path, sink: Callable[[bytes], None], first_rank: int = 0) -> None:
        self._folder, self._sink, self._first_rank = folder, sink, first_rank
        self._files: dict[Path, RankFile] = {}
        self._watched: set[Path] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self._old = set(folder.iterdir())
        self.inotify = inotify_or_none()
        self.needs_polling = self.inotify is None
        self._watch(folder, IN_CREATE | IN_MOVED_TO)

    def on_change(self) -> None:
        if self.inotify is None:
            return
        changes = self.inotify.read()
        if any(change.mask & (IN_CREATE | IN_MOVED_TO | IN_Q_OVERFLOW) for change in changes):
            self.poll()
            return
        for path in dict.fromkeys(change.path for change in changes):
            if path in self._files:
                self._read(self._files[path], MAX_BYTES_PER_TURN)

    def poll(self, max_bytes: int = MAX_BYTES_PER_TURN) -> None:
        """Find new files and read all known ones: the only way without inotify, and a safety net with it."""
        for path, rank in self._find_new():
            with contextlib.suppress(OSError):
                self._files[path] = RankFile(path, rank)
                self._watch(path, IN_MODIFY)
        for file in self._files.values():
            self._read(file, max_bytes)

    def drain(self, timeout_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read everything, in turns, within the timeout: a rank may never stop printing."""
        deadline_m = monotonic() + timeout_s
        self.poll()
        while any(file.unread_bytes for file in self._files.values()) and monotonic() < deadline_m:
            self.poll()

    def finish(self) -> int:
        """Pass on unfinished lines and close, once no rank is left; returns the number of unread bytes."""
        unread_bytes = 0
        for file in self._files.values():
            unread_bytes += file.unread_bytes
            self._sink(file.lines.finish())
            file.close()
        self._files.clear()
        if self.inotify is not None:
            self.inotify.close()
            self.inotify = None
        return unread_bytes

    def _find_new(self) -> Iterator[tuple[Path, int]]:
        """New files and their ranks. Every folder is watched before it is listed, so that no file is missed."""
        found = itertools.chain(self._find_deepspeed(), self._find_torchrun())
        yield from ((path, rank) for path, rank in found if path not in self._files)

    def _find_deepspeed(self) -> Iterator[tuple[Path, int]]:
        for path in _list_folder(self._folder):
            name = DEEPSPEED_NAME.fullmatch(path.name)
            if name and path not in self._old and path.is_file():
                yield path, int(name.group(1))

    def _find_torchrun(self) -> Iterator[tuple[Path, int]]:
        level = [self._folder]
        for _ in ("id", "attempt", "local_rank"):
            for folder in level:
                self._watch(folder, IN_CREATE | IN_MOVED_TO)
            level = [child for folder in level for child in _list_folder(folder) if child.is_dir() and child not in self._old]
        for folder in level:
            self._watch(folder, IN_CREATE | IN_MOVED_TO)
            if folder.name.isdigit() and folder.parent.name.startswith("attempt_"):
                paths = (folder / name for name in STREAM_NAMES)
                yield from ((path, self._first_rank + int(folder.name)) for path in paths if path.is_file())

    def _watch(self, path: Path, mask: int) -> None:
        if self.inotify is None or path in self._watched:
            return
        self._watched.add(path)
        try:
            self.inotify.watch(path, mask)
        except OSError as error:
            note(f"{path} cannot be watched ({error.strerror}); polling the rank files instead")
            self.needs_polling = True

    def _read(self, file: RankFile, max_bytes: int) -> None:
        for lines in file.read(max_bytes):
            self._sink(lines)


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


class Output:
    """All output of one run on this host."""

    def __init__(self, order: AgentOrder) -> None:
        own = AttemptPaths(Path(order.writes_to))
        self._log = MergedLog(own.launcher_log, own.arrivals)
        self._rank_files = RankFiles(Path(order.rank_logs), self._log.append, first_rank=order.first_rank) if order.rank_logs else None
        self._unmerged_bytes = 0

    @property
    def needs_polling(self) -> bool:
        """Whether rank files must be polled, since no event reports all of their changes."""
        return self._rank_files is not None and self._rank_files.needs_polling

    @property
    def events_fd(self) -> int | None:
        """Becomes readable when a rank file has changed; None without inotify."""
        if self._rank_files is None or self._rank_files.inotify is None:
            return None
        return self._rank_files.inotify.fileno()

    def on_events(self) -> None:
        if self._rank_files:
            self._rank_files.on_change()

    def read(self, started: StartedProcess) -> None:
        self._log.append(started.read())

    def poll(self) -> None:
        """Periodic work: the pending row of arrivals, and rank files without events."""
        self._log.write_row()
        if self._rank_files:
            self._rank_files.poll()

    def drain(self, processes: Iterable[StartedProcess], timeout_s: float) -> None:
        """Read what is available, within the timeout. Rank files first: a rank's last lines precede the launcher's summary."""
        if self._rank_files:
            self._rank_files.drain(timeout_s)
        for started in processes:
            started.drain(self._log.append, timeout_s)

    def finish(self, processes: Iterable[StartedProcess]) -> None:
        """Write unfinished lines and close; no process is left that could print."""
        if self._rank_files:
            self._unmerged_bytes = self._rank_files.finish()
        for started in processes:
            self._log.append(started.close())
        self._log.close()

    def describe_losses(self) -> list[str]:
        """What launcher.log does not have."""
        losses = []
        if self._log.lost_bytes:
            losses.append(f"launcher.log lacks {self._log.lost_bytes} bytes that could not be written")
        if self._unmerged_bytes:
            losses.append(f"launcher.log lacks the last {self._unmerged_bytes} bytes of the ranks' own files, which have them")
        return losses
