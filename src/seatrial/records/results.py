"""The state of a campaign: progress.json while it runs, and the results from which report and exit code follow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from seatrial.records.attempt import Attempt
from seatrial.records.caution import MAY_HAVE_FAILED, STEPS_START_OVER, Caution
from seatrial.records.columns import RunCharts
from seatrial.records.measure import GroupSummary, RunMeasure, SentinelDrift
from seatrial.records.outcome import Outcome
from seatrial.records.plan import SENTINEL, CampaignPlan
from seatrial.records.ranking import (
    CANNOT_WIN,
    CONFOUNDED,
    DUPLICATE,
    NO_INTERVAL,
    NOT_ENDED,
    NOT_RUN,
    OFF_LANE,
    ONLY_GROUP,
    RECOMMENDED,
    TIED,
    WINNER,
    RankedGroup,
    Ranking,
)
from seatrial.records.verdict import CampaignVerdict

# The interval of logging is the widest between so many of the last losses.
LAST_LOGGED = 20


@dataclass(frozen=True, kw_only=True)
class LiveState:
    """OUT/progress.json: a campaign under way, for `seatrial watch` in another terminal."""

    t: float
    pid: int
    host: str
    plan: str
    count: int
    """Runs of this invocation."""
    finished: int = 0
    failed: int = 0
    run: str | None = None
    """The current run; None between runs and at the end."""
    attempt: int | None = None
    step: int | None = None
    total_steps: int | None = None
    phase: str = ""
    waits: str = ""
    """Why it waits, if its job is in the queue: `job 4711 pending (Resources) since 09:31`."""
    elapsed_s: float = 0.0
    """Time since the launch of this run, or since it waits."""
    iter_ms_p50: float | None = None
    """Median of the newest step times, on the slowest rank."""
    run_eta_s: float | None = None
    run_eta_low_s: float | None = None
    run_eta_high_s: float | None = None
    eta_mode: str = ""
    """`rank0`, `global_max`, or `fallback_local` while there are too few steps for a good estimate."""
    campaign_eta_s: float | None = None
    campaign_eta_low_s: float | None = None
    campaign_eta_high_s: float | None = None
    group: str = ""
    repeat: int | None = None
    alarm: str = ""
    """The newest alarm of this run: a spike, in one sentence."""
    others: str = ""
    """Other runs that are under way, with their state: `mb8_r2: job 4712 pending`."""
    over: bool = False
    quiet_s: float | None = None
    """Time since the run's last step or output; None where it was not measured."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """One attempt and its measurements (None while it runs or when nothing was written)."""

    attempt: Attempt
    measure: RunMeasure | None
    charts: RunCharts | None = None
    """None where no charts were requested."""

    @property
    def outcome(self) -> Outcome | None:
        """How the attempt ended; None while it has not."""
        return self.attempt.outcome.outcome if self.attempt.outcome else None

    @property
    def world_size(self) -> int:
        """The number of ranks, the plan's where nothing was measured."""
        return self.measure.world_size if self.measure else self.attempt.spec.place.ranks


def runs_that_may_have_failed(ok: Sequence[MeasuredRun]) -> dict[str, str]:
    """Runs that exited with 0 after a traceback, or after fewer steps than requested or than their repeats took: run → why. The verdict is
    inconclusive for them, and their groups cannot win."""
    most: dict[str, int] = {}
    for run in ok:
        if run.measure and run.measure.last_step is not None:
            most[run.attempt.spec.key] = max(most.get(run.attempt.spec.key, 0), run.measure.last_step)
    found = {}
    for run in ok:
        name, own = run.attempt.spec.run, [caution for caution in run.attempt.cautions if caution.kind == MAY_HAVE_FAILED]
        if own:
            found[name] = own[0].text.rstrip(".")
        elif short := _missing_steps(run, most.get(run.attempt.spec.key, 0)):
            found[name] = f"{name} exited 0 after {short}"
    return found


def _missing_steps(run: MeasuredRun, most: int) -> str:
    """'step 12 of 100', allowing for steps that were not logged; empty where none are missing or a halt file requested it."""
    measure, asked = run.measure, run.attempt.spec.steps
    if measure is None or measure.last_step is None or (measure.health and measure.health.halted):
        return ""
    steps = measure.loss_course.steps[-LAST_LOGGED:] if measure.loss_course else ()
    interval = max((later - one for one, later in itertools.pairwise(steps)), default=run.attempt.spec.timing.log_every)
    # Steps are counted from 0 or from 1, and the last ones may not have been logged.
    if asked is not None and max(measure.last_step, measure.steps_done or 0) + max(interval, 1) < asked:
        over = any(caution.kind == STEPS_START_OVER for caution in measure.cautions)
        return f"step {measure.last_step:,} of {asked:,}{', with step numbers that start over' if over else ''}"
    if measure.last_step + max(interval, 1) < most:
        return f"step {measure.last_step:,}, where another repeat took {most:,}"
    return ""


@dataclass(frozen=True, kw_only=True)
class GroupedCampaign:
    """One output folder, measured, grouped and ranked, before it is judged: the input of comparisons and verdicts."""

    output: str
    baseline_group: str
    runs: tuple[MeasuredRun, ...]
    """Every attempt, including old ones, by run name, then attempt."""
    pending: tuple[str, ...]
    """Runs of a plan without a finished attempt."""
    groups: tuple[GroupSummary, ...]
    ranking: Ranking
    plans: tuple[CampaignPlan, ...] = ()
    """The latest last."""
    cautions: tuple[Caution, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CampaignResults(GroupedCampaign):
    """The same with its verdict: everything a report shows."""

    generated_t: float
    verdict: CampaignVerdict
    drift: SentinelDrift | None = None
    """None where the plan has no sentinel."""
    not_started: tuple[GroupSummary, ...] = ()
    """Groups of a plan without any attempt yet: they have no figures and no rank."""

    @cached_property
    def counted(self) -> tuple[MeasuredRun, ...]:
        """Current attempts that ended ok, could be measured and were not set aside. Cached: every part of a report uses it."""
        aside = {group.group_key: set(group.counted) for group in self.groups if group.set_aside_runs}
        ok = [run for run in self.runs if run.attempt.current and run.measure and run.outcome is Outcome.OK]
        return tuple(run for run in ok if run.attempt.spec.run in aside.get(run.attempt.spec.key, (run.attempt.spec.run,)))

    @cached_property
    def ranking_rows(self) -> tuple[RankedGroup, ...]:
        """The main lane in order, then the groups off it, each with its note; in each lane groups that have not started come last."""
        first = ONLY_GROUP if self.is_only_group else RECOMMENDED if self.is_undecided else WINNER
        rows = []
        for off_lane, ranked in ((False, self.ranking.groups), (True, self.ranking.off_lane)):
            waiting = enumerate((group for group in self.not_started if group.lane != off_lane), len(ranked) + 1)
            for row in (*ranked, *(RankedGroup(rank=rank, summary=group, can_win=False, reason=NOT_RUN) for rank, group in waiting)):
                own = first if row.group == self.ranking.recommended else ""
                note = _note(row, own, off_lane=off_lane)
                rows.append(replace(row, note=note, is_conditional=bool(own and self.ranking.condition)))
        return tuple(rows)

    @property
    def is_undecided(self) -> bool:
        """Whether first place may still go to another group: they are statistically indistinguishable, or runs are missing."""
        return bool(not self.ranking.decided or self.pending or self.infrastructure_failures)

    @property
    def is_only_group(self) -> bool:
        """Whether the campaign has one group and no run is missing."""
        groups = sum(group.mode != SENTINEL for group in self.groups)
        return groups == 1 and not (self.not_started or self.pending or self.infrastructure_failures)

    @property
    def infrastructure_failures(self) -> list[str]:
        """Runs that failed because of the platform, without those of sentinels."""
        return [run for group in self.groups if group.mode != SENTINEL for run in group.infrastructure_failures]


def _note(row: RankedGroup, first: str, *, off_lane: bool) -> str:
    """`first` is the note of the group to use, '' for the others."""
    group = row.summary
    if not (group.runs or group.failed_runs or group.set_aside_runs or group.infrastructure_failures):
        return NOT_RUN if row.reason == NOT_RUN else NOT_ENDED
    if off_lane:
        return OFF_LANE
    if first:
        return first
    if not row.can_win:
        return DUPLICATE if row.same_as else CANNOT_WIN
    if not row.is_compared:
        return CONFOUNDED
    if not row.tied:
        return ""
    # The group with the best mean, which the others are compared with, has no ratio of its own.
    return TIED if row.ratio is None or row.ratio.low is not None else NO_INTERVAL
