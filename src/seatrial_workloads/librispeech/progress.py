"""Progress of a preparation: a bar with ETA on a terminal, else a line every N files. A closed pipe does no harm."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TextIO


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Print to stdout, or to `stream`, and flush."""
    stream = stream or sys.stdout
    # Characters that the terminal's encoding lacks are escaped.
    shown = line.encode(stream.encoding or "utf-8", errors="backslashreplace").decode(stream.encoding or "utf-8")
    try:
        stream.write(f"{shown}\n")
        stream.flush()
    except BrokenPipeError:
        # Python would retry at exit, and fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


REFRESHES_PER_S = 4

Advance = Callable[[str], None]
"""Called with a note after every file."""


def progress(act: str, num_files: int, log_every: int, *, quiet: bool = False) -> contextlib.AbstractContextManager[Advance]:
    """A bar on a terminal, else lines."""
    if sys.stderr.isatty() and not quiet:
        return progress_bar(act, num_files)
    return progress_lines(num_files, 0 if quiet else log_every)


@contextlib.contextmanager
def progress_bar(act: str, num_files: int) -> Iterator[Advance]:
    """A bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("eta"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=REFRESHES_PER_S) as bar:
        task = bar.add_task(act, total=num_files, note="")
        yield lambda note: bar.update(task, advance=1, note=note)


@contextlib.contextmanager
def progress_lines(num_files: int, log_every: int, clock: Callable[[], float] = time.monotonic) -> Iterator[Advance]:
    """A line on stdout every `log_every` files; none for 0."""
    done, began_m = 0, clock()

    def advance(note: str) -> None:
        nonlocal done
        done += 1
        if log_every and done % log_every == 0:
            files_per_s = done / max(1e-9, clock() - began_m)
            to_go = timedelta(seconds=round((num_files - done) / files_per_s))
            print_line(f"{done} of {num_files} files, {files_per_s:.1f} files/s, {to_go} to go{', ' if note else ''}{note}")

    yield advance
