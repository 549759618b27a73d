"""What was asked for, what it came to on this machine, and why: the one value that every policy gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

AS_REQUESTED = "as requested"


@dataclass(frozen=True)
class Choice:
    """Requested, effective, reason."""

    requested: Any
    effective: Any
    reason: str


def as_requested(value: Any) -> Choice:
    """Nothing stood in the way."""
    return Choice(value, value, AS_REQUESTED)
