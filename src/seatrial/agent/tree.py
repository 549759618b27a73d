"""The agent's descendants: adopting orphans, collecting exit codes, signalling all of them.

As a child subreaper the agent becomes the parent of every process whose own parent ended, so nothing that a run starts can leave
the tree, whatever sessions and process groups it makes for itself. `reap()` finding no child therefore means that none is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable

import psutil

from seatrial.agent.reports import note

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it (Linux)."""
    if not _prctl(_PR_SET_CHILD_SUBREAPER, 1):
        note("this kernel has no child subreaper: processes that detach themselves may outlive the run")


def die_with_parent() -> None:
    """Ask the kernel to send TERM to this process when its parent dies; called in a child before it executes its program."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def reap() -> tuple[dict[int, int], bool]:
    """Exit codes (a signal is negative) of children that ended since the last call, and whether any child is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = os.waitstatus_to_exitcode(status)


def descendants() -> list[psutil.Process]:
    """Every living process below this one, at this moment."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process for process in psutil.Process().children(recursive=True) if not _is_zombie(process)]
    return []


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> set[int]:
    """Signal each process; the pids of those that were there to get it."""
    reached: set[int] = set()
    for process in processes:
        try:
            process.send_signal(number)
            reached.add(process.pid)
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied:
            note(f"process {process.pid} belongs to another user and cannot be signalled")
    return reached


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _prctl(option: int, value: int) -> bool:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
