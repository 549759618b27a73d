"""What the security tests share: a folder to work in, the real command line, and whether anything was touched that should not be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LONGEST_S = 120
CANARY = "pwned"
"""Every payload tries to make a file whose name begins so."""


def seatrial(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The real program, in a folder, with both streams as text."""
    return subprocess.run(
        [sys.executable, "-m", "seatrial", *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **(env or {})},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def canaries(folder: Path) -> list[Path]:
    """Files that only a shell, or a path that was believed, can have made; looked for around `folder` too."""
    return [path for path in folder.parent.rglob("*") if path.name.startswith(CANARY)]


def contents(folder: Path) -> dict[str, bytes | str | None]:
    """Everything under a folder: bytes of files, targets of links, None for folders."""
    return {str(path.relative_to(folder)): _content(path) for path in sorted(folder.rglob("*"))}


def _content(path: Path) -> bytes | str | None:
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else None
