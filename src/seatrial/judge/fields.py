"""A catalogue's dotted field, read out of a record.

In: a record and a field such as `figures.samples_per_s`, `straggler.score`, `stability.verdict`. Out: the value with its interval where
it has one, or why there is none. A mapping is read by key, a record by attribute; an `Estimate` gives its mean; a verdict becomes true,
false, or nothing with the reason that stands beside it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.records.comparison import LossVerdict
from seatrial.records.health import MemoryVerdict, StragglerVerdict
from seatrial.records.measure import Cell, Estimate
from seatrial.records.stability import StabilityVerdict

# What each verdict of a record says of a criterion that takes no bound; one that is not here says nothing.
TRUTH: dict[enum.Enum, bool] = {
    StabilityVerdict.STABLE: True,
    StabilityVerdict.UNSTABLE: False,
    LossVerdict.COMPARABLE: True,
    LossVerdict.WORSE: False,
    MemoryVerdict.PLATEAU: True,
    MemoryVerdict.LEAK: False,
    StragglerVerdict.NONE: True,
    StragglerVerdict.NAMED: False,
}


@dataclass(frozen=True, kw_only=True)
class Found:
    """What stands in a field; `value` is None where there is nothing to go by."""

    value: Cell = None
    estimate: Estimate | None = None
    reason: str = ""
    """What the record itself says, where it has a reason."""


def look_up(record: object, field: str | None) -> Found:
    """The field's value. Text and numbers that are none are no values."""
    holder: Any = record
    parts = field.split(".") if field else []
    for index, part in enumerate(parts):
        if holder is None:
            return Found()
        if isinstance(holder, Mapping):
            # A name that holds dots itself: all that is left is the key.
            return _found(holder.get(".".join(parts[index:])), "")
        parent, holder = holder, getattr(holder, part, None)
        if index == len(parts) - 1:
            return _found(holder, _reason(parent))
    return Found()


def _found(value: Any, reason: str) -> Found:
    if isinstance(value, Estimate):
        return Found(value=_number(value.mean), estimate=value)
    if isinstance(value, enum.Enum):
        return Found(value=TRUTH.get(value), reason=reason)
    return Found(value=_number(value), reason=reason)


def _reason(record: object) -> str:
    return str(getattr(record, "reason", "")).rstrip(".")


def _number(value: Any) -> Cell:
    if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return None
