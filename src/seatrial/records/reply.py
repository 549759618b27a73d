"""What a host says to a question of the doctor, and how it is asked: known to who carries questions and to who judges answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from seatrial.records.line import ClockOffset


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One host's answer, or in words why there is none."""

    told: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""
    took_s: float = 0.0
    """From the question to the answer; of the first one, until the session had begun."""
    clock: ClockOffset | None = None


class Ask(Protocol):
    """Puts a question to each of many hosts, all at once. Every host that is asked has a reply, within `patience_s` each."""

    def __call__(self, questions: Mapping[str, Mapping[str, Any]], patience_s: float, /) -> Mapping[str, Reply]: ...
