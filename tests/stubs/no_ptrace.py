"""ptrace is refused for the processes of a test (see no_ptrace.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("no_ptrace.c")


def environment(folder: Path) -> dict[str, str]:
    """Variables to add to a process's own; the library is built in `folder`."""
    library = folder / "libnoptrace.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE)], check=True)
    return {"LD_PRELOAD": str(library)}
