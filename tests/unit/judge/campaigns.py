"""Campaigns for the tests of judge: runs with given memory trends, stragglers, faults and settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from seatrial.judge.verdict import judge
from seatrial.records.comparison import Comparison, LossParity, LossVerdict, Relation
from seatrial.records.measure import Estimate, MemoryTrend, MemoryVerdict, Straggler, StragglerVerdict
from seatrial.records.outcome import Cause, Fault, Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import CampaignVerdict, Criterion, Finding
from tests.unit.report import factory

GROUPS = ("mb16_nw2", "mb16_nw0")


def clean_runs() -> list[MeasuredRun]:
    return [factory.measured(group, repeat) for group in GROUPS for repeat in (1, 2)]


def changed(run: MeasuredRun, **changes: Any) -> MeasuredRun:
    assert run.measure is not None
    return dataclasses.replace(run, measure=dataclasses.replace(run.measure, **changes))


def judged(*criteria: Criterion, runs: Sequence[MeasuredRun] | None = None, **facts: Any) -> CampaignVerdict:
    groups = facts.pop("groups", factory.groups()[1:3])
    ranking = facts.pop("ranking", factory.ranking())
    pending = facts.pop("pending", ())
    return judge(criteria, clean_runs() if runs is None else runs, groups, ranking, pending, **facts)


def finding(criterion: Criterion, **facts: Any) -> Finding:
    return judged(criterion, **facts).findings[0]


def statement(id: str, **facts: Any) -> Finding | None:
    return next((one for one in judged(**facts).statements if one.id == id), None)


def course(verdict: MemoryVerdict, **changes: Any) -> MemoryTrend:
    leaks = verdict is MemoryVerdict.LEAK
    made = MemoryTrend(
        kind="host",
        subject="process tree",
        verdict=verdict,
        reason="Too few samples: 12 in 20 s; run at least 5 minutes." if verdict is MemoryVerdict.INCONCLUSIVE else "As said.",
        slope_mib_per_min=12.5 if leaks else 0.0,
        slope_low=12.0 if leaks else -0.1,
        slope_high=13.0 if leaks else 0.1,
        mib_per_1000_steps=40.0 if leaks else None,
        limit_mib=16384.0 if leaks else None,
        hours_left=6.0 if leaks else None,
        hours_low=5.8 if leaks else None,
        n=300,
        first_t=1000.0,
        last_t=1600.0,
        file="host_telemetry.csv",
    )
    return dataclasses.replace(made, **changes)


def straggler(verdict: StragglerVerdict, **changes: Any) -> Straggler:
    named = verdict is StragglerVerdict.NAMED
    made = Straggler(
        verdict=verdict,
        reason="Rank 1 of 2 is missing." if verdict is StragglerVerdict.ABSTAINED else "As said.",
        rank=1 if named else None,
        score=0.25 if named else None,
        phase="bwd" if named else "",
        host="node-2" if named else "",
        gpu="3" if named else "",
        held_up_ms=4.0 if named else None,
        n=150,
        first_step=20,
        last_step=169,
        source="events",
    )
    return dataclasses.replace(made, **changes)


def platform_failed(group: str, repeat: int) -> MeasuredRun:
    """Failed by its storage."""
    return factory.measured(
        group,
        repeat,
        how=Outcome.FAILED,
        cause=Cause.IO_ERROR,
        fault=Fault.INFRASTRUCTURE,
        detail="Reading failed.",
        action="Look at the disk.",
    )


def comparison(mean: float, low: float | None, high: float | None, **changes: Any) -> Comparison:
    """mb16_nw2 against mb16_nw0."""
    made = Comparison(
        a="mb16_nw0",
        b="mb16_nw2",
        metric="samples_per_s",
        unit="samples/s",
        higher_is_better=True,
        relation=Relation.FASTER,
        reason="mb16_nw2 is faster.",
        method="Welch on logs, 5 and 5 runs",
        value_a=Estimate(mean=1000.0, low=990.0, high=1010.0, n=5),
        value_b=Estimate(mean=1000.0 * mean, n=5),
        ratio=Estimate(mean=mean, low=low, high=high, n=10),
        loss=LossParity(verdict=LossVerdict.COMPARABLE, reason="Within the noise.", difference=0.01, allowed=0.05, last_step=199, n=50),
    )
    return dataclasses.replace(made, **changes)
