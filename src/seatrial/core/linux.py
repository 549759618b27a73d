"""Calls to Linux and to the interpreter: prctl, child processes, the file descriptor limit, inotify, the garbage collector.

Standard library only: workloads use it too. Python has no binding of prctl. inotify is called by ctypes and not by watchfiles, which runs
its own thread: the agent waits for inotify together with sockets and pipes, which needs the bare file descriptor.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OWN_TASKS = Path("/proc/self/task")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61


def set_subreaper(enabled: bool = True) -> bool:
    """Become the child subreaper, the parent of every orphan below this process, or cease to be. False where the kernel has none."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, int(enabled))


def set_parent_death_signal(number: signal.Signals) -> bool:
    """Get this signal when the thread that started this process ends. A parent that is already gone sends none: check os.getppid()."""
    return _prctl(_PR_SET_PDEATHSIG, number)


def allow_ptrace(pid: int) -> bool:
    """Let `pid` attach to this process, where Yama allows only ancestors."""
    return _prctl(_PR_SET_PTRACER, pid)


def child_pids(tasks: Path = OWN_TASKS) -> set[int]:
    """Direct children that are not reaped yet; none where the kernel does not list them."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(tasks):  # noqa: PTH208 (a race that a Path for each would lose)
            with contextlib.suppress(OSError), open(f"{tasks}/{task}/children", "rb", buffering=0) as listed:
                found.update(int(pid) for pid in listed.read(64 * 1024).split())
    return found


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def raise_fd_limit(wanted: int) -> int:
    """Raise the soft limit of open files to `wanted`, or as far as the hard limit allows; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        soft = max(soft, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


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
    """One inotify instance: what appeared or grew under watched paths. OSError where the kernel has no (more) watches."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._paths: dict[int, Path] = {}
        self._handle = _checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        return self._handle

    def watch(self, path: Path, mask: int) -> None:
        """Report `mask` events of a folder or file from now on."""
        watch = _checked(self._libc.inotify_add_watch(self._handle, os.fsencode(path), mask))
        self._paths[watch] = path

    def read(self) -> list[Change]:
        """What happened since the last call, [] when nothing did."""
        changes: list[Change] = []
        with contextlib.suppress(BlockingIOError):
            changes = self._decode(os.read(self._handle, _READ_BYTES))
        return changes

    def close(self) -> None:
        os.close(self._handle)

    def _decode(self, data: bytes) -> list[Change]:
        changes, position = [], 0
        while position + _EVENT.size <= len(data):
            watch, mask, _, name_bytes = _EVENT.unpack_from(data, position)
            position += _EVENT.size + name_bytes
            changes.append(Change(self._paths.get(watch), mask))
        return changes


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def inotify_or_none() -> Inotify | None:
    """An instance, or None where the system has none (or no more of them): the caller then polls."""
    try:
        return Inotify()
    except (OSError, AttributeError):
        return None


@contextlib.contextmanager
def garbage_collector_off() -> Iterator[None]:
    """Turn the garbage collector off within the block: with many objects it costs time, and sometimes nothing may be freed.

    Objects outside of reference cycles are still freed at once.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
