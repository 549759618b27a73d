"""What judgement says: findings with their evidence, and the verdict over them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from seatrial.records.measure import Cell


class Verdict(str, enum.Enum):
    """The three answers; exit codes 0, 2 and 3."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        return {"PASS": 0, "FAIL": 2, "INCONCLUSIVE": 3}[self.value]


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One gate of a plan: a metric, where it is looked at, and a bound. Nothing is evaluated."""

    metric: str
    scope: str
    """`campaign`, `every_run`, `every_group` or `winner`."""
    at_most: float | None = None
    at_least: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One number a finding rests on, and where it was read."""

    subject: str
    """The run or group."""
    value: Cell
    file: str
    window: str = ""
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One judged statement."""

    id: str
    criterion: Criterion
    verdict: Verdict
    text: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CampaignVerdict:
    """verdict.json."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    partial: bool = False
    """True when runs of the plan are still to be run."""
    notes: dict[str, str] = field(default_factory=dict)
