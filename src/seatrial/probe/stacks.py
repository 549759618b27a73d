"""Stacks of all threads, written by the process itself at a signal. In: the name of the signal and a file. Out: a dump in that file.

faulthandler writes them at C level: also while the main thread is stuck in C, with or without the GIL. Within one dump threads are
separated by a blank line; a thread's line right after a frame begins the next dump.

The signal kills a process that has no handler for it. So the handler, once registered, stays until the interpreter ends, longer than its
probe, since the harness may signal at any time; from then on the signal is ignored.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

DEFAULT_STACK_SIGNAL = "USR2"
STACK_SIGNALS = ("USR1", "USR2", "WINCH", "URG", "IO", "PWR")
"""Signals that launchers, shells and Python do not use to end, stop or control a process."""
NO_SIGNAL = ("", "NONE")
OWN_STATUS = Path("/proc/self/status")
SIGNAL_MASKS = ("SigBlk", "SigIgn", "SigCgt")


@dataclass(frozen=True, kw_only=True)
class StackFile:
    """Where the handler of one signal writes."""

    path: Path
    fd: int
    pid: int


_files: dict[int, StackFile] = {}


def register_stack_signal(name: str, path: Path) -> str | None:
    """Have this process append its stacks to `path` at the signal `name`. The name for the start event; None if it cannot be registered."""
    try:
        number = stack_signal_number(name)
        if number is None:
            return None
        if number not in _files and not is_signal_unused(number):
            log.info("%s is in use in this process: its stacks can only be taken from outside", signal.Signals(number).name)
            return None
        _register(number, path)
    except (OSError, ValueError, RuntimeError) as error:
        log.warning("no stacks by signal: %s", error)
        return None
    return signal.Signals(number).name.removeprefix("SIG")


def stack_signal_number(name: str) -> int | None:
    """The number of `USR2` or `SIGUSR2`; None for `none` and an empty name."""
    text = name.strip().upper()
    if text in NO_SIGNAL:
        return None
    text = text.removeprefix("SIG")
    if text not in STACK_SIGNALS:
        raise ValueError(f"the stack signal is '{name}'; expected one of {', '.join(STACK_SIGNALS)}, or none")
    return int(signal.Signals[f"SIG{text}"])


def is_signal_unused(number: int, status: Path = OWN_STATUS) -> bool:
    """Whether the signal is neither caught, ignored nor blocked, including handlers of C libraries, which Python does not know."""
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
        masks = [int(value, 16) for mask, _, value in (line.partition(":") for line in lines) if mask in SIGNAL_MASKS]
    except (OSError, ValueError):
        masks = []
    if len(masks) != len(SIGNAL_MASKS):
        return signal.getsignal(number) == signal.SIG_DFL
    return not any(mask >> (number - 1) & 1 for mask in masks)


def _register(number: int, path: Path) -> None:
    """Point the signal's handler at a file; another one before it is closed."""
    before = _files.get(number)
    if before is not None and before.path == path and _is_own_file(before):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        faulthandler.register(number, file=fd, all_threads=True, chain=False)
    except BaseException:
        os.close(fd)
        raise
    _register_cleanup()
    _files[number] = StackFile(path=path, fd=fd, pid=os.getpid())
    if before is not None:
        _close_file(before)


def _close_file(file: StackFile) -> None:
    """Close the file, and remove it if it is empty and no other signal's. A child's copy leads to /dev/null; the file is its parent's."""
    is_shared = any(other.path == file.path for other in _files.values())
    with contextlib.suppress(OSError):
        if not is_shared and _is_own_file(file) and os.fstat(file.fd).st_size == 0:
            file.path.unlink()
            # Only succeeds where it was the last file.
            file.path.parent.rmdir()
    with contextlib.suppress(OSError):
        os.close(file.fd)


def _is_own_file(file: StackFile) -> bool:
    """Whether this process opened it and it is still at its path: not moved, removed or replaced since."""
    try:
        return file.pid == os.getpid() and os.path.samestat(os.fstat(file.fd), file.path.stat())
    except OSError:
        return False


@functools.cache
def _register_cleanup() -> None:
    """Register the clean-up once per process."""
    os.register_at_fork(after_in_child=_redirect_to_null)
    atexit.register(_unregister_all)


def _redirect_to_null() -> None:
    """A forked worker keeps the handler, so that the signal does not kill it; its stacks must not be mixed into the rank's."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for file in _files.values():
            os.dup2(null, file.fd, inheritable=False)
        os.close(null)


def _unregister_all() -> None:
    while _files:
        number, file = _files.popitem()
        # Python's own table still has the default handler unless the workload has set another over ours.
        if signal.getsignal(number) == signal.SIG_DFL:
            faulthandler.unregister(number)
            signal.signal(number, signal.SIG_IGN)
        _close_file(file)
