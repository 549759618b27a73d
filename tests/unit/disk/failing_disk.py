"""A disk that fails to order, and lines that were kept elsewhere meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from seatrial.disk import fallback
from seatrial.disk.append import AppendFile

FULL = "No space left on device"
REAL_WRITE = os.write


class Disk:
    """Makes writes to one file fail, after half of the first one went in; other files are as they are."""

    def __init__(self, target: Path) -> None:
        self.target, self.error, self.takes_half = target, 0, False

    def write(self, handle: int, data: bytes) -> int:
        if not self.error or os.readlink(f"/proc/self/fd/{handle}") != str(self.target):  # noqa: PTH115
            return REAL_WRITE(handle, data)
        if self.takes_half and len(data) > 1:
            self.takes_half = False
            return REAL_WRITE(handle, bytes(data)[: len(data) // 2])
        raise OSError(self.error, os.strerror(self.error))

    def fail(self, error: int = errno.ENOSPC, *, takes_half: bool = True) -> None:
        self.error, self.takes_half = error, takes_half

    def mend(self) -> None:
        self.error = 0


def opened(path: Path, now_m: float = 0.0) -> AppendFile:
    return AppendFile(path, sleep=lambda _: None, monotonic=lambda: now_m)


def kept_lines(home: Path, *lines: bytes, before: bytes = b"before\n") -> Path:
    """A file with lines of it elsewhere, as left by a writer that has gone."""
    target = home / "a.jsonl"
    target.write_bytes(before)
    assert fallback.keep(target, b"".join(lines), FULL, 0o644)
    return target
