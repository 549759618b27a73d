"""Lines for people, on outputs that nothing can break: a reader that has gone (`| head`) must not end a preparation of hours."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def say(line: str) -> None:
    """A line on stdout, at once."""
    _write(line, sys.stdout)


def warn(line: str) -> None:
    """A line on stderr."""
    _write(line, sys.stderr)


def _write(line: str, stream: TextIO) -> None:
    # What the terminal's encoding has not got is spelled out.
    shown = line.encode(stream.encoding or "utf-8", errors="backslashreplace").decode(stream.encoding or "utf-8")
    try:
        stream.write(f"{shown}\n")
        stream.flush()
    except BrokenPipeError:
        # What could not be written would be tried again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
