"""Rare events of one events file. In: the file and the word that marks their kind. Out: the events of that kind, run, attempt and rank.

One line in a thousand is of such a kind: blocks of the file that do not hold the word are not even split into lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.collect.events.files import LARGEST_FILE_BYTES, rank_in_name
from seatrial.collect.events.line import event_in, is_of
from seatrial.collect.file_parts import LONGEST_LINE_BYTES, blocks
from seatrial.files import open_file
from seatrial.records.attempt import Attempt
from seatrial.units import MIB

BLOCK_BYTES = MIB


def events_of_kind(kind: str, path: Path, attempt: Attempt) -> Iterator[dict[str, Any]]:
    """In the order in which they were written; lines of others are passed over, and a file that cannot be read holds none."""
    for line in _lines_that_say(f'"{kind}"'.encode(), path):
        event = event_in(line)
        if event is not None and event.get("kind") == kind and is_of(event, attempt.spec.run, attempt.number, rank_in_name(path)):
            yield event


def _lines_that_say(mark: bytes, path: Path) -> Iterator[bytes]:
    try:
        with open_file(path) as source:
            for block in blocks(source, LARGEST_FILE_BYTES, BLOCK_BYTES, LONGEST_LINE_BYTES):
                if mark in block:
                    yield from (line for line in block.split(b"\n") if mark in line)
    except OSError:
        return
