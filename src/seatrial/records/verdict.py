"""What judgement says: findings with their evidence, and the verdict over them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from seatrial.records import exit_codes
from seatrial.records.measure import Cell

HOW_TO_NAME_A_BASELINE = (
    "give the criterion one of `baseline: {group: NAME}` (a group of this campaign), "
    "`baseline: {campaign: OUT, group: NAME}` (a group of another one, its winner without `group`), "
    "`baseline: {history: NAME}` (a row that `seatrial history pin` named)"
)


class Verdict(str, enum.Enum):
    """The three answers; exit codes 0, 2 and 3."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        return {"PASS": exit_codes.DONE, "FAIL": exit_codes.FAILED, "INCONCLUSIVE": exit_codes.INCONCLUSIVE}[self.value]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What a criterion compares with: a group of this campaign, a group of another one, or a pinned row of history."""

    group: str = ""
    """Of this campaign, or of `campaign`; there it may be empty: its winner."""
    campaign: str = ""
    history: str = ""

    @property
    def shown(self) -> str:
        """For people."""
        return f"the winner of {self.campaign}" if self.campaign and not self.group and not self.history else self.text

    @property
    def text(self) -> str:
        """What comparisons are kept by."""
        if self.history:
            return f"history:{self.history}"
        return f"{self.campaign}:{self.group}" if self.campaign else self.group


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One gate of a plan: a metric, where it is looked at, and a bound. Nothing is evaluated."""

    metric: str
    scope: str
    """`campaign`, `every_run`, `every_group` or `winner`."""
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""
    """The metric's own; bounds are in it."""
    baseline: Baseline | None = None
    """For metrics that compare; None where none was named."""
    ready: str = ""
    """The ready criteria that it came from: `stage1_stability`."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One number a finding rests on, and where it was read."""

    subject: str
    """The run or group."""
    value: Cell
    file: str
    unit: str = ""
    name: str = ""
    """What the value is, where that is not the criterion's metric: `slope`, `p90/p50`."""
    window: str = ""
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What may be the reason for a finding, from the registry of signatures, and what to do."""

    id: str
    text: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One judged statement. A plan's criteria give those that decide; the others are what was found beside."""

    id: str
    """Unique in the campaign, what `seatrial why OUT ID` takes: `1-failed_runs-campaign`, `leak:mb16_r1:host`."""
    kind: str = "criterion"
    """`criterion`, or of a statement: `winner`, `stability`, `cause`, `drift`, `leak`, `straggler`, `steady_state`, `slow_steps`,
    `failure`, `debug`."""
    criterion: Criterion | None = None
    verdict: Verdict
    text: str
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CampaignVerdict:
    """verdict.json."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    statements: tuple[Finding, ...] = ()
    """What was found beside the criteria; none of them changes the exit code."""
    partial: bool = False
    """True when runs of the plan are still to be run."""
    notes: dict[str, str] = field(default_factory=dict)
