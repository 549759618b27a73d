"""A file system of its own that can be filled and turned read-only; needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")


class Disk:
    """A tmpfs at `folder`."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        folder.mkdir()
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))

    def fill(self) -> None:
        """To the last byte: whole mebibytes, then pages."""
        with open(self.folder / "ballast", "wb", buffering=0) as ballast:
            for size in (2**20, 2**12):
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(b"\0" * size)

    def free(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def set_writable(self, writable: bool) -> None:
        """Read-only as after an error of the disk: for whatever is opened from now on."""
        if writable:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)
        else:
            _mount("--bind", str(self.folder), str(self.folder))
            _mount("-o", "remount,ro,bind", str(self.folder))

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


def _mount(*argv: str) -> None:
    subprocess.run(["mount", *argv], check=True)
