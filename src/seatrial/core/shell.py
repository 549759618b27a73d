"""Commands as argv lists: quoting them for people, finding their programs, running small ones, waiting for processes to end.

Seatrial itself never hands a string to a shell; `command.sh` is for a person to run.
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
MAX_BYTES = 16 << 20
PIPE_BYTES = 64 << 10
"""The kernel's buffer of a pipe."""
ACTIVATED_LINE = " of activate in "
"""Marks the output about a failed line of site.yaml."""
KILL_TIMEOUT_S = 5.0
"""Longest wait for a killed process: in an uninterruptible call it ends later, by itself."""


class RunawayCommandError(Exception):
    """A command that did not end in time or wrote without end; it has been killed, with its children."""


def quote(argv: Sequence[str]) -> str:
    """One line a person can paste into a shell."""
    return shlex.join(argv)


def module_argv(module: str, python: str = "") -> tuple[str, ...]:
    """The command that runs a module of ours."""
    # -P: a selectors.py, an mlflow/ or a seatrial/ in the user's folder must not shadow the real one.
    return (python or sys.executable, "-P", "-m", module)


def export_lines(env: Mapping[str, str]) -> list[str]:
    """`export NAME=value` lines, quoted, in name order."""
    return [f"export {name}={shlex.quote(value)}" for name, value in sorted(env.items())]


def find_on_path(name: str, path: str | None = None, cwd: Path | None = None) -> str | None:
    """The executable that a process started in `cwd` with this PATH would run for `name`; None when there is none. Default: this process's
    own PATH and folder."""
    folder = Path.cwd() if cwd is None else cwd.absolute()
    if "/" in name:
        return shutil.which(str(folder / name))
    searched = os.environ.get("PATH", os.defpath) if path is None else path
    # An empty or relative entry counts from the folder the process starts in.
    entries = [str(folder / entry) for entry in searched.split(os.pathsep)] if searched else []
    return shutil.which(name, path=os.pathsep.join(entries))


def find_program(name: str, path: str | None = None, cwd: Path | None = None) -> str | None:
    """The executable on PATH, else beside this interpreter (a virtual environment that was not activated)."""
    found = find_on_path(name, path, cwd)
    if found or "/" in name:
        return found
    return shutil.which(str(Path(sys.executable).parent / name))


def command_output(
    argv: Sequence[str],
    cwd: Path | None = None,
    timeout_s: float = SMALL_COMMAND_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
) -> str | None:
    """Standard output of a small command as text; None when it is missing, fails, takes too long or produces endless output."""
    try:
        written = command_output_bytes(argv, cwd, timeout_s, env)
    except RunawayCommandError:
        return None
    return None if written is None else io.TextIOWrapper(io.BytesIO(written), encoding="utf-8", errors="replace").read()


def command_output_bytes(
    argv: Sequence[str],
    cwd: Path | None = None,
    timeout_s: float = SMALL_COMMAND_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> bytes | None:
    """The same as bytes; a RunawayCommandError when it takes too long or writes more than `max_bytes`."""
    try:
        # In a session of its own: its children, which would hold the pipe open, are killed with it.
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
        written = _read(process, process.stdout.fileno(), time.monotonic() + timeout_s, max_bytes)
    except BaseException:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        wait_for_exit(process, KILL_TIMEOUT_S)
        raise
    finally:
        process.stdout.close()
    return written if process.returncode == 0 else None


def wait_for_exit(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether the process ended within `timeout_s`."""
    try:
        process.wait(max(0.0, timeout_s))
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_or_kill(process: subprocess.Popen[bytes], timeout_s: float, kill_timeout_s: float) -> bool:
    """Wait for a process, then KILL it and wait again; whether it has ended. In an uninterruptible call it ends later, by itself."""
    if wait_for_exit(process, timeout_s):
        return True
    process.kill()
    return wait_for_exit(process, kill_timeout_s)


def _read(process: subprocess.Popen[bytes], stdout: int, deadline_m: float, max_bytes: int) -> bytes:
    written = bytearray()
    with selectors.DefaultSelector() as readable:
        readable.register(stdout, selectors.EVENT_READ)
        while True:
            if not readable.select(max(0.0, deadline_m - time.monotonic())):
                raise RunawayCommandError(f"{process.args!r} did not end in time")
            part = os.read(stdout, PIPE_BYTES)
            if not part:
                break
            written += part
            if len(written) > max_bytes:
                raise RunawayCommandError(f"{process.args!r} produces endless output")
    if not wait_for_exit(process, deadline_m - time.monotonic()):
        raise RunawayCommandError(f"{process.args!r} did not end in time")
    return bytes(written)
