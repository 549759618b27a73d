"""What a workload said of its settings: asked for, used instead, and why.

In: one rank's event file. Out: setting → (requested, effective, reason), the last word on each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seatrial.collect.events.rare import events_of_kind
from seatrial.records.attempt import Attempt
from seatrial.records.run_spec import Scalar

Effective = dict[str, tuple[Scalar, Scalar, str]]


def read_effective(path: Path, attempt: Attempt) -> Effective:
    """Every `effective` event of the file; {} when there is none. Their types differ from line to line, so they are in no table."""
    found: Effective = {}
    for event in events_of_kind("effective", path, attempt):
        if _is_setting(event):
            found[event["setting"]] = (event.get("requested"), event.get("effective"), str(event.get("reason") or ""))
    return found


def _is_setting(event: dict[str, Any]) -> bool:
    values = (event.get("requested"), event.get("effective"), event.get("reason"))
    return isinstance(event.get("setting"), str) and not any(isinstance(v, (dict, list)) for v in values)
