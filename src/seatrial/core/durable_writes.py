"""Writes that survive a failing disk: retry, then write to the fallback folder, and merge it back once the disk works.

In: bytes for a file that only grows, or a whole file. Out: the file; where it cannot be written (EIO, ENOSPC, a file system turned
read-only …), the bytes in this host's fallback folder (`core.fallback`). The writer itself, every few seconds, or `merge_fallback` appends
them to the file. Order is kept: while a file has bytes in the fallback folder, later ones go there too.
Standard library only: the probe uses it inside the training.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seatrial.core import fallback
from seatrial.core.files import READABLE, json_text, size_bytes, write_text

# Errors that may be gone in a moment: a rotated log makes room, a server comes back.
DISK_ERRNOS = frozenset(
    {
        errno.EIO,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.EREMOTEIO,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENODEV,
        errno.ENXIO,
        errno.EAGAIN,
    }
)
RETRY_AFTER_S = (0.1, 0.2)
MERGE_EVERY_S = 5.0


class AppendFile:
    """One file, one writer: opened at the first write, by the process that created this; a forked child writes nothing."""

    def __init__(self, path: Path, *, sleep: Callable[[float], None] = time.sleep, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.lost_bytes = 0
        self.fallback_bytes = 0
        self.last_error = ""
        self._sleep, self._monotonic = sleep, monotonic
        self._pid = os.getpid()
        self._handle: int | None = None
        self._real: Path | None = None
        self._size: int | None = None
        self._in_fallback: bool | None = None
        self._is_torn = False
        self._is_failing = False
        self._merge_at_m = 0.0

    @property
    def offset_bytes(self) -> int:
        """Size of the file, with its bytes in the fallback folder."""
        if self._size is None:
            self._size = size_bytes(self.path) + fallback.spilled_bytes(self._target)
        return self._size

    def append(self, data: bytes, *, fsync: bool = False) -> bool:
        """Write all of `data`, to the file or the fallback folder; False when it is lost. Never raises OSError. With `fsync` it is on
        disk when this returns: only then does a network disk report that it is full."""
        if not data or os.getpid() != self._pid:
            return not data
        before = self.offset_bytes
        # A torn line that could not be truncated stays, and the next one starts on a new line.
        data = b"\n" * self._is_torn + data
        rest = data if self._uses_fallback() else self._write_to_file(data, fsync)
        is_written = not rest or self._write_to_fallback(rest)
        if is_written:
            self._is_torn, rest = False, b""
        else:
            self._is_torn = self._is_torn or len(rest) < len(data)
            self.lost_bytes += len(rest)
        self._size = before + len(data) - len(rest)
        return is_written

    def close(self) -> bool:
        """Close the file; False if the disk reports only now that it lost data."""
        handle, self._handle = self._handle, None
        try:
            # A forked child's copy of the handle is its own to close.
            if handle is not None:
                os.close(handle)
        except OSError as error:
            self.last_error = error.strerror or str(error)
            return False
        return True

    @property
    def _target(self) -> Path:
        if self._real is None:
            self._real = fallback.real(self.path)
            # Cached now, since a failing disk cannot be read.
            fallback.campaign_of(self._real)
        return self._real

    def _uses_fallback(self) -> bool:
        """Whether the fallback folder still holds bytes of the file, after trying now and then to merge them."""
        if self._in_fallback is False:
            return False
        self._in_fallback = bool(fallback.entries_of(self._target, fallback.APPEND))
        if self._in_fallback and self._monotonic() >= self._merge_at_m:
            self._merge_at_m = self._monotonic() + MERGE_EVERY_S
            self._in_fallback = not fallback.merge_file(self._target)
        return self._in_fallback

    def _write_to_file(self, data: bytes, fsync: bool) -> bytes:
        """The part of `data` that could not be written: nothing, all of it, or its end where the beginning could not be truncated."""
        # Waiting at every write to a disk that keeps failing would hold up the training.
        waits_s = () if self._is_failing else RETRY_AFTER_S
        for wait_s in (*waits_s, None):
            data, error = self._try(data, fsync)
            self._is_failing = error is not None
            if error is None:
                break
            self.last_error = error.strerror or str(error)
            self._close_after_error()
            if wait_s is None or error.errno not in DISK_ERRNOS:
                break
            self._sleep(wait_s)
        return data

    def _try(self, data: bytes, fsync: bool) -> tuple[bytes, OSError | None]:
        handle, written = None, 0
        try:
            handle = self._open()
            while written < len(data):
                written += os.write(handle, memoryview(data)[written:])
            if fsync:
                os.fsync(handle)
        except OSError as error:
            if handle is not None and written and _truncate_back(handle, written):
                return data, error
            # Data that was written but not synced is written again: better twice than not at all.
            return (data if written in (0, len(data)) else data[written:]), error
        return b"", None

    def _open(self) -> int:
        if self._handle is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, READABLE)
        return self._handle

    def _close_after_error(self) -> None:
        """After ESTALE and similar errors only a new file descriptor helps."""
        with contextlib.suppress(OSError):
            if self._handle is not None:
                os.close(self._handle)
        self._handle = None

    def _write_to_fallback(self, data: bytes) -> bool:
        if not fallback.spill_bytes(self._target, data, self.last_error, READABLE):
            return False
        if not self._in_fallback:
            self._in_fallback = True
            self._merge_at_m = self._monotonic() + MERGE_EVERY_S
        self.fallback_bytes += len(data)
        return True


def _retry(act: Callable[[], None], sleep: Callable[[float], None] = time.sleep) -> OSError | None:
    """Call `act`, again while its disk fails; returns the last error if it never succeeds."""
    for wait_s in (*RETRY_AFTER_S, None):
        try:
            act()
            return None
        except OSError as error:
            if wait_s is None or error.errno not in DISK_ERRNOS:
                return error
            sleep(wait_s)
    return None


def _truncate_back(handle: int, written: int) -> bool:
    """Truncate the bytes just written; False when they stay. Where others have written after them, all of it is written again."""
    try:
        end = os.lseek(handle, 0, os.SEEK_CUR)
        if os.fstat(handle).st_size == end:
            os.ftruncate(handle, end - written)
        return True
    except OSError:
        return False


def write_text_durably(path: Path, text: str, mode: int = READABLE, sleep: Callable[[float], None] = time.sleep) -> bool:
    """As `write_text`; on a failing disk retried, then spilled to the fallback folder. False if lost."""
    error = _retry(lambda: write_text(path, text, mode), sleep)
    if error is not None:
        return fallback.spill_file(path, text.encode(errors="backslashreplace"), error.strerror or str(error), mode)
    fallback.discard_spilled_file(path)
    return True


def write_json_durably(path: Path, value: Any) -> bool:
    """As `write_json`, likewise durable."""
    return write_text_durably(path, json_text(value))


def append_line_durably(path: Path, line: str, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Append one line in one write, on disk when this returns; on a failing disk spilled to the fallback folder. False if lost."""
    file = AppendFile(path, sleep=sleep)
    try:
        return file.append((line + "\n").encode(errors="backslashreplace"), fsync=True)
    finally:
        file.close()
