"""A folder for fuzzing, in memory. Nothing of the project is imported here: an engine that follows coverage must do that itself."""

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
    """In memory, where there is such a place."""
    return Path(tempfile.mkdtemp(prefix="seatrial-fuzz-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))


@cache
def folder() -> Path:
    """Of this process alone: its parent's to remove where that gave it one, else removed at its end."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    made = new_folder()
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
