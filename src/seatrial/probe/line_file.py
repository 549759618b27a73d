"""An append-only file that can fail without harming anyone: on a bad disk its lines go elsewhere, and are dropped and counted only
where there is no elsewhere either.

In: lists of whole lines. Out: the file (see seatrial.disk.append), and a remark for the heartbeat to tell.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from seatrial.disk.append import AppendFile

log = logging.getLogger(__name__)


class LineFile:
    """Opened at the first write, by the process that made it; a forked child writes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost_lines = 0
        self._pid = os.getpid()
        self._file = AppendFile(path)
        self._told = False

    @property
    def last_error(self) -> str:
        return self._file.last_error

    def write(self, lines: Sequence[str]) -> None:
        """Append the lines, all or none of them."""
        if not lines or os.getpid() != self._pid:
            return
        if not self._file.append(("\n".join(lines) + "\n").encode()):
            self.lost_lines += len(lines)
        if (self.lost_lines or self._file.fallback_bytes) and not self._told:
            self._told = True
            meanwhile = "its measurements are being lost" if self.lost_lines else "its measurements are kept elsewhere"
            log.warning("cannot write %s (%s): training goes on, %s", self.path, self.last_error, meanwhile)

    def remark(self, what: str) -> str:
        """What a reader of heartbeats should know of this file; empty when all is well."""
        if self.lost_lines:
            return f"{self.lost_lines} {what} lines lost: {self.last_error}"
        return f"some {what} lines had to go elsewhere: {self.last_error}" if self._file.fallback_bytes else ""

    def close(self) -> None:
        if os.getpid() == self._pid:
            self._file.close()
