"""A warning as a value: shown by the report, listed in the JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

Number = float | int | str | None


@dataclass(frozen=True, kw_only=True)
class Caution:
    """Something a reader must know to weigh a figure."""

    kind: str
    """A stable word: `one_repeat`, `no_steady_state`, `steps_compared`, `whole_run_only`, …"""
    text: str
    """What is so, and what to do about it, in one or two sentences."""
    subject: str = ""
    """The run or group it speaks of; empty for the whole campaign."""
    numbers: dict[str, Number] = field(default_factory=dict)
