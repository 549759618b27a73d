"""The folder a tree is made in. In: its path. Out: the folder, ours alone for a while; trouble with its disk as a PrepareError."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from seatrial_workloads.librispeech.record import PrepareError

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def owned_folder(folder: Path) -> Iterator[None]:
    """The folder, made if need be, and locked against a second process for as long as this one lives."""
    with told_plainly(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(folder, handle)
            yield
        finally:
            os.close(handle)


def _lock(folder: Path, handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PrepareError(f"another process is preparing {folder} now: wait for it, or choose another --output-root") from error
    except OSError:
        # A file system without locks. Files are still written whole.
        pass


@contextlib.contextmanager
def told_plainly(folder: Path) -> Iterator[None]:
    """An OSError of the block as a PrepareError."""
    try:
        yield
    except OSError as error:
        raise unwritten(folder, error.errno, str(error)) from error


def unwritten(folder: Path, error_number: int | None, what: str) -> PrepareError:
    """What to say when `folder` does not take what is written to it."""
    if error_number in FULL:
        return PrepareError(f"the disk of {folder} is full: what is done stays; make room and give the same command again")
    return PrepareError(f"{folder} cannot be written to ({what}): what is done stays; mend it and give the same command again")
