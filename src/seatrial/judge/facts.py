"""What there is to judge: the current runs of a campaign sorted by how they ended, what is still to be run, and what was compared.

In: measured runs, groups, ranking, names of pending runs, comparisons, scaling, drift. Out: `Facts`, which the readings of every
criterion and every statement are taken from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.comparison import Comparison, Scaling
from seatrial.records.measure import GroupSummary, Ranking
from seatrial.records.outcome import Fault, Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.stability import SentinelDrift
from seatrial.signatures.registry import fault_of

Compared = Comparison | str
"""What a group is against a baseline, or why that cannot be said."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A campaign as judgement sees it; old attempts are left out."""

    ok: tuple[MeasuredRun, ...]
    failed: tuple[MeasuredRun, ...]
    """By their own settings or code, or for a reason that is not known."""
    spoilt: tuple[MeasuredRun, ...] = ()
    """Failed by the platform: they say nothing of their group and are to be run again."""
    pending: tuple[str, ...]
    """Runs without a result: never started, running, interrupted or skipped."""
    left_out: tuple[str, ...] = ()
    """Runs of the plan that `--only` did not choose, and that were not run before either."""
    groups: tuple[GroupSummary, ...]
    """Sentinels are none of them: they watch the platform and are judged as its drift."""
    ranking: Ranking
    comparisons: Mapping[tuple[str, str], Compared] = field(default_factory=lambda: MappingProxyType({}))
    """By group and `Baseline.text`."""
    scaling: Scaling | None = None
    drift: SentinelDrift | None = None

    @property
    def finished(self) -> tuple[MeasuredRun, ...]:
        return (*self.ok, *self.failed, *self.spoilt)

    def group(self, name: str | None) -> GroupSummary | None:
        return next((group for group in self.groups if group.group == name), None)

    def runs_of(self, group: GroupSummary) -> tuple[MeasuredRun, ...]:
        return tuple(self._by_key.get(group.group_key, ()))

    def pending_of(self, group: str) -> tuple[str, ...]:
        """Runs of a group that are still to be run."""
        return _named_after(group, self.pending)

    def left_out_of(self, group: str) -> tuple[str, ...]:
        return _named_after(group, self.left_out)

    @property
    def spoilt_runs(self) -> tuple[str, ...]:
        """Of the groups, what the platform failed, each run with its cause."""
        return tuple(run for group in self.groups for run in group.infrastructure_failures)

    @cached_property
    def _by_key(self) -> dict[str, list[MeasuredRun]]:
        # A thousand groups of a thousand runs are asked for by every criterion.
        found: dict[str, list[MeasuredRun]] = {}
        for run in self.finished:
            found.setdefault(run.attempt.spec.key, []).append(run)
        return found


def sort_runs(runs: Sequence[MeasuredRun], groups: Sequence[GroupSummary], ranking: Ranking, pending: Sequence[str]) -> Facts:
    """Sort the current attempts; a run that was interrupted or skipped is still to be run, whatever `pending` says."""
    aside = _set_aside(groups)
    current = [run for run in runs if run.attempt.current and not _is_set_aside(run, aside)]
    ok = tuple(run for run in current if run.outcome is Outcome.OK)
    bad = [run for run in current if run.outcome and run.outcome.is_failure]
    finished = {run.attempt.spec.run for run in (*ok, *bad)}
    without_result = [run.attempt.spec.run for run in current if run.attempt.spec.run not in finished]
    return Facts(
        ok=ok,
        failed=tuple(run for run in bad if not is_spoilt(run)),
        spoilt=tuple(run for run in bad if is_spoilt(run)),
        pending=tuple(dict.fromkeys([*pending, *without_result])),
        groups=tuple(group for group in groups if group.mode != SENTINEL),
        ranking=ranking,
    )


def _named_after(group: str, runs: Sequence[str]) -> tuple[str, ...]:
    """A run that never began is known by its name alone, which is its group's and the repeat; `~` parts groups of one name."""
    return tuple(run for run in runs if run.rpartition("_r")[0] == group.partition("~")[0])


def _set_aside(groups: Sequence[GroupSummary]) -> dict[str, frozenset[str]]:
    """Group key → the runs that count, of groups of which some do not."""
    return {group.group_key: frozenset(group.counted) for group in groups if group.set_aside_runs}


def _is_set_aside(run: MeasuredRun, aside: Mapping[str, frozenset[str]]) -> bool:
    """Ended ok, but under other conditions than its group's figures: no figure is made of it, so none is judged."""
    counted = aside.get(run.attempt.spec.key)
    return counted is not None and run.outcome is Outcome.OK and run.attempt.spec.run not in counted


def is_spoilt(run: MeasuredRun) -> bool:
    """Whether the platform failed it."""
    return fault(run) is Fault.INFRASTRUCTURE


def fault(run: MeasuredRun) -> Fault:
    """Whose fault its end was."""
    return fault_of(run.attempt.outcome) if run.attempt.outcome else Fault.UNKNOWN
