"""Whether a run was well, beside its figures: tracebacks, ranks that ended well or were halted, warnings that mean nothing.

In: an attempt that is over and the number of its ranks. Out: `RunHealth`. Of a large launcher.log only the head and the end are looked at,
as for its steps.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from seatrial.collect.events.last_words import is_done, was_halted
from seatrial.collect.failure.tracebacks import HEAD
from seatrial.collect.file_parts import LONGEST_LINE_BYTES, blocks
from seatrial.collect.harmless import HARMLESS, count_harmless
from seatrial.collect.hosts.folders import host_folders
from seatrial.collect.logs.source import LARGEST_LOG_BYTES
from seatrial.collect.rank_endings import num_ended_well_on
from seatrial.files import open_file
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.measure import HarmlessCount, RunHealth
from seatrial.records.outcome import Outcome
from seatrial.units import MIB

TRACEBACK = HEAD.encode()
BLOCK_BYTES = 4 * MIB


def read_health(attempt: Attempt, world_size: int) -> RunHealth:
    """What the attempt's output and event files say of its health; a log that cannot be read says nothing."""
    paths = AttemptPaths(Path(attempt.folder))
    events = paths.all_events()
    seen: Counter[str] = Counter()
    tracebacks = 0
    logs = [folder.paths.launcher_log for folder in host_folders(paths, attempt.nodes)]
    for block in (block for log in logs for block in _blocks(log)):
        tracebacks += block.count(TRACEBACK)
        seen.update(count_harmless(block))
    return RunHealth(
        tracebacks=tracebacks,
        ranks=world_size,
        ranks_ended_well=_ended_well(attempt, logs, events, world_size),
        harmless=tuple(HarmlessCount(id=one.id, meaning=one.meaning, lines=seen[one.id]) for one in HARMLESS if seen[one.id]),
        halted=was_halted(attempt, events),
    )


def _blocks(log: Path) -> Iterator[bytes]:
    """The parts of the log that are looked at, a few mebibytes at once, each to the end of a line."""
    with contextlib.suppress(OSError), open_file(log) as source:
        size, half = os.fstat(source.fileno()).st_size, LARGEST_LOG_BYTES // 2
        for start, end in [(0, size)] if size <= LARGEST_LOG_BYTES else [(0, half), (size - half, size)]:
            source.seek(start)
            yield from blocks(source, end, BLOCK_BYTES, LONGEST_LINE_BYTES)


def _ended_well(attempt: Attempt, logs: Sequence[Path], events: Sequence[Path], world_size: int) -> int | None:
    """All of a run that is `ok`, which means just that; of another as many as are known to, None where nothing tells."""
    if attempt.outcome is not None and attempt.outcome.outcome is Outcome.OK:
        return world_size
    known = [sum(is_done(path, attempt) for path in events)] if events else []
    if attempt.spec.launcher.kind == "deepspeed" and all(map(_is_short, logs)):
        known.append(num_ended_well_on(logs))
    return min(max(known), world_size) if known else None


def _is_short(log: Path) -> bool:
    with contextlib.suppress(OSError):
        return log.stat().st_size <= LARGEST_LOG_BYTES
    return False
