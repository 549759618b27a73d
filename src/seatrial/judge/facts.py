"""What there is to judge: the current runs of a campaign sorted by how they ended, and what is still to be run.

In: measured runs, groups, ranking, names of pending runs. Out: `Facts`, which the readings of every criterion are taken from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.records.measure import GroupSummary, Ranking
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun

FAILURES = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED})


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


def gather(runs: Sequence[MeasuredRun], groups: Sequence[GroupSummary], ranking: Ranking, pending: Sequence[str]) -> Facts:
    """Sort the current attempts; a run that was interrupted or skipped is still to be run, whatever `pending` says."""
    current = [run for run in runs if run.attempt.current]
    ok = tuple(run for run in current if outcome_of(run) is Outcome.OK)
    failed = tuple(run for run in current if outcome_of(run) in FAILURES)
    finished = {run.attempt.spec.run for run in (*ok, *failed)}
    without_result = [run.attempt.spec.run for run in current if run.attempt.spec.run not in finished]
    return Facts(ok=ok, failed=failed, pending=tuple(dict.fromkeys([*pending, *without_result])), groups=tuple(groups), ranking=ranking)


def outcome_of(run: MeasuredRun) -> Outcome | None:
    """How the attempt ended; None while it has not."""
    return run.attempt.outcome.outcome if run.attempt.outcome else None
