"""Whether a run was halted: its ranks ended because a file asked them to.

In: an attempt's folder and its events files. Out: True where a rank of it told so (`halt` event), or where the halt file of the sparse-LM
procedure's own watchdog lies in the folder: each attempt has its own, so such a file is of this attempt.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from seatrial.collect.event_files import rank_in_name
from seatrial.collect.event_line import event_in, is_of
from seatrial.files import open_file
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt

MARK = b'"halt"'
LAST_BYTES = 16 << 10
"""Behind the halt stand at most the pauses and the memory of the end, and `stop`."""


def was_halted(attempt: Attempt, events: Sequence[Path]) -> bool:
    """Whether any rank of the attempt was."""
    return AttemptPaths(Path(attempt.folder)).watchdog_halt.exists() or any(_tells_halt(path, attempt) for path in events)


def _tells_halt(path: Path, attempt: Attempt) -> bool:
    end = _end(path)
    told = (event_in(line) for line in end.split(b"\n") if MARK in line) if MARK in end else ()
    own = (event for event in told if event and is_of(event, attempt.spec.run, attempt.number, rank_in_name(path)))
    return any(event.get("kind") == "halt" for event in own)


def _end(path: Path) -> bytes:
    """The last bytes of the file; nothing of one that cannot be read."""
    try:
        with open_file(path) as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - LAST_BYTES))
            return source.read(LAST_BYTES)
    except OSError:
        return b""
