"""One line of an events file. In: bytes of any kind. Out: the event, or None where they are no JSON object."""

from __future__ import annotations

import json
from typing import Any


def event_in(line: bytes) -> dict[str, Any] | None:
    """The event of one line; bytes that are no UTF-8 are shown as such, as a name in a line may hold them."""
    try:
        value = json.loads(line.decode("utf-8", errors="replace"), object_pairs_hook=_first_of_each)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A name given twice counts as first given, as it does for polars."""
    return dict(reversed(pairs))


def is_of(event: dict[str, Any], run: str, attempt: int, rank: int) -> bool:
    """Whether the event is of that run, attempt and rank."""
    return (event.get("run"), event.get("attempt"), event.get("rank")) == (run, attempt, rank)
