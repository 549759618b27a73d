"""What the tests of preparing share: the real program, the bytes of a whole tree, and functions that workers of a pool can import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from seatrial_workloads.librispeech.prepare_tree import ConvertOne

COMMAND = [sys.executable, "-m", "seatrial_workloads.librispeech.prepare"]
PATIENCE_S = 120


def bytes_of(root: Path) -> dict[str, bytes]:
    """Every file under `root`, ours and hidden ones too."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def prepare(*words: str | Path, code: int = 0) -> str:
    """Run the program to its end; stdout and stderr together."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}:\n{done.stdout}"
    return done.stdout


def rejected(root: Path) -> dict[str, str]:
    """Path → reason."""
    lines = (root / "rejected.tsv").read_text().splitlines()
    assert lines[0] == "rel_path\treason"
    return dict(line.split("\t") for line in lines[1:])


def square_or_die(number: int) -> int:
    """Seven takes the process with it, as the kernel's OOM killer would."""
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


@dataclass(frozen=True)
class DieOnce:
    """Dies the first time it is asked for 3."""

    memory: Path

    def __call__(self, number: int) -> int:
        if number == 3 and not self.memory.exists():
            self.memory.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -number


def divide_ten_by(number: int) -> float:
    return 10 / number


def crash_at_start() -> None:
    raise ImportError("no such library")


@dataclass(frozen=True)
class CannotStart:
    """Cannot even be taken out of its wrapping."""

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
