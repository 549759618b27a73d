"""The file of answers for the stub of NVML. Imports nothing heavy: scripts that run against the stub use it too."""

from __future__ import annotations

from pathlib import Path


def answer(path: Path, *answers: tuple[str, int]) -> None:
    """Set the answers from now on; replaced atomically."""
    aside = path.with_suffix(".part")
    aside.write_text("".join(f"{name} {value}\n" for name, value in answers))
    aside.replace(path)
