"""A bad disk to order, for a process started with it: calls on files of one name fail with the error asked for (see eio.c)."""

from __future__ import annotations

import atexit
import errno
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("eio.c")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) to build the bad disk with")


@functools.cache
def built() -> Path:
    """The library to preload."""
    folder = Path(tempfile.mkdtemp(prefix="eio-stub-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "libeio.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


def environment(path: str, *, error: int = errno.EIO, times: int | None = None, calls: Sequence[str] = ()) -> dict[str, str]:
    """Variables to add to a process's own. `path` is a pattern of file names (of whole paths where it has a slash); without `times`
    every call fails, without `calls` all of open, write, fsync and rename do."""
    made = {"LD_PRELOAD": str(built()), "EIO_PATH": path, "EIO_ERRNO": str(error)}
    if calls:
        made["EIO_CALLS"] = ",".join(calls)
    if times is not None:
        made |= {"EIO_TIMES": str(times), "EIO_COUNT": str(Path(tempfile.mkdtemp(dir=built().parent)) / "count")}
    return made
