"""The variables that the ranks of an attempt got. In: environment.json. Out: name → value, None where no file says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seatrial.files import read_json


def read_variables(path: Path) -> dict[str, str] | None:
    """All of them; an entry that is none is passed over."""
    stored = read_json(path)
    listed = stored.get("variables") if isinstance(stored, dict) else None
    return dict(_named_values(listed)) if isinstance(listed, list) else None


def _named_values(listed: list[object]) -> Iterator[tuple[str, str]]:
    for one in listed:
        if isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("value"), str):
            yield one["name"], one["value"]
