"""Commands as lists of words: quoting them for people, finding their programs, running the small ones, waiting for the end of others.

No string is ever handed to a shell by Seatrial itself; `command.sh` is text for a person to run.
"""

from __future__ import annotations

import contextlib
import io
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SMALL_COMMAND_TIMEOUT_S = 10.0
MOST_BYTES = 16 << 20
PIPE_BYTES = 64 << 10
"""What Linux keeps of a pipe, so that one read can take all of it."""
KILLED_S = 5.0
"""How long one that was killed is waited for: in a call that the kernel cannot interrupt it ends later, by itself."""


class NoEndError(Exception):
    """A command that neither ends in time nor stops writing; it has been killed, with what it had started."""


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
    """Standard output of a small command as text, or None when it is missing, fails, takes too long or writes without end."""
    try:
        written = bytes_of(argv, cwd, timeout_s, env)
    except NoEndError:
        return None
    return None if written is None else io.TextIOWrapper(io.BytesIO(written), encoding="utf-8", errors="replace").read()


def bytes_of(
    argv: Sequence[str],
    cwd: Path | None = None,
    timeout_s: float = SMALL_COMMAND_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
    most_bytes: int = MOST_BYTES,
) -> bytes | None:
    """The same as it was written, ends of lines and all; a NoEndError when it takes too long or writes more than `most_bytes`."""
    try:
        # In a session of its own: a wrapper that is given up takes along what it has started, which would hold the pipe open.
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    assert process.stdout is not None
    try:
        written = _read(process, process.stdout.fileno(), time.monotonic() + timeout_s, most_bytes)
    except BaseException:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        is_over_within(process, KILLED_S)
        raise
    finally:
        process.stdout.close()
    return written if process.returncode == 0 else None


def is_over_within(process: subprocess.Popen[bytes], patience_s: float) -> bool:
    """Whether a process has ended, waited for so long at most."""
    try:
        process.wait(max(0.0, patience_s))
    except subprocess.TimeoutExpired:
        return False
    return True


def end_within(process: subprocess.Popen[bytes], patience_s: float, leave_s: float) -> bool:
    """Let a process end by itself for so long, then KILL it and wait for `leave_s`; whether it is over.

    One in a call that the kernel cannot interrupt is not: it ends later, by itself.
    """
    if is_over_within(process, patience_s):
        return True
    process.kill()
    return is_over_within(process, leave_s)


def _read(process: subprocess.Popen[bytes], stdout: int, deadline_m: float, most_bytes: int) -> bytes:
    written = bytearray()
    with selectors.DefaultSelector() as readable:
        readable.register(stdout, selectors.EVENT_READ)
        while True:
            if not readable.select(max(0.0, deadline_m - time.monotonic())):
                raise NoEndError(f"{process.args!r} did not end in time")
            part = os.read(stdout, PIPE_BYTES)
            if not part:
                break
            written += part
            if len(written) > most_bytes:
                raise NoEndError(f"{process.args!r} writes without end")
    if not is_over_within(process, deadline_m - time.monotonic()):
        raise NoEndError(f"{process.args!r} did not end in time")
    return bytes(written)
