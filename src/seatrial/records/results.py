"""Everything known of a campaign at one moment: what the report draws and the exit code follows from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.charts import RunCharts
from seatrial.records.measure import GroupSummary, Ranking, RunMeasure
from seatrial.records.outcome import Outcome
from seatrial.records.stability import SentinelDrift
from seatrial.records.verdict import CampaignVerdict


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """One attempt and what could be measured of it (None while it runs or when nothing was written)."""

    attempt: Attempt
    measure: RunMeasure | None
    charts: RunCharts | None = None
    """None where nobody asked for something to draw."""

    @property
    def outcome(self) -> Outcome | None:
        """How the attempt ended; None while it has not."""
        return self.attempt.outcome.outcome if self.attempt.outcome else None


@dataclass(frozen=True, kw_only=True)
class CampaignResults:
    """The whole of one output folder."""

    output: str
    plans: tuple[str, ...]
    generated_t: float
    baseline_group: str
    runs: tuple[MeasuredRun, ...]
    """Every attempt, old ones too; by run name, then attempt."""
    pending: tuple[str, ...]
    """Runs a plan asks for that have no finished attempt yet."""
    groups: tuple[GroupSummary, ...]
    ranking: Ranking
    verdict: CampaignVerdict
    drift: SentinelDrift | None = None
    """None where the plan has no sentinel."""
    cautions: tuple[Caution, ...] = ()
    not_started: tuple[GroupSummary, ...] = ()
    """Groups that a plan asks for and no run of which has an attempt: they have no figures and no place, and are still to come."""

    @cached_property
    def counted(self) -> tuple[MeasuredRun, ...]:
        """Current attempts that ended ok, could be measured and were not set aside. Looked for once: every part of a report asks."""
        aside = {group.group_key: set(group.counted) for group in self.groups if group.set_aside_runs}
        ok = [run for run in self.runs if run.attempt.current and run.measure and run.outcome is Outcome.OK]
        return tuple(run for run in ok if run.attempt.spec.run in aside.get(run.attempt.spec.key, (run.attempt.spec.run,)))
