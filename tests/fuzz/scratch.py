"""A folder for fuzzing, in memory. Imports nothing of the project: a coverage-guided engine must do that itself."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

VARIABLE = "SEATRIAL_FUZZ_SCRATCH"
IN_MEMORY = Path("/dev/shm")


def new_folder() -> Path:
    """In memory where possible."""
    return Path(tempfile.mkdtemp(prefix="seatrial-fuzz-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))


@cache
def folder() -> Path:
    """Of this process; removed by the parent that set VARIABLE, else at exit."""
    if parent_folder := os.environ.get(VARIABLE):
        return Path(parent_folder)
    created = new_folder()
    atexit.register(shutil.rmtree, created, ignore_errors=True)
    return created
