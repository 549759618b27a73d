"""What one `seatrial run` is to do, and what runs next: the plan's unfinished runs in the plan's order, as long as the budget lasts.

In: the runs that are left, how long runs of each group took so far, and the budget. Out: the next run, and the time to go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from seatrial.campaign.interrupts import StopRequests
from seatrial.core.paths import CampaignPaths
from seatrial.observe.eta import CurrentRun, TimeLeft, campaign_eta
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """What is to be done, where, and until when."""

    plan: CampaignPlan
    plan_hash: str
    paths: CampaignPaths
    interrupts: StopRequests
    from_start: bool = False
    """Trainings start over instead of resuming from a checkpoint."""
    keep_going: bool = False
    """Do not stop after identical failures in a row (`early_end`)."""
    monotonic: Callable[[], float] = time.monotonic


class RunSource(Protocol):
    """What runs next: all that the loops over runs ask. A fixed list is one (`Schedule`), a race between groups would be another."""

    @property
    def left(self) -> tuple[RunSpec, ...]:
        """Runs that are not finished, in their order, including the current one."""

    @property
    def any_ok(self) -> bool:
        """Whether any run has succeeded, in an earlier invocation too."""

    @property
    def budget_left_s(self) -> float | None:
        """None without a budget."""

    @property
    def out_of_budget(self) -> bool:
        """Whether `next` returned None because of the budget."""

    def next(self, skip: Collection[str] = ()) -> RunSpec | None:
        """The run to start now, other than those named in `skip`; None where none is to start now."""

    def expected_s(self, spec: RunSpec) -> float | None:
        """How long `spec` is expected to take; None where that is unknown."""

    def ended(self, spec: RunSpec, outcome: RunOutcome) -> None:
        """`spec` is over; an interrupted run is still to be run."""

    def time_left(self, current: CurrentRun) -> TimeLeft | None:
        """The campaign's time to go, while `current` is in progress."""


class Schedule:
    """The runs of a plan in the plan's order; several may be in flight where each has hosts of its own."""

    def __init__(
        self,
        runs: Sequence[RunSpec],
        durations_s: Mapping[str, Sequence[float]],
        budget_s: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._left = list(runs)
        self._durations_s = {group_key: list(durations) for group_key, durations in durations_s.items()}
        self._budget_s, self._monotonic, self._started_m = budget_s, monotonic, monotonic()
        self.out_of_budget = False

    @property
    def left(self) -> tuple[RunSpec, ...]:
        return tuple(self._left)

    @property
    def any_ok(self) -> bool:
        return bool(self._durations_s)

    def next(self, skip: Collection[str] = ()) -> RunSpec | None:
        """The first run that is not skipped, unless it would end beyond the budget, by the mean of its group so far."""
        spec, left_s = next((one for one in self._left if one.run not in skip), None), self.budget_left_s
        self.out_of_budget = spec is not None and left_s is not None and (self.expected_s(spec) or 0.0) > left_s
        return None if self.out_of_budget else spec

    def expected_s(self, spec: RunSpec) -> float | None:
        """The mean of its group's successful runs so far."""
        durations_s = self._durations_s.get(spec.group_key)
        return fmean(durations_s) if durations_s else None

    def ended(self, spec: RunSpec, outcome: RunOutcome) -> None:
        if outcome.outcome is Outcome.OK:
            self._durations_s.setdefault(spec.group_key, []).append(outcome.duration_s)
        if outcome.outcome is not Outcome.INTERRUPTED:
            self._left.remove(spec)

    def time_left(self, current: CurrentRun) -> TimeLeft | None:
        """While the first of the remaining runs is in progress."""
        return campaign_eta(self._left[1:], self._durations_s, current, budget_left_s=self.budget_left_s)

    @property
    def budget_left_s(self) -> float | None:
        return None if self._budget_s is None else self._budget_s - (self._monotonic() - self._started_m)
