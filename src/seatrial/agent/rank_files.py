"""Following the files a launcher keeps for its ranks, while they are written.

torchrun makes FOLDER/<id>/attempt_<n>/<local_rank>/{stdout,stderr}.log, one for each rank and stream; deepspeed makes
FOLDER/<date and time>_rank<rank>.log, one for each rank. On many hosts torchrun's names are of local ranks all the same, and
`first_rank` is the rank of the first of them; deepspeed's are of the whole job. What stood in FOLDER before the run is not followed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from seatrial.agent.inotify import IN_CREATE, IN_MODIFY, IN_MOVED_TO, IN_Q_OVERFLOW, Inotify, inotify_or_none
from seatrial.agent.merge import Lines
from seatrial.agent.reports import note

STREAM_NAMES = ("stdout.log", "stderr.log")
DEEPSPEED_NAME = re.compile(r"\d{14}_rank(\d{1,9})\.log")
READ_BYTES = 64 * 1024
# No more than this from one file before the others and the pipes get their turn.
MOST_AT_ONCE_BYTES = 1024 * 1024


class RankFile:
    """One growing file and what of it was taken."""

    def __init__(self, path: Path, rank: int) -> None:
        self.lines = Lines(rank)
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._taken_bytes = 0

    def take(self, most_bytes: int) -> Iterator[bytes]:
        """Lines completed since the last call."""
        taken = 0
        while taken < most_bytes and (data := os.read(self._handle, READ_BYTES)):
            taken += len(data)
            self._taken_bytes += len(data)
            yield self.lines.feed(data)

    @property
    def unread_bytes(self) -> int:
        return max(0, os.fstat(self._handle).st_size - self._taken_bytes)

    def close(self) -> None:
        os.close(self._handle)


class RankFiles:
    """All rank files below one folder; every completed line goes to `sink`."""

    def __init__(self, folder: Path, sink: Callable[[bytes], None], inotify: Inotify | None = None, first_rank: int = 0) -> None:
        self._folder, self._sink, self._first_rank = folder, sink, first_rank
        self._files: dict[Path, RankFile] = {}
        self._watched: set[Path] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self._old = set(folder.iterdir())
        self.inotify = inotify or inotify_or_none()
        self.by_clock = self.inotify is None
        self._watch(folder, IN_CREATE | IN_MOVED_TO)

    def on_change(self) -> None:
        """Read what inotify says has changed."""
        if self.inotify is None:
            return
        changes = self.inotify.read()
        if any(change.mask & (IN_CREATE | IN_MOVED_TO | IN_Q_OVERFLOW) for change in changes):
            self.look()
            return
        for path in dict.fromkeys(change.path for change in changes):
            if path in self._files:
                self._take(self._files[path], MOST_AT_ONCE_BYTES)

    def look(self, most_bytes: int = MOST_AT_ONCE_BYTES) -> None:
        """Find new files and read what every known one has to give: the way without inotify, and the safe one beside it."""
        for path, rank in self._find():
            with contextlib.suppress(OSError):
                self._files[path] = RankFile(path, rank)
                self._watch(path, IN_MODIFY)
        for file in self._files.values():
            self._take(file, most_bytes)

    def drain(self, longest_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read all there is, turn about, for a while at most: a rank that still prints may never come to an end."""
        until_m = monotonic() + longest_s
        self.look()
        while any(file.unread_bytes for file in self._files.values()) and monotonic() < until_m:
            self.look()

    def finish(self) -> int:
        """Unfinished lines too, then close; called when nobody writes any more. The bytes that were never read."""
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

    def _find(self) -> Iterator[tuple[Path, int]]:
        """New files and their ranks; every folder on the way is watched before it is listed, so that nothing can appear unseen."""
        found = itertools.chain(self._of_deepspeed(), self._of_torchrun())
        yield from ((path, rank) for path, rank in found if path not in self._files)

    def _of_deepspeed(self) -> Iterator[tuple[Path, int]]:
        for path in _entries(self._folder):
            name = DEEPSPEED_NAME.fullmatch(path.name)
            if name and path not in self._old and path.is_file():
                yield path, int(name.group(1))

    def _of_torchrun(self) -> Iterator[tuple[Path, int]]:
        level = [self._folder]
        for _ in ("id", "attempt", "local_rank"):
            for folder in level:
                self._watch(folder, IN_CREATE | IN_MOVED_TO)
            level = [child for folder in level for child in _folders(folder) if child not in self._old]
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
            note(f"{path} cannot be watched ({error.strerror}); looking at the rank files by the clock instead")
            self.by_clock = True

    def _take(self, file: RankFile, most_bytes: int) -> None:
        for lines in file.take(most_bytes):
            self._sink(lines)


def _folders(folder: Path) -> list[Path]:
    return [child for child in _entries(folder) if child.is_dir()]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
