"""What was asked for, what it came to on this machine, and why: the one value that every policy gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Settings stand on this module, and are read where nothing is trained.
    from seatrial.probe import Probe

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


def record(choices: Mapping[str, Choice], probe: Probe) -> None:
    """Leave each in the run's events, by the name of its setting."""
    for name, choice in choices.items():
        probe.effective(name, requested=choice.requested, effective=choice.effective, reason=choice.reason)
