"""A failing disk for the processes of a test: calls on files of one name fail with EIO (see eio.c)."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("eio.c")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) for the failing disk")


@functools.cache
def built() -> Path:
    """The library to preload."""
    folder = Path(tempfile.mkdtemp(prefix="eio-stub-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "libeio.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


def environment(path: str, *, calls: Sequence[str] = ()) -> dict[str, str]:
    """Variables to add. `path` is a pattern of file names; without `calls` all of open, write, fsync and rename fail."""
    return {"LD_PRELOAD": str(built()), "EIO_PATH": path, **({"EIO_CALLS": ",".join(calls)} if calls else {})}
