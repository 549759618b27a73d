"""How large a file is, for those to whom one that is not there is empty. Standard library only: the probe uses it inside the training."""

from __future__ import annotations

from pathlib import Path


def size_bytes(path: Path) -> int:
    """Bytes of the file; 0 where it is missing or cannot be asked."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
