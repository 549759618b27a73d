"""Linux's inotify through ctypes: told when files under a folder appear or grow, without looking all the time.

In: folders to watch. Out: what has changed in them since the last call, and a file number to wait for; an OSError where the kernel gives no
(more) watches.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from dataclasses import dataclass
from pathlib import Path

IN_MODIFY = 0x00000002
IN_MOVED_TO = 0x00000080
IN_CREATE = 0x00000100
IN_Q_OVERFLOW = 0x00004000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


@dataclass(frozen=True)
class Change:
    """One event: the watched path it happened to (None when events were lost) and its mask."""

    path: Path | None
    mask: int


class Inotify:
    """One inotify instance; raises OSError where the kernel has none to give."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._paths: dict[int, Path] = {}
        self._handle = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        return self._handle

    def watch(self, path: Path, mask: int) -> None:
        """Report `mask` events of a folder or a file from now on."""
        watch = self._checked(self._libc.inotify_add_watch(self._handle, os.fsencode(path), mask))
        self._paths[watch] = path

    def read(self) -> list[Change]:
        """What happened since the last call, [] when nothing did."""
        changes: list[Change] = []
        with contextlib.suppress(BlockingIOError):
            changes = self._decoded(os.read(self._handle, _READ_BYTES))
        return changes

    def close(self) -> None:
        os.close(self._handle)

    def _decoded(self, data: bytes) -> list[Change]:
        changes, position = [], 0
        while position + _EVENT.size <= len(data):
            watch, mask, _, name_bytes = _EVENT.unpack_from(data, position)
            position += _EVENT.size + name_bytes
            changes.append(Change(self._paths.get(watch), mask))
        return changes

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result


def inotify_or_none() -> Inotify | None:
    """An instance, or None where the system has none (or no more of them): the caller then looks by itself."""
    try:
        return Inotify()
    except (OSError, AttributeError):
        return None
