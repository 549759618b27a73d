"""DRIVER_LOG_PATH: everything that is printed, in a file as well. In: a path. Out: the file, with a line for each that was printed.

The file is appended to and its folder made. A disk that fails costs lines of the log and nothing else. Colours stay on the terminal.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.cli.machine_trouble import machine_trouble
from seatrial.disk.append import TROUBLE, AppendFile
from seatrial.errors import UsageError
from seatrial.report.one_line import without_colours
from seatrial_runbooks.stage1.spoken import warn


class Tee:
    """A stream whose text goes into the log too."""

    def __init__(self, stream: Any, log: AppendFile) -> None:
        self._stream, self._log = stream, log

    def write(self, text: str) -> int:
        self._log.append(without_colours(text).encode("utf-8", errors="replace"))
        return int(self._stream.write(text))

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def logged_to(path: Path | None) -> Iterator[None]:
    """While the block runs, what goes to stdout and stderr goes to the file at `path` as well; None for no file."""
    problem = _problem_of(path) if path is not None else ""
    if problem:
        warn(f"going on without the driver log {path}: {problem}")
    if path is None or problem:
        yield
        return
    log, before = AppendFile(path), (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = Tee(sys.stdout, log), Tee(sys.stderr, log)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        is_whole = log.close() and not log.last_error
    if not is_whole:
        where = "; what it did not take is kept and merged back" if log.fallback_bytes and not log.lost_bytes else ""
        warn(f"the driver log {path} is not whole: {log.last_error}{where}")


def _problem_of(path: Path) -> str:
    """Why the file can never be written; a disk that is in trouble now may be well again, and is written around until then."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        return "" if error.errno in TROUBLE else machine_trouble(error) or str(error)
    return ""


def refuse_unusable_log(path: Path) -> None:
    """Raise where the log can be no file."""
    if path.is_dir():
        raise UsageError(f"DRIVER_LOG_PATH is {path}, which is a folder: name a file, as in {path / 'driver.log'}")
