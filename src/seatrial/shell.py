"""Commands as lists of words: quoting them for people, splitting what people typed, running the small ones.

No string is ever handed to a shell by Seatrial itself; `command.sh` is text for a person to run.
"""

from __future__ import annotations

import io
import os
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


def on_path(name: str, path: str | None = None, cwd: Path | None = None) -> str | None:
    """The executable file a process started in `cwd` with this PATH would get for the word `name`; None when there is none.

    Without `path` this process's own PATH counts, without `cwd` its own folder.
    """
    folder = Path.cwd() if cwd is None else cwd.absolute()
    if "/" in name:
        return shutil.which(str(folder / name))
    searched = os.environ.get("PATH", os.defpath) if path is None else path
    # An entry that is empty or relative counts from the folder the process starts in.
    entries = [str(folder / entry) for entry in searched.split(os.pathsep)] if searched else []
    return shutil.which(name, path=os.pathsep.join(entries))


def find_program(name: str, path: str | None = None, cwd: Path | None = None) -> str | None:
    """Where `name` is: on PATH (see `on_path`), else beside this interpreter (a virtual environment that was not activated)."""
    found = on_path(name, path, cwd)
    if found or "/" in name:
        return found
    return shutil.which(str(Path(sys.executable).parent / name))


def output_of(
    argv: Sequence[str],
    cwd: Path | None = None,
    timeout_s: float = SMALL_COMMAND_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
) -> str | None:
    """Standard output of a small command as text, or None when it is missing, fails or takes too long."""
    written = bytes_of(argv, cwd, timeout_s, env)
    return None if written is None else io.TextIOWrapper(io.BytesIO(written), encoding="utf-8", errors="replace").read()


def bytes_of(
    argv: Sequence[str],
    cwd: Path | None = None,
    timeout_s: float = SMALL_COMMAND_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
) -> bytes | None:
    """The same as it was written, ends of lines and all."""
    try:
        done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
