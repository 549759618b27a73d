"""A wall clock that a test can set for the processes it starts: the preloaded clock.c adds an offset from a file."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
OFFSET_BYTES = 32


class WallClock:
    """The clock of every process that is started with `environment()`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._offset, self._library = folder / "offset", folder / "libclock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(self._library), str(SOURCE), "-ldl"], check=True)
        self.set(0)

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CLOCK_OFFSET_FILE": str(self._offset)}

    def set(self, offset_s: int) -> None:
        """Offset from the true time, at once for all processes."""
        mode = "r+b" if self._offset.exists() else "wb"
        with open(self._offset, mode, buffering=0) as offset:
            offset.write(str(offset_s).encode().ljust(OFFSET_BYTES, b"\0"))
