"""Where the ranks of an attempt ran.

In: the heads of events_rank*.jsonl, where each rank's start event stands. Out: one `RankPlace` for each rank that told its place, by rank.
A few kilobytes of each file are read, so a thousand ranks cost no more than their steps' first page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seatrial.collect.events.files import rank_in_name
from seatrial.collect.events.line import event_in, is_of
from seatrial.collect.hosts.folders import node_of
from seatrial.files import open_file
from seatrial.records.attempt import Attempt
from seatrial.records.health import RankPlace

HEAD_BYTES = 4 << 10
"""The start event is the first line, unless another program wrote into the file."""
START = b'"start"'


def read_places(paths: Sequence[Path], attempt: Attempt) -> tuple[RankPlace, ...]:
    """Places of the ranks whose files these are; a rank whose start event is not found, or tells no place, is left out. On many hosts
    a host has the name that the hostfile gives it."""
    return tuple(place for path in paths for place in _place(path, attempt))


def _place(path: Path, attempt: Attempt) -> Iterator[RankPlace]:
    rank = rank_in_name(path)
    for line in _head(path):
        event = event_in(line) if START in line else None
        if event is not None and event.get("kind") == "start" and is_of(event, attempt.spec.run, attempt.number, rank):
            node = node_of(attempt.nodes, rank)
            yield RankPlace(rank=rank, host=node.name if node else _text(event.get("host")), gpu=_text(event.get("gpu")))
            return


def _head(path: Path) -> list[bytes]:
    """Whole lines only; [] for a file that cannot be read."""
    try:
        with open_file(path) as source:
            return source.read(HEAD_BYTES).split(b"\n")[:-1]
    except OSError:
        return []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if type(value) is int else ""
