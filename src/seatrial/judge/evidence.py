"""What is judged, and the values that a verdict is based on.

In: measured runs, groups, ranking, names of pending runs, comparisons, scaling, drift. Out: `JudgedCampaign`, the current runs by how they
ended; `CriterionValue`, one value that a criterion checks, with its evidence; evidence of memory growth and of stragglers. `value` decides,
unless there are `low` and `high`: then all between them (an interval) must meet the bound, or violate it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from seatrial.core.paths import CAMPAIGN_FILES
from seatrial.core.text import count, join_names
from seatrial.records.caution import Scalar
from seatrial.records.comparison import Comparison, Scaling
from seatrial.records.measure import CONFIDENCE, GroupSummary, MemoryTrend, MemoryVerdict, RunMeasure, SentinelDrift, Straggler, Window
from seatrial.records.outcome import Fault, Outcome
from seatrial.records.plan import SENTINEL
from seatrial.records.ranking import Ranking
from seatrial.records.results import MeasuredRun, runs_that_may_have_failed
from seatrial.records.signatures.registry import fault_of
from seatrial.records.verdict import Criterion, Evidence

Compared = Comparison | str
"""The comparison of a group with a baseline, or why there is none."""
FILES = CAMPAIGN_FILES
_NUMBERS = re.compile(r"\d+(?:[.,]\d+)*")
# Sentences name this many runs; the evidence lists all.
MAX_NAMED = 5
# Up to this many runs get a finding each, more of them share one.
MAX_APART = 3
LOWER_END, UPPER_END = "lower end", "upper end"
NO_SAMPLES = "no memory samples: leave `telemetry` on and run longer"
ONE_RANK = "one rank only"


@dataclass(frozen=True, kw_only=True)
class JudgedCampaign:
    """What is judged: the current attempts of a campaign by how they ended, its groups, ranking and comparisons."""

    ok: tuple[MeasuredRun, ...]
    failed: tuple[MeasuredRun, ...]
    """Because of their own settings or code, or for an unknown reason."""
    platform_failed: tuple[MeasuredRun, ...] = ()
    """Failed because of the platform: not counted against their group, to be run again."""
    pending: tuple[str, ...]
    """Runs without a result: never started, running, interrupted or skipped."""
    left_out: tuple[str, ...] = ()
    """Runs of the plan that `--only` did not select and that have no result."""
    groups: tuple[GroupSummary, ...]
    """All groups but sentinels, which show the drift of the platform."""
    ranking: Ranking
    comparisons: Mapping[tuple[str, str], Compared] = field(default_factory=lambda: MappingProxyType({}))
    """Keyed by group and `Baseline.text`."""
    scaling: Scaling | None = None
    drift: SentinelDrift | None = None
    may_have_failed: tuple[str, ...] = ()
    """Runs that exited 0 and may have failed, each with the reason: no verdict passes on them."""

    @property
    def finished(self) -> tuple[MeasuredRun, ...]:
        return (*self.ok, *self.failed, *self.platform_failed)

    def group(self, name: str | None) -> GroupSummary | None:
        return next((group for group in self.groups if group.group == name), None)

    def runs_of(self, group: GroupSummary) -> tuple[MeasuredRun, ...]:
        return tuple(self._by_key.get(group.group_key, ()))

    def pending_of(self, group: str) -> tuple[str, ...]:
        return _runs_named(group, self.pending)

    def left_out_of(self, group: str) -> tuple[str, ...]:
        return _runs_named(group, self.left_out)

    @property
    def platform_failures(self) -> tuple[str, ...]:
        """Runs that failed because of the platform, each with its cause."""
        return tuple(run for group in self.groups for run in group.infrastructure_failures)

    @cached_property
    def _by_key(self) -> dict[str, list[MeasuredRun]]:
        # Each criterion looks up every group: there may be a thousand groups and a thousand runs.
        found: dict[str, list[MeasuredRun]] = {}
        for run in self.finished:
            found.setdefault(run.attempt.spec.key, []).append(run)
        return found


class BoundStatus(enum.Enum):
    """How a value compares with its bounds."""

    MET = "met"
    VIOLATED = "violated"
    UNDECIDED = "undecided"
    """No value, a span that reaches over the bound, or runs that may still change it."""


@dataclass(frozen=True, kw_only=True)
class CriterionValue:
    """One value that a criterion checks, or why there is none; `evidence()` is what the verdict stores."""

    subject: str
    value: Scalar = None
    unit: str = ""
    file: str = ""
    window: str = ""
    n: int | None = None
    low: float | None = None
    """`low` and `high` decide where given: ends of an interval, or the lowest and highest possible count."""
    high: float | None = None
    confidence: float | None = None
    """Confidence of the interval; None where `low` and `high` are not the ends of one."""
    repeats: int | None = None
    """Runs of each group that the interval is based on."""
    violation: str = ""
    """Why it is violated whatever its value: a speed-up with a worse loss."""
    unsettled: str = ""
    """Why the value may still change; it never passes then."""
    missing: str = ""
    """Set when `value` is None: what is missing and how to get it."""
    detail: str = ""
    """Shown beside the value: first and last loss, the runs that failed, the interval."""
    note: str = ""
    """Shown even where the bound is met: that only some ranks reported."""
    further: tuple[Evidence, ...] = ()
    """Evidence of the numbers that the value was computed from."""

    def evidence(self) -> tuple[Evidence, ...]:
        if self.missing:
            # The file that should contain the value.
            gap = Evidence(subject=self.subject, value=None, file=self.file, window="no value", n=0)
            return (gap, *self.further) if self.file else self.further
        own = Evidence(subject=self.subject, value=self.value, file=self.file, unit=self.unit, window=self.window, n=self.n)
        if self.confidence is None:
            return (own, *self.further)
        interval = interval_text(self.confidence)
        ends = (replace(own, name=f"{name} of the {interval}", value=end) for name, end in ((LOWER_END, self.low), (UPPER_END, self.high)))
        return (own, *ends, *self.further)

    def status(self, criterion: Criterion, *, needs_bound: bool) -> BoundStatus:
        if self.missing:
            return BoundStatus.UNDECIDED
        if self.violation:
            return BoundStatus.VIOLATED
        if not needs_bound:
            return BoundStatus.VIOLATED if not self.value else BoundStatus.UNDECIDED if self.unsettled else BoundStatus.MET
        low, high = self._span()
        if (criterion.at_most is not None and low > criterion.at_most) or (criterion.at_least is not None and high < criterion.at_least):
            return BoundStatus.VIOLATED
        return BoundStatus.MET if self.is_inside(criterion) and not self.unsettled else BoundStatus.UNDECIDED

    def is_inside(self, criterion: Criterion) -> bool:
        """Whether all of the span is within the bounds."""
        low, high = self._span()
        return (criterion.at_least is None or low >= criterion.at_least) and (criterion.at_most is None or high <= criterion.at_most)

    def _span(self) -> tuple[float, float]:
        value = float(self.value or 0)
        return (value if self.low is None else self.low), (value if self.high is None else self.high)


def judged_campaign(
    runs: Sequence[MeasuredRun], groups: Sequence[GroupSummary], ranking: Ranking, pending: Sequence[str]
) -> JudgedCampaign:
    """The current attempts by how they ended; a run that was interrupted or skipped is pending, even if `pending` does not name it."""
    # Runs that ended ok under other conditions than those of their group's figures are not averaged and not judged.
    counted = {group.group_key: group.counted for group in groups if group.set_aside_runs}
    current = [
        run
        for run in runs
        if run.attempt.current
        and (run.outcome is not Outcome.OK or run.attempt.spec.run in counted.get(run.attempt.spec.key, (run.attempt.spec.run,)))
    ]
    ok = tuple(run for run in current if run.outcome is Outcome.OK)
    bad = [run for run in current if run.outcome and run.outcome.is_failure]
    finished = {run.attempt.spec.run for run in (*ok, *bad)}
    without_result = [run.attempt.spec.run for run in current if run.attempt.spec.run not in finished]
    return JudgedCampaign(
        ok=ok,
        failed=tuple(run for run in bad if not failed_by_platform(run)),
        platform_failed=tuple(run for run in bad if failed_by_platform(run)),
        pending=tuple(dict.fromkeys([*pending, *without_result])),
        groups=tuple(group for group in groups if group.mode != SENTINEL),
        ranking=ranking,
        may_have_failed=tuple(runs_that_may_have_failed(ok).values()),
    )


def _runs_named(group: str, runs: Sequence[str]) -> tuple[str, ...]:
    """Runs of a group by name, GROUP_rREPEAT: a run that never began has nothing else. `~` separates groups of one name."""
    return tuple(run for run in runs if run.rpartition("_r")[0] == group.partition("~")[0])


def failed_by_platform(run: MeasuredRun) -> bool:
    return fault(run) is Fault.INFRASTRUCTURE


def fault(run: MeasuredRun) -> Fault:
    return fault_of(run.attempt.outcome) if run.attempt.outcome else Fault.UNKNOWN


def missing(subject: str, why: str, file: str = "") -> CriterionValue:
    return CriterionValue(subject=subject, missing=why, file=file)


def listed(parts: Sequence[str], separator: str = ", ") -> str:
    """The first few, and the number of the others."""
    return join_names(parts, MAX_NAMED, separator)


def without_numbers(text: str) -> str:
    """A key under which reasons that differ only in numbers are the same."""
    return _NUMBERS.sub("#", text)


def interval_text(confidence: float = CONFIDENCE) -> str:
    """'95 % interval'."""
    return f"{confidence * 100:.4g} % interval"


def failures_text(group: GroupSummary) -> list[str]:
    """How many runs failed: the figures are those of the others."""
    platform_failed = len(group.infrastructure_failures)
    tried = count(group.runs + group.failed_runs + group.set_aside_runs + platform_failed, "run")
    failed = [f"{group.failed_runs} of {tried} failed"] if group.failed_runs else []
    return [*failed, *([f"{platform_failed} of {tried} failed because of the platform"] if platform_failed else [])]


def debug_text(settings: Sequence[str]) -> list[str]:
    return [f"measured with {listed(settings)} on"] if settings else []


def window_text(window: Window | None) -> str:
    return window.text if window else "whole run"


def run_window(run: MeasuredRun) -> tuple[str, int | None]:
    """The window of a run and its number of counted steps."""
    window = run.measure.window if run.measure else None
    return window_text(window), window.n if window else None


def how_it_ended(run: MeasuredRun) -> str:
    outcome = run.attempt.outcome
    return f"{outcome.outcome.value}: {outcome.cause.value}" if outcome else "not ended"


def attempt_file(run: MeasuredRun, name: str) -> str:
    """A file of the run's attempt, relative to the campaign's folder; `name` may be any path to it."""
    return str(FILES.run(run.attempt.spec.run).attempt(run.attempt.number).folder / Path(name).name)


def outcome_file(run: MeasuredRun) -> str:
    return str(FILES.run(run.attempt.spec.run).attempt(run.attempt.number).outcome)


def leak_value(run: MeasuredRun) -> CriterionValue:
    """Growth of the fastest leak; 0 without a leak."""
    name = run.attempt.spec.run
    trends = run.measure.memory if run.measure else ()
    leaks = [trend for trend in trends if trend.verdict is MemoryVerdict.LEAK and trend.slope_mib_per_min is not None]
    inconclusive = [trend for trend in trends if trend.verdict is MemoryVerdict.INCONCLUSIVE]
    if not leaks and (inconclusive or not trends):
        return missing(name, f"{name}: {inconclusive_text(inconclusive[0]) if inconclusive else NO_SAMPLES}", FILES.per_run_metrics.name)
    worst = max(leaks, key=lambda trend: trend.slope_mib_per_min or 0.0, default=trends[0])
    at = trend_evidence(run, worst)[0]
    return CriterionValue(
        subject=name,
        value=worst.slope_mib_per_min if leaks else 0.0,
        unit=at.unit,
        file=at.file,
        window=at.window,
        n=at.n,
        detail=f"{worst.subject} {slope_text(worst)}" if leaks else "no growth",
        unsettled=inconclusive_text(inconclusive[0]) if inconclusive else "",
        further=tuple(evidence for trend in trends for evidence in trend_evidence(run, trend)),
    )


def slope_text(trend: MemoryTrend) -> str:
    """'grows by 12.1 MiB/min (11.8 to 12.4)'."""
    if trend.slope_mib_per_min is None:
        return "grows"
    ends = f" ({trend.slope_low:.4g} to {trend.slope_high:.4g})" if trend.slope_low is not None and trend.slope_high is not None else ""
    return f"grows by {trend.slope_mib_per_min:.4g} MiB/min{ends}"


def inconclusive_text(trend: MemoryTrend) -> str:
    return f"{trend.subject}: {trend.reason.rstrip('.')}"


def trend_evidence(run: MeasuredRun, trend: MemoryTrend) -> tuple[Evidence, ...]:
    """The slope; for a leak all other numbers after it."""
    numbers: list[tuple[str, float | None, str]] = [(f"slope of {trend.subject}", trend.slope_mib_per_min, "MiB/min")]
    if trend.verdict is MemoryVerdict.LEAK:
        more = (
            (f"slope of {trend.subject}, lower end", trend.slope_low, "MiB/min"),
            (f"slope of {trend.subject}, upper end", trend.slope_high, "MiB/min"),
            (f"growth of {trend.subject} in 1,000 steps", trend.mib_per_1000_steps, "MiB"),
            (f"limit of {trend.subject}", trend.limit_mib, "MiB"),
            (f"hours until {trend.subject} is full", trend.hours_left, "h"),
            (f"hours until {trend.subject} is full, at the steepest", trend.hours_low, "h"),
        )
        numbers += [number for number in more if number[1] is not None]
    seconds = trend.last_t - trend.first_t if trend.first_t is not None and trend.last_t is not None else None
    return tuple(
        Evidence(
            subject=run.attempt.spec.run,
            name=name,
            value=value,
            unit=unit,
            file=attempt_file(run, trend.file) if trend.file else FILES.per_run_metrics.name,
            window=f"{seconds:.0f} s after warm-up" if seconds is not None else "after warm-up",
            n=trend.n,
        )
        for name, value, unit in numbers
    )


def is_single_rank(measure: RunMeasure | None) -> bool:
    """Whether it ran on a single rank, which cannot have a straggler."""
    return measure is not None and measure.world_size == 1 and measure.straggler is None


def straggler_evidence(run: MeasuredRun, found: Straggler) -> Evidence:
    name = f"straggler score of rank {found.rank}" if found.rank is not None else "straggler score"
    return Evidence(
        subject=run.attempt.spec.run, name=name, value=found.score, file=FILES.per_run_metrics.name, window=steps_text(found), n=found.n
    )


def held_up_evidence(run: MeasuredRun, found: Straggler) -> Evidence:
    return replace(straggler_evidence(run, found), name="time that a step is held up", value=found.held_up_ms, unit="ms")


def steps_text(found: Straggler) -> str:
    return f"steps {found.first_step}–{found.last_step}" if found.first_step is not None else "no steps"
