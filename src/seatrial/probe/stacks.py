"""Stacks of all threads, written by the process itself at a signal. In: the signal's name and a file. Out: the file, longer at each signal.

faulthandler writes them at C level: they come also while the main thread is stuck in C, with or without the GIL. Within one dump a
blank line stands between two threads; a thread's line right behind a frame begins the next dump.

The signal of a process that has no handler for it is deadly. So a handler, once there, stays until the interpreter ends, longer than
its probe, since the harness may ask at any time; from then on the signal is ignored.
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
"""Those that neither end, stop nor steer a process that the launcher, the shell or Python looks after."""
NO_SIGNAL = ("", "NONE")
OWN_STATUS = Path("/proc/self/status")
TOUCHED_MASKS = ("SigBlk", "SigIgn", "SigCgt")


@dataclass(frozen=True, kw_only=True)
class StackFile:
    """Where the handler of one signal writes."""

    path: Path
    handle: int
    pid: int


_files: dict[int, StackFile] = {}


def write_stacks_at(name: str, path: Path) -> str | None:
    """Have this process append its stacks to `path` at the signal `name`. Out: the name as events tell it, None where it will not."""
    try:
        number = stack_signal_number(name)
        if number is None:
            return None
        if number not in _files and not is_untouched(number):
            log.info("%s is in use in this process: stacks can be taken only from outside", signal.Signals(number).name)
            return None
        _register(number, path)
    except (OSError, ValueError, RuntimeError) as error:
        log.warning("stacks cannot be asked for by a signal: %s", error)
        return None
    return signal.Signals(number).name.removeprefix("SIG")


def stack_signal_number(name: str) -> int | None:
    """`USR2` or `SIGUSR2` as a number; None for `none` and for nothing at all."""
    word = name.strip().upper()
    if word in NO_SIGNAL:
        return None
    word = word.removeprefix("SIG")
    if word not in STACK_SIGNALS:
        raise ValueError(f"the stack signal is '{name}'; expected one of {', '.join(STACK_SIGNALS)}, or none")
    return int(signal.Signals[f"SIG{word}"])


def is_untouched(number: int, status: Path = OWN_STATUS) -> bool:
    """Whether the signal is neither caught, ignored nor blocked: handlers that a C library has set too, of which Python knows nothing."""
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
        masks = [int(value, 16) for mask, _, value in (line.partition(":") for line in lines) if mask in TOUCHED_MASKS]
    except (OSError, ValueError):
        masks = []
    if len(masks) != len(TOUCHED_MASKS):
        return signal.getsignal(number) == signal.SIG_DFL
    return not any(mask >> (number - 1) & 1 for mask in masks)


def _register(number: int, path: Path) -> None:
    """Point the signal's handler at a new file; the one before is put away."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        faulthandler.register(number, file=handle, all_threads=True, chain=False)
    except BaseException:
        os.close(handle)
        raise
    _look_after_forks_and_the_end()
    before = _files.get(number)
    _files[number] = StackFile(path=path, handle=handle, pid=os.getpid())
    if before is not None:
        _put_away(before)


def _put_away(file: StackFile) -> None:
    """Close the file and remove it where nothing was asked for. A child's copy leads nowhere, and the file is its parent's."""
    with contextlib.suppress(OSError):
        if file.pid == os.getpid() and os.fstat(file.handle).st_size == 0:
            file.path.unlink()
            # Where it was the last one: a folder that holds nothing tells nothing.
            file.path.parent.rmdir()
    with contextlib.suppress(OSError):
        os.close(file.handle)


@functools.cache
def _look_after_forks_and_the_end() -> None:
    """Once a process: what is registered there stays."""
    os.register_at_fork(after_in_child=_write_nowhere)
    atexit.register(_end)


def _write_nowhere() -> None:
    """A forked worker keeps the handler, so the signal does not kill it; its stacks must not be mixed into those of the rank."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for file in _files.values():
            os.dup2(nowhere, file.handle, inheritable=False)
        os.close(nowhere)


def _end() -> None:
    while _files:
        number, file = _files.popitem()
        # Python's own table says default as long as nobody has set a handler of their own over ours.
        if signal.getsignal(number) == signal.SIG_DFL:
            faulthandler.unregister(number)
            signal.signal(number, signal.SIG_IGN)
        _put_away(file)
