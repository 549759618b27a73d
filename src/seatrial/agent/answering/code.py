"""Whether two hosts run the same code: digests of Seatrial's own files, and of a plan's script, as this host sees them."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import seatrial

PACKAGES = ("seatrial", "seatrial_workloads")
# Larger than any script; a program of this size is not read for the sake of a comparison.
MOST_BYTES = 64 << 20


@functools.cache
def code_digest(root: Path = Path(seatrial.__file__).parent.parent) -> str:
    """Of the names and contents of all .py files of Seatrial's packages, wherever they are installed."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode("utf-8", errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Empty for what is no plain file, or too large."""
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()
