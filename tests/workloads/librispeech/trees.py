"""Shared by the tests of this folder: the real program, the bytes of a tree, and functions that pool workers can import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from seatrial_workloads.librispeech.prepare_tree import ConvertOne

COMMAND = [sys.executable, "-m", "seatrial_workloads.librispeech.prepare"]
TIMEOUT_S = 120


def bytes_of(root: Path) -> dict[str, bytes]:
    """Every file under `root`, hidden ones too."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def prepare(*arguments: str | Path, code: int = 0) -> str:
    """Run the program to its end; stdout and stderr together."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}:\n{done.stdout}"
    return done.stdout


def rejected(root: Path) -> dict[str, str]:
    """Path → reason."""
    lines = (root / "rejected.tsv").read_text().splitlines()
    assert lines[0] == "rel_path\treason"
    return dict(line.split("\t") for line in lines[1:])


def square_or_die(number: int) -> int:
    """Seven kills the process, as the OOM killer would."""
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


@dataclass(frozen=True)
class DieOnce:
    """Dies at the first call with 3."""

    marker: Path

    def __call__(self, number: int) -> int:
        if number == 3 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -number


def divide_ten_by(number: int) -> float:
    return 10 / number


def crash_at_start() -> None:
    raise ImportError("no such library")


@dataclass(frozen=True)
class CannotStart:
    """Cannot be unpickled."""

    def __call__(self, number: int) -> int:
        return number

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return crash_at_start, ()


class DyingConvertOne(ConvertOne):
    """Dies on one file."""

    def __call__(self, rel_path: str):  # type: ignore[no-untyped-def]
        if rel_path.endswith("0001.flac") and rel_path.startswith("dev-clean"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(rel_path)
