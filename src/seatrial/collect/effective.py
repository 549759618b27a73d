"""What a workload said of its settings: asked for, used instead, and why.

In: one rank's event file. Out: setting → (requested, effective, reason), the last word on each.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from seatrial.records.run_spec import Scalar

MARK = b'"effective"'
Effective = dict[str, tuple[Scalar, Scalar, str]]


def read_effective(path: Path) -> Effective:
    """Every `effective` event of the file; {} when there is none. Their types differ from line to line, so they are in no table."""
    found: Effective = {}
    for line in _lines_that_say(MARK, path):
        with contextlib.suppress(json.JSONDecodeError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and event.get("kind") == "effective" and isinstance(event.get("setting"), str):
                found[event["setting"]] = (event.get("requested"), event.get("effective"), str(event.get("reason") or ""))
    return found


def _lines_that_say(mark: bytes, path: Path) -> Iterator[str]:
    """One line in a thousand is of this kind: the rest of a file of hundreds of kilobytes is not even split."""
    try:
        data = path.read_bytes()
    except OSError:
        return
    at = data.find(mark)
    while at >= 0:
        start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield data[start:end].decode("utf-8", errors="replace")
        at = data.find(mark, end)
