"""Effective settings: what was requested, what it became on this machine, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seatrial.probe import Probe

AS_REQUESTED = "as requested"


@dataclass(frozen=True)
class Choice:
    """Requested and effective value, and the reason."""

    requested: Any
    effective: Any
    reason: str


def as_requested(value: Any) -> Choice:
    return Choice(value, value, AS_REQUESTED)


def record(choices: Mapping[str, Choice], probe: Probe) -> None:
    """Record each in the run's events, by the name of its setting."""
    for name, choice in choices.items():
        probe.effective(name, requested=choice.requested, effective=choice.effective, reason=choice.reason)


def prefetch_for(num_workers: int, prefetch_factor: int) -> int | None:
    """DataLoader accepts a prefetch factor only with workers."""
    return prefetch_factor if num_workers else None


def prefetch_without_workers(num_workers: int, prefetch_factor: int) -> dict[str, Choice]:
    """prefetch_factor has no effect without workers."""
    return {} if num_workers else {"prefetch_factor": Choice(prefetch_factor, None, "num_workers is 0: nothing is prefetched")}
