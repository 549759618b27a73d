"""What a workload said of its settings: asked for, used instead, and why.

In: one rank's event file. Out: setting → (requested, effective, reason), the last word on each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.collect.event_files import LARGEST_FILE_BYTES, LONGEST_LINE_BYTES, rank_in_name
from seatrial.collect.event_line import event_in, is_of
from seatrial.collect.file_parts import MIB
from seatrial.files import open_file
from seatrial.records.attempt import Attempt
from seatrial.records.run_spec import Scalar

MARK = b'"effective"'
BLOCK_BYTES = MIB
Effective = dict[str, tuple[Scalar, Scalar, str]]


def read_effective(path: Path, attempt: Attempt) -> Effective:
    """Every `effective` event of the file; {} when there is none. Their types differ from line to line, so they are in no table."""
    found: Effective = {}
    for line in _lines_that_say(MARK, path):
        event = event_in(line)
        if event is not None and _is_setting(event) and is_of(event, attempt.spec.run, attempt.number, rank_in_name(path)):
            found[event["setting"]] = (event.get("requested"), event.get("effective"), str(event.get("reason") or ""))
    return found


def _is_setting(event: dict[str, Any]) -> bool:
    values = (event.get("requested"), event.get("effective"), event.get("reason"))
    return (
        event.get("kind") == "effective" and isinstance(event.get("setting"), str) and not any(isinstance(v, (dict, list)) for v in values)
    )


def _lines_that_say(mark: bytes, path: Path) -> Iterator[bytes]:
    """One line in a thousand is of this kind: blocks without one are not even split."""
    try:
        with open_file(path) as source:
            while source.tell() < LARGEST_FILE_BYTES and (block := source.read(BLOCK_BYTES)):
                block += b"" if block.endswith(b"\n") else source.readline(LONGEST_LINE_BYTES)
                if mark in block:
                    yield from (line for line in block.split(b"\n") if mark in line)
    except OSError:
        return
