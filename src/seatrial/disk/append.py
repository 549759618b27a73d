"""Appending that survives a bad disk: try again, then write elsewhere, and put it back when the disk is well.

In: bytes for a file that only grows. Out: the file; where it cannot be written (EIO, ENOSPC, a file system turned read-only …), the
rest of the bytes in this host's fallback folder (`seatrial.disk.fallback`), from where the writer itself, every few seconds, or
`merge_back` appends them to the file. Order is kept: while a file has something elsewhere, everything after goes there.
Standard library only: the probe uses it inside the training.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from seatrial.disk import fallback, merging
from seatrial.disk.modes import READABLE
from seatrial.disk.sizes import size_bytes

# What a disk says that may be well again in a moment: a rotated log makes room, a server comes back.
TROUBLE = frozenset(
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
HEAL_EVERY_S = 5.0


class AppendFile:
    """One file, one writer: opened at the first write, by the process that made it; a forked child writes nothing."""

    def __init__(
        self,
        path: Path,
        mode: int = READABLE,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        fallback_root: Path | None = None,
    ) -> None:
        self.path = path
        self.lost_bytes = 0
        self.fallback_bytes = 0
        self.last_error = ""
        self._mode, self._sleep, self._monotonic = mode, sleep, monotonic
        self._among = [fallback_root] if fallback_root else None
        self._pid = os.getpid()
        self._handle: int | None = None
        self._real: Path | None = None
        self._size: int | None = None
        self._is_aside: bool | None = None
        self._is_torn = False
        self._in_trouble = False
        self._heal_at_m = 0.0

    @property
    def offset_bytes(self) -> int:
        """How long the file is, with what of it lies elsewhere."""
        if self._size is None:
            kept = fallback.entries_of(self._target, fallback.APPEND, self._among)
            self._size = size_bytes(self.path) + sum(map(fallback.kept_bytes, kept))
        return self._size

    def append(self, data: bytes, *, to_disk: bool = False) -> bool:
        """Write all of `data`, here or elsewhere; False when it is lost. Never raises OSError. With `to_disk` it is on the disk when
        this returns: a network disk tells only then that it is full."""
        if not data or os.getpid() != self._pid:
            return not data
        before = self.offset_bytes
        # Half a line that could neither be ended nor taken back is left behind, and the next one starts on a line of its own.
        data = b"\n" * self._is_torn + data
        rest = data if self._goes_aside() else self._write_here(data, to_disk)
        is_written = not rest or self._write_aside(rest)
        if is_written:
            self._is_torn, rest = False, b""
        else:
            self._is_torn = self._is_torn or len(rest) < len(data)
            self.lost_bytes += len(rest)
        self._size = before + len(data) - len(rest)
        return is_written

    def close(self) -> bool:
        """False when the disk tells only now that it lost something; the file is closed all the same."""
        handle, self._handle = self._handle, None
        try:
            # A forked child's copy of the handle is its own to close.
            if handle is not None:
                os.close(handle)
        except OSError as error:
            self.last_error = said(error)
            return False
        return True

    @property
    def _target(self) -> Path:
        if self._real is None:
            self._real = fallback.real(self.path)
        return self._real

    def _goes_aside(self) -> bool:
        """Whether something of the file lies elsewhere still, after trying now and then to bring it back."""
        if self._is_aside is False:
            return False
        self._is_aside = bool(fallback.entries_of(self._target, fallback.APPEND, self._among))
        if self._is_aside and self._monotonic() >= self._heal_at_m:
            self._heal_at_m = self._monotonic() + HEAL_EVERY_S
            self._is_aside = not merging.merge_file(self._target, self._among)
        return self._is_aside

    def _write_here(self, data: bytes, to_disk: bool) -> bytes:
        """What of `data` could not be written: nothing, all of it, or its end where the beginning could not be taken back."""
        # To wait before every write while the trouble goes on would hold up the training for ever.
        waits_s = () if self._in_trouble else RETRY_AFTER_S
        for wait_s in (*waits_s, None):
            data, error = self._try(data, to_disk)
            self._in_trouble = error is not None
            if error is None:
                break
            self.last_error = said(error)
            self._let_go()
            if wait_s is None or error.errno not in TROUBLE:
                break
            self._sleep(wait_s)
        return data

    def _try(self, data: bytes, to_disk: bool) -> tuple[bytes, OSError | None]:
        handle, written = None, 0
        try:
            handle = self._open()
            while written < len(data):
                written += os.write(handle, memoryview(data)[written:])
            if to_disk:
                os.fsync(handle)
        except OSError as error:
            # What was written whole and did not reach the disk is written again: twice is better than not at all.
            is_whole = written in (0, len(data)) or handle is None
            if handle is not None and written and _taken_back(handle, written):
                is_whole = True
            return (data if is_whole else data[written:]), error
        return b"", None

    def _open(self) -> int:
        if self._handle is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, self._mode)
        return self._handle

    def _let_go(self) -> None:
        """After ESTALE and its like only a new handle helps."""
        with contextlib.suppress(OSError):
            if self._handle is not None:
                os.close(self._handle)
        self._handle = None

    def _write_aside(self, data: bytes) -> bool:
        if not fallback.keep(self._target, data, self.last_error, self._mode, self._among):
            return False
        if not self._is_aside:
            self._is_aside = True
            self._heal_at_m = self._monotonic() + HEAL_EVERY_S
        self.fallback_bytes += len(data)
        return True


def put_aside(path: Path, data: bytes, error: OSError, mode: int = READABLE) -> bool:
    """Keep a whole file that could not be written; it takes the place of `path` at `merge_back`, unless a newer one stands there."""
    return fallback.keep_whole(fallback.real(path), data, said(error), mode)


def forget(path: Path) -> None:
    """Drop a whole file that was kept for `path`: a newer one was written where it belongs."""
    fallback.drop(fallback.real(path), fallback.WHOLE)


def forget_lines(path: Path) -> None:
    """Drop what was kept to be appended to `path`: the whole of it was written anew, from the sources of every line."""
    fallback.drop(fallback.real(path), fallback.APPEND)


def kept_elsewhere(path: Path) -> Path | None:
    """Where the newest bytes of a file lie while they could not be written to it (after one line about them); else None."""
    entries = fallback.entries_of(fallback.real(path), fallback.APPEND)
    return entries[-1] if entries else None


def tried(act: Callable[[], None], sleep: Callable[[float], None] = time.sleep) -> OSError | None:
    """Do something to a file, again when its disk is in trouble; the last error when it never went well."""
    for wait_s in (*RETRY_AFTER_S, None):
        try:
            act()
            return None
        except OSError as error:
            if wait_s is None or error.errno not in TROUBLE:
                return error
            sleep(wait_s)
    return None


def said(error: OSError) -> str:
    return error.strerror or str(error)


def _taken_back(handle: int, written: int) -> bool:
    """Cut off the bytes just written; False when they stay. Where others have written after them, all is to be written again."""
    try:
        end = os.lseek(handle, 0, os.SEEK_CUR)
        if os.fstat(handle).st_size == end:
            os.ftruncate(handle, end - written)
        return True
    except OSError:
        return False
