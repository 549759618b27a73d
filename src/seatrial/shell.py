"""Commands as lists of words: quoting them for people, splitting what people typed, running the small ones.

No string is ever handed to a shell by Seatrial itself; `command.sh` is text for a person to run.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SMALL_COMMAND_TIMEOUT_S = 10.0


def quote(argv: Sequence[str]) -> str:
    """One line a person can paste into a shell."""
    return shlex.join(argv)


def assignments(env: Mapping[str, str]) -> list[str]:
    """`export NAME=value` lines, quoted, in name order."""
    return [f"export {name}={shlex.quote(value)}" for name, value in sorted(env.items())]


def find_program(name: str) -> str | None:
    """Where `name` is: on PATH, else beside this interpreter (a virtual environment that was not activated)."""
    found = shutil.which(name)
    if found:
        return found
    beside = Path(sys.executable).parent / name
    return str(beside) if "/" not in name and beside.is_file() else None


def output_of(argv: Sequence[str], cwd: Path | None = None, timeout_s: float = SMALL_COMMAND_TIMEOUT_S) -> str | None:
    """Standard output of a small command, or None when it is missing, fails or takes too long."""
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
