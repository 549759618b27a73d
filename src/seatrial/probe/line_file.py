"""An append-only file that can fail without harming anyone: what cannot be written is dropped and counted.

In: lists of whole lines. Out: the file, and `lost_lines` with `last_error` for the heartbeat to tell.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)


class LineFile:
    """Opened at the first write, by the process that made it; a forked child writes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost_lines = 0
        self.last_error = ""
        self._pid = os.getpid()
        self._handle: int | None = None
        self._torn = False

    def write(self, lines: Sequence[str]) -> None:
        """Append the lines in one write where the system allows it."""
        if not lines or os.getpid() != self._pid:
            return
        try:
            self._append(("\n" * self._torn + "\n".join(lines) + "\n").encode())
        except OSError as error:
            self._give_up(len(lines), error)

    def close(self) -> None:
        if self._handle is not None and os.getpid() == self._pid:
            handle, self._handle = self._handle, None
            os.close(handle)

    def _append(self, data: bytes) -> None:
        if self._handle is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        rest = memoryview(data)
        while rest:
            # A full disk may take half a line; the next write then starts on a line of its own.
            written = os.write(self._handle, rest)
            rest = rest[written:]
            self._torn = bool(rest)

    def _give_up(self, count: int, error: OSError) -> None:
        if not self.lost_lines:
            log.warning("cannot write %s (%s): training goes on, its measurements are being lost", self.path, error)
        self.lost_lines += count
        self.last_error = str(error)
