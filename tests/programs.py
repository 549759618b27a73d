"""Programs that a test puts in a folder: found by their name, and doing nothing."""

from __future__ import annotations

from pathlib import Path


def make_program(path: Path, mode: int = 0o755) -> Path:
    """A script that ends well at once; with another mode it is a file that nobody may run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path
