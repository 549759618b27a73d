"""How a rank says that its run is over: the last events of its file.

In: an attempt's folder and its events files. Out: whether a rank was done (`stop`), and whether the run was halted: a rank told so
(`halt`), or the halt file of the sparse-LM procedure's own watchdog lies in the folder. Each attempt has its own folder, so such a file is
of this attempt.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from seatrial.collect.events.files import rank_in_name
from seatrial.collect.events.line import event_in, is_of
from seatrial.files import open_file
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt

LAST_BYTES = 16 << 10
"""`stop` is the very last, unless a thread of the script goes on writing; behind a halt stand the pauses and the memory of the end."""


def is_done(path: Path, attempt: Attempt) -> bool:
    """Whether the rank itself said that it was done."""
    return _ends_with("stop", path, attempt)


def was_halted(attempt: Attempt, events: Sequence[Path]) -> bool:
    """Whether any rank of the attempt ended because a file asked it to."""
    return AttemptPaths(Path(attempt.folder)).watchdog_halt.exists() or any(_ends_with("halt", path, attempt) for path in events)


def _ends_with(kind: str, path: Path, attempt: Attempt) -> bool:
    """Whether an event of that kind, of this run, attempt and rank, stands near the end of the file."""
    mark = f'"{kind}"'.encode()
    told = (event_in(line) for line in _end(path).split(b"\n") if mark in line)
    own = (event for event in told if event and is_of(event, attempt.spec.run, attempt.number, rank_in_name(path)))
    return any(event.get("kind") == kind for event in own)


def _end(path: Path) -> bytes:
    """The last bytes of the file; nothing of one that cannot be read."""
    try:
        with open_file(path) as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - LAST_BYTES))
            return source.read(LAST_BYTES)
    except OSError:
        return b""
