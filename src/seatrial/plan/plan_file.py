"""The text of a plan file, whatever lies under its name.

In: a path. Out: its text, or a PlanError that says what is there instead: a folder, a device, a file far too large, other characters
than UTF-8. A pipe, as a shell makes it for `<(…)`, is read, and waited for only so long.
"""

from __future__ import annotations

import os
import select
import stat
import time
from pathlib import Path

from seatrial.errors import PlanError, did_you_mean

LARGEST_FILE_BYTES = 1024 * 1024
PIPE_PATIENCE_S = 10.0
_CHUNK_BYTES = 64 * 1024


def plan_text(path: Path, pipe_patience_s: float = PIPE_PATIENCE_S) -> str:
    """The text in `path`; every way in which there is none is a PlanError."""
    data = _bytes_of(path, pipe_patience_s)
    if len(data) > LARGEST_FILE_BYTES:
        raise PlanError(f"larger than {LARGEST_FILE_BYTES // 1024} KiB, which no plan is; is it the right file?", file=path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PlanError(f"not UTF-8 text (byte {error.start}); save the plan as UTF-8", file=path, line=line) from error


def is_plan_file(path: Path) -> bool:
    """Whether a file is there; an OSError when that cannot be found out."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _bytes_of(path: Path, pipe_patience_s: float) -> bytes:
    try:
        # A pipe that nobody writes to would be waited for without end before the first byte.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise PlanError(f"there is no such plan; {did_you_mean(path.name, _plans_beside(path))}", file=path) from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    try:
        return _read(path, handle, pipe_patience_s)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(handle)


def _read(path: Path, handle: int, pipe_patience_s: float) -> bytes:
    """Everything, or one byte more than a plan may have."""
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode):
        # Its size is known, so a file of a gigabyte is not read to be refused.
        return b" " * (LARGEST_FILE_BYTES + 1) if found.st_size > LARGEST_FILE_BYTES else _read_whole(handle)
    if stat.S_ISFIFO(found.st_mode):
        return _read_pipe(path, handle, pipe_patience_s)
    what = "a folder" if stat.S_ISDIR(found.st_mode) else "a device or a socket"
    raise PlanError(f"the plan cannot be read: it is {what}; name a YAML file", file=path)


def _read_whole(handle: int) -> bytes:
    data = b""
    while len(data) <= LARGEST_FILE_BYTES and (part := os.read(handle, _CHUNK_BYTES)):
        data += part
    return data


def _read_pipe(path: Path, handle: int, patience_s: float) -> bytes:
    data, deadline_m = b"", time.monotonic() + patience_s
    while len(data) <= LARGEST_FILE_BYTES:
        readable, _, _ = select.select([handle], [], [], max(0.0, deadline_m - time.monotonic()))
        if not readable:
            raise PlanError(f"the plan cannot be read: it is a pipe that was not written to its end in {patience_s:g} s", file=path)
        part = os.read(handle, _CHUNK_BYTES)
        if not part:
            break
        data += part
    return data


def _plans_beside(path: Path) -> list[str]:
    try:
        return [file.name for file in path.parent.glob("*.y*ml")]
    except OSError:
        return []


def _unreadable(path: Path, error: OSError | ValueError) -> PlanError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return PlanError(f"the plan cannot be read: {reason}; name a YAML file that you may read", file=path)
