"""Criteria that hold a group against a baseline: speed-up, regression, loss.

In: a criterion and the campaign's facts. Out: readings whose interval decides: a speed-up of at least 20 % passes when the lower end of
its interval is at 20 % or above, fails when the upper end is below, and is open in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from seatrial.judge.facts import Facts
from seatrial.judge.reading import FILES, Reading, interval_text, listed, missing, runs_text
from seatrial.records.comparison import Comparison, LossParity, LossVerdict
from seatrial.records.measure import GroupSummary
from seatrial.records.stability import LEAST_REPEATS
from seatrial.records.verdict import HOW_TO_NAME_A_BASELINE, Baseline, Criterion, Evidence

PCT_DIGITS = 9


def comparison_reading(criterion: Criterion, group: GroupSummary, facts: Facts) -> Reading | None:
    """The group against the criterion's baseline; None for the baseline itself."""
    name, baseline = group.group, criterion.baseline
    if baseline is None or not baseline.text:
        return missing(name, f"no baseline is named; {HOW_TO_NAME_A_BASELINE}")
    if baseline.text == name:
        return None
    if not_run := _not_run(baseline, facts):
        return missing(name, not_run, FILES.group_summary.name)
    found = facts.comparisons.get((name, baseline.text), f"{name} was not held against {baseline.shown}; make the report again")
    if isinstance(found, str):
        return missing(name, found.rstrip("."), FILES.group_summary.name)
    if found.blocked:
        return missing(name, found.blocked.rstrip("."), FILES.group_summary.name)
    if criterion.metric == "loss_comparable":
        return _loss_reading(name, found)
    return _speed_reading(criterion, baseline, name, found)


def _not_run(baseline: Baseline, facts: Facts) -> str:
    """Of a baseline that the plan has and the folder does not; empty where it is there, or no group of this plan."""
    name = baseline.group
    if baseline.campaign or baseline.history or facts.group(name):
        return ""
    if facts.left_out_of(name):
        return f"{name} is in the plan and was not run; run the plan without `--only`, or with `--only {name}` too"
    return f"{name} is in the plan and still to be run" if facts.pending_of(name) else ""


def winner_reading(criterion: Criterion, winner: GroupSummary, facts: Facts) -> Reading:
    """The winner against the baseline. Where it is the baseline, what the best other group could be is what there is to gain: the data
    may not tell the two apart."""
    reading = comparison_reading(criterion, winner, facts)
    if reading is not None:
        return reading
    if criterion.metric == "loss_comparable":
        return _own_loss(winner, facts)
    other = _best_other(winner, facts)
    beside = comparison_reading(criterion, other, facts) if other and criterion.metric == "speedup_pct" else None
    if beside is None:
        return _own_baseline(winner, 0.0, "%")
    won = f"{winner.group}, the baseline itself, stands first"
    if beside.missing:
        return replace(beside, missing=f"{won}; {beside.missing}")
    return replace(beside, unsettled="so it is not the winner's", detail=f"{beside.detail}; {won}")


def _best_other(winner: GroupSummary, facts: Facts) -> GroupSummary | None:
    """The one with the best figure of the others that can win."""
    ranking = facts.ranking
    rivals = [(place.value, place.group) for place in ranking.groups if place.can_win and place.value is not None]
    others = [(value, name) for value, name in rivals if name != winner.group and value is not None]
    best = (max if ranking.higher_is_better else min)(others, default=None)
    return facts.group(best[1]) if best else None


def _own_loss(group: GroupSummary, facts: Facts) -> Reading:
    """It goes the way of itself, where there is one."""
    measures = [run.measure for run in facts.runs_of(group) if run.measure]
    failed = [run.attempt.spec.run for run in facts.runs_of(group) if run.measure and run.measure.loss_finite is False]
    if failed:
        return replace(_own_baseline(group, False, ""), detail=f"it is the baseline itself, and the loss of {listed(failed)} is no number")
    if all(measure.last_loss is None for measure in measures):
        why = f"{group.group} is the baseline itself and tells no loss; let it report the loss in each step"
        return missing(group.group, why, FILES.group_summary.name)
    return _own_baseline(group, True, "")


def _own_baseline(group: GroupSummary, value: float | bool, unit: str) -> Reading:
    window = f"the windows of {runs_text(group.runs)}"
    detail = "it is the baseline itself"
    return Reading(subject=group.group, value=value, unit=unit, file=FILES.group_summary.name, window=window, n=group.runs, detail=detail)


def _speed_reading(criterion: Criterion, baseline: Baseline, name: str, found: Comparison) -> Reading:
    ratio = found.ratio
    if ratio is None:
        return missing(name, found.reason.rstrip("."), FILES.group_summary.name)
    if ratio.low is None or ratio.high is None:
        told = f"{name} against {found.a}: {_pct(criterion, found, ratio.mean):+.3g} % {found.unit}"
        why = f"{told}, without an interval; set repeats to {LEAST_REPEATS} or more"
        return missing(name, why, FILES.group_summary.name)
    ends = sorted(_pct(criterion, found, end) for end in (ratio.low, ratio.high))
    return Reading(
        subject=name,
        value=_pct(criterion, found, ratio.mean),
        unit="%",
        file=FILES.verdict.name,
        window=found.method or "the windows of both",
        n=ratio.n,
        low=ends[0],
        high=ends[1],
        confidence=found.confidence,
        repeats=min((value.n for value in (found.value_a, found.value_b) if value), default=ratio.n),
        broken=_worse_loss(found),
        detail=_detail(found, ends),
        further=_both_sides(baseline, found),
    )


def _pct(criterion: Criterion, found: Comparison, ratio: float) -> float:
    """How much faster B is, or slower, in per cent of A."""
    speed = ratio if found.higher_is_better else 1 / ratio if ratio else math.inf
    gained = (speed - 1) * 100
    # 1.2 less 1 is a hair under 0.2, and a bound of 20 % that is met must hold.
    return round(-gained if criterion.metric == "regression_pct" else gained, PCT_DIGITS)


def _worse_loss(found: Comparison) -> str:
    """A speed that costs the training is none; a loss that is not known is told, and has a criterion of its own."""
    return found.loss.reason if found.loss and found.loss.verdict is LossVerdict.WORSE else ""


def _detail(found: Comparison, ends: list[float]) -> str:
    """By which figure, how sure, and all that weakens it."""
    parts = [f"against {found.a} by {found.unit}", f"{interval_text(found.confidence)} {ends[0]:.3g} to {ends[1]:.3g} %"]
    parts += [found.method] if found.method else []
    if found.loss and found.loss.verdict is LossVerdict.UNKNOWN:
        parts.append(f"loss {found.loss.verdict.value}: {found.loss.reason.rstrip('.')}")
    weak = [caution.rstrip(".") for caution in found.cautions]
    differs = [f"what differs: {listed(found.differs)}"] if found.differs else []
    return "; ".join([", ".join(parts), *differs, *weak])


def _both_sides(baseline: Baseline, found: Comparison) -> tuple[Evidence, ...]:
    own = FILES.group_summary.name
    sides = ((found.a, found.value_a, baseline_file(baseline)), (found.b, found.value_b, own))
    return tuple(
        Evidence(subject=name, name=found.metric, value=value.mean, unit=found.unit, file=file, window="the windows of its runs", n=value.n)
        for name, value, file in sides
        if value is not None
    )


def baseline_file(baseline: Baseline) -> str:
    """Where a baseline's figures stand: in this campaign's table, in another one's, or in a row of history."""
    if baseline.history:
        return baseline.text
    return str(Path(baseline.campaign) / FILES.group_summary.name)


def _loss_reading(name: str, found: Comparison) -> Reading:
    loss = found.loss
    if loss is None or loss.verdict is LossVerdict.UNKNOWN:
        why = loss.reason.rstrip(".") if loss else "the losses were not compared; let both report them in each step"
        return missing(name, f"{name} against {found.a}: {why}", FILES.group_summary.name)
    window = f"to step {loss.last_step}" if loss.last_step is not None else "the steps both have"
    return Reading(
        subject=name,
        value=loss.verdict is LossVerdict.COMPARABLE,
        file=FILES.verdict.name,
        window=window,
        n=loss.n,
        detail=loss.reason.rstrip("."),
        further=tuple(_loss_evidence(name, loss, window)),
    )


def _loss_evidence(name: str, loss: LossParity, window: str) -> Iterator[Evidence]:
    told = (
        ("loss difference", loss.difference),
        ("loss of the baseline", loss.loss_a),
        ("loss of the group", loss.loss_b),
        ("difference allowed", loss.allowed),
    )
    for what, value in told:
        if value is not None:
            yield Evidence(subject=name, name=what, value=value, file=FILES.verdict.name, window=window, n=loss.n)
