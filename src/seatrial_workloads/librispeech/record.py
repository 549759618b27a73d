"""How a tree was made. In and out: `prepare.json` at its root.

    {"version": 1, "made_by": "prepare", "target_sr": 16000, "trim_top_db": 60.0}

A tree is of one kind: a second command that would make its files otherwise is refused, naming what differs.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from seatrial.files import BY_UMASK, write_text

# Of what is done to a file: raised when the same settings would give other bytes.
VERSION = 1
# Of a synthetic tree: one for each split.
FEWEST_UTTERANCES = 3


class PrepareError(Exception):
    """Nothing more can be done: what happened, what was expected, what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conversion:
    """How every file of a tree is converted."""

    target_sr: int
    trim_top_db: float | None
    """None leaves silence where it is."""

    @property
    def record(self) -> dict[str, Any]:
        return {"version": VERSION, "made_by": "prepare", **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Making:
    """How a synthetic tree is made."""

    num_utterances: int
    seed: int

    @property
    def record(self) -> dict[str, Any]:
        return {"version": VERSION, "made_by": "synthetic", **dataclasses.asdict(self)}


def read_record(path: Path) -> dict[str, Any] | None:
    """None where there is none that can be read."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def write_record(path: Path, record: dict[str, Any]) -> None:
    write_text(path, json.dumps(record) + "\n", BY_UMASK)


def differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs between two records, in words; nothing where they are the same."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} was {json.dumps(old.get(name))} and would be {json.dumps(new.get(name))}" for name in names)
