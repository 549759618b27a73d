"""What there is to judge: the current runs of a campaign sorted by how they ended, and what is still to be run.

In: measured runs, groups, ranking, names of pending runs. Out: `Facts`, which the readings of every criterion are taken from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.records.measure import GroupSummary, Ranking
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A campaign as judgement sees it; old attempts are left out."""

    ok: tuple[MeasuredRun, ...]
    failed: tuple[MeasuredRun, ...]
    pending: tuple[str, ...]
    """Runs without a result: never started, running, interrupted or skipped."""
    groups: tuple[GroupSummary, ...]
    ranking: Ranking

    @property
    def finished(self) -> tuple[MeasuredRun, ...]:
        return (*self.ok, *self.failed)

    def group(self, name: str | None) -> GroupSummary | None:
        return next((group for group in self.groups if group.group == name), None)


def sort_runs(runs: Sequence[MeasuredRun], groups: Sequence[GroupSummary], ranking: Ranking, pending: Sequence[str]) -> Facts:
    """Sort the current attempts; a run that was interrupted or skipped is still to be run, whatever `pending` says."""
    current = [run for run in runs if run.attempt.current and not _is_set_aside(run, groups)]
    ok = tuple(run for run in current if run.outcome is Outcome.OK)
    failed = tuple(run for run in current if run.outcome and run.outcome.is_failure)
    finished = {run.attempt.spec.run for run in (*ok, *failed)}
    without_result = [run.attempt.spec.run for run in current if run.attempt.spec.run not in finished]
    return Facts(ok=ok, failed=failed, pending=tuple(dict.fromkeys([*pending, *without_result])), groups=tuple(groups), ranking=ranking)


def _is_set_aside(run: MeasuredRun, groups: Sequence[GroupSummary]) -> bool:
    """Ended ok, but under other conditions than its group's figures: no figure is made of it, so none is judged."""
    group = next((group for group in groups if group.group_key == run.attempt.spec.group_key), None)
    return group is not None and bool(group.set_aside_runs) and run.outcome is Outcome.OK and run.attempt.spec.run not in group.counted
