"""Programs for a PATH that do nothing."""

from __future__ import annotations

from pathlib import Path


def make_program(path: Path, mode: int = 0o755) -> Path:
    """A script that exits with 0; with another mode a file that is not executable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path
