"""Whether the ranks formed the world that was planned: a smaller one is a failure, not a slow run.

In: the ranks' `process_group` events (backend and size as torch.distributed reports them), and for scripts without the probe the rank
variables that the agent saw in their environment (observed_ranks.json). Out: one sentence, or nothing. What no rank reports is unknown
and not a failure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from seatrial.core.files import json_object, open_file
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import count
from seatrial.observe.progress import Progress
from seatrial.records.events import PROCESS_GROUP
from seatrial.records.launch import Communicator, ObservedRanks
from seatrial.records.stored import read_record

# Groups are joined before the first step; this holds a few hundred steps more.
HEAD_BYTES = 256 << 10
_MARK = f'"{PROCESS_GROUP}"'.encode()


def read_communicators(attempt: AttemptPaths) -> tuple[Communicator, ...]:
    """Every process group that a rank reported near the beginning of its event file. Processes that all claim rank 0 share one file and are
    each listed."""
    return tuple(found for path in attempt.all_events() for found in _in_file(path, attempt.number))


def _in_file(path: Path, attempt: int) -> list[Communicator]:
    head = b""
    with contextlib.suppress(OSError), open_file(path) as source:
        head = source.read(HEAD_BYTES)
    events = [json_object(line) for line in head.split(b"\n")[:-1] if _MARK in line]
    found = [Communicator.from_event(event) for event in events if event and event.get("attempt") == attempt]
    return [one for one in found if one is not None]


def smaller_world(planned: int, communicators: Sequence[Communicator], observed: ObservedRanks | None = None) -> str:
    """Why no group has the planned size; empty if one has it or nothing is known."""
    if communicators:
        largest = max(communicators, key=lambda one: one.size)
        if largest.size >= planned:
            return ""
        alone = len(communicators) > 1 and largest.size == 1
        separate = f": {len(communicators)} processes formed a world each" if alone else ""
        return f"the process group ({largest.backend}) has {largest.size} of {count(planned, 'planned rank')}{separate}"
    sizes = observed.world_sizes if observed else ()
    if sizes and max(sizes) < planned:
        return f"WORLD_SIZE of its processes is {max(sizes)}, and the plan has {count(planned, 'rank')}"
    return ""


def world_at_end(planned: int, attempt: AttemptPaths) -> str:
    """`smaller_world` of a finished run, with the environments that the agent saw; these are complete only at the end."""
    observed = read_record(ObservedRanks, attempt.observed_ranks)[0]
    return smaller_world(planned, read_communicators(attempt), observed) if planned > 1 else ""


class WorldCheck:
    """Checks once, as soon as the ranks with the probe have ended their first step."""

    def __init__(self, planned: int, attempt: AttemptPaths) -> None:
        self._planned, self._attempt = planned, attempt
        self._is_done = planned < 2

    def problem(self, progress: Progress) -> str:
        """The problem; empty without one and before the first step."""
        if self._is_done or not progress.rank_states or progress.step is None:
            return ""
        self._is_done = True
        return smaller_world(self._planned, read_communicators(self._attempt))
