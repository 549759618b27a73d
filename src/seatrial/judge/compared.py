"""Criteria that hold a group against a baseline, and those over the whole campaign: speed-up, regression, loss, scaling, drift.

In: a criterion and the campaign's facts. Out: readings whose interval decides: a speed-up of at least 20 % passes when the lower end of
its interval is at 20 % or above, fails when the upper end is below, and is open in between, with how many more repeats would tell.
"""

from __future__ import annotations

import math

from seatrial.judge.facts import Facts
from seatrial.judge.reading import FILES, Reading, missing
from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.comparison import Comparison, LossVerdict, ScalingPoint
from seatrial.records.criteria_catalog import CAMPAIGN
from seatrial.records.measure import Estimate, GroupSummary
from seatrial.records.stability import StabilityVerdict
from seatrial.records.verdict import Criterion, Evidence

HOW_TO_NAME_A_BASELINE = (
    "no baseline is named; give the criterion one of `baseline: {group: NAME}` (a group of this campaign), "
    "`baseline: {campaign: OUT, group: NAME}` (a group of another one, its winner without `group`), "
    "`baseline: {history: NAME}` (a pinned row of history)"
)
# Beyond this, repeats are no way to settle a difference that lies so near to its bound.
MOST_REPEATS_ADVISED = 100
LEAST_REPEATS = 3
PCT_DIGITS = 9


def comparison_reading(criterion: Criterion, group: GroupSummary, facts: Facts) -> Reading | None:
    """The group against the criterion's baseline; None for the baseline itself and for sentinels, which are not there to be judged."""
    name, baseline = group.group, criterion.baseline
    if baseline is None or not baseline.text:
        return missing(name, HOW_TO_NAME_A_BASELINE)
    if baseline.text == name or group.mode == SENTINEL:
        return None
    found = facts.comparisons.get((name, baseline.text), f"{name} was not held against {baseline.text}; make the report again")
    if isinstance(found, str):
        return missing(name, found.rstrip("."), FILES.group_summary.name)
    if found.blocked:
        return missing(name, found.blocked.rstrip("."), FILES.group_summary.name)
    if criterion.metric == "loss_comparable":
        return _loss_reading(name, found)
    return _speed_reading(criterion, name, found)


def own_baseline(criterion: Criterion, group: GroupSummary) -> Reading:
    """The winner is the baseline: nothing is faster than it, and its loss is its own."""
    value = True if criterion.metric == "loss_comparable" else 0.0
    window = f"the windows of {group.runs} runs"
    detail = "it is the baseline itself"
    return Reading(
        subject=group.group, value=value, unit=criterion.unit, file=FILES.group_summary.name, window=window, n=group.runs, detail=detail
    )


def _speed_reading(criterion: Criterion, name: str, found: Comparison) -> Reading:
    ratio = found.ratio
    if ratio is None:
        return missing(name, found.reason.rstrip("."), FILES.group_summary.name)
    if ratio.low is None or ratio.high is None:
        told = f"{name} against {found.a}: {_pct(criterion, found, ratio.mean):+.3g} %"
        why = f"{told}, without an interval; set repeats to {LEAST_REPEATS} or more"
        return missing(name, why, FILES.group_summary.name)
    ends = sorted(_pct(criterion, found, end) for end in (ratio.low, ratio.high))
    return Reading(
        subject=name,
        value=_pct(criterion, found, ratio.mean),
        unit="%",
        file=FILES.group_summary.name,
        window=found.method or "the windows of both",
        n=ratio.n,
        low=ends[0],
        high=ends[1],
        repeats=min((value.n for value in (found.value_a, found.value_b) if value), default=ratio.n),
        broken=_worse_loss(criterion, found),
        detail=_interval_and_loss(found, ends),
        further=_both_sides(found),
    )


def _pct(criterion: Criterion, found: Comparison, ratio: float) -> float:
    """How much faster B is, or slower, in per cent of A."""
    speed = ratio if found.higher_is_better else 1 / ratio if ratio else math.inf
    gained = (speed - 1) * 100
    # 1.2 less 1 is a hair under 0.2, and a bound of 20 % that is met must hold.
    return round(-gained if criterion.metric == "regression_pct" else gained, PCT_DIGITS)


def _worse_loss(criterion: Criterion, found: Comparison) -> str:
    """A speed-up that costs the training is none; a loss that is not known is told, and has a criterion of its own."""
    loss = found.loss
    return loss.reason if criterion.metric == "speedup_pct" and loss and loss.verdict is LossVerdict.WORSE else ""


def _interval_and_loss(found: Comparison, ends: list[float]) -> str:
    corrected = f" corrected for {found.comparisons} comparisons" if found.comparisons > 1 else ""
    parts = [f"against {found.a}", f"95 % interval {ends[0]:.3g} to {ends[1]:.3g} %{corrected}"]
    parts += [found.method] if found.method else []
    if found.loss and found.loss.verdict is not LossVerdict.COMPARABLE:
        parts.append(f"loss {found.loss.verdict.value}: {found.loss.reason.rstrip('.')}")
    return ", ".join(parts)


def _both_sides(found: Comparison) -> tuple[Evidence, ...]:
    sides = ((found.a, found.value_a), (found.b, found.value_b))
    return tuple(
        Evidence(
            subject=name,
            name=found.metric,
            value=value.mean,
            unit=found.unit,
            file=FILES.group_summary.name,
            window="the windows of its runs",
            n=value.n,
        )
        for name, value in sides
        if value is not None
    )


def _loss_reading(name: str, found: Comparison) -> Reading:
    loss = found.loss
    if loss is None or loss.verdict is LossVerdict.UNKNOWN:
        why = loss.reason.rstrip(".") if loss else "the losses were not compared; let both report them in each step"
        return missing(name, f"{name} against {found.a}: {why}", FILES.group_summary.name)
    window = f"to step {loss.last_step}" if loss.last_step is not None else "the steps both have"
    difference = Evidence(
        subject=name, name="loss difference", value=loss.difference, file=FILES.group_summary.name, window=window, n=loss.n
    )
    return Reading(
        subject=name,
        value=loss.verdict is LossVerdict.COMPARABLE,
        file=FILES.group_summary.name,
        window=window,
        n=loss.n,
        detail=loss.reason.rstrip("."),
        further=(difference,),
    )


def repeats_wanted(reading: Reading, criterion: Criterion) -> str:
    """What would settle a span that reaches over its bound, in words: the width of an interval goes with the root of the runs."""
    if reading.low is None or reading.high is None or not isinstance(reading.value, (int, float)) or not reading.repeats:
        return ""
    bounds = [bound for bound in (criterion.at_least, criterion.at_most) if bound is not None and reading.low < bound <= reading.high]
    distance = min((abs(reading.value - bound) for bound in bounds), default=0.0)
    half = (reading.high - reading.low) / 2
    factor = (half / distance) ** 2 if distance > 0 else math.inf
    if factor * reading.repeats > MOST_REPEATS_ADVISED:
        return "it lies too near to the bound for repeats to tell; take another bound, or call it met"
    more = max(1, math.ceil((factor - 1) * reading.repeats))
    return f"about {more} more {'repeat' if more == 1 else 'repeats'} of each would tell"


def campaign_reading(criterion: Criterion, facts: Facts) -> list[Reading]:
    """Scaling and drift: one value for the whole campaign."""
    if not facts.finished:
        return []
    return [_scaling_reading(facts) if criterion.metric == "scaling_efficiency" else _drift_reading(facts)]


def _scaling_reading(facts: Facts) -> Reading:
    points = sorted(facts.scaling.points, key=lambda point: point.gpus) if facts.scaling else []
    if len(points) < 2:
        why = facts.scaling.reason.rstrip(".") if facts.scaling and facts.scaling.reason else "there are not two numbers of GPUs to compare"
        return missing(CAMPAIGN, f"{why}; run the same group on 1, 2, 4 … GPUs into one folder", FILES.group_summary.name)
    first, last = points[0], points[-1]
    estimate = last.efficiency
    if estimate.low is None or estimate.high is None:
        why = f"{estimate.mean:.3g} at {last.gpus} GPUs has no interval; set repeats to {LEAST_REPEATS} or more"
        return missing(CAMPAIGN, why, FILES.group_summary.name)
    return Reading(
        subject=last.group,
        value=estimate.mean,
        file=FILES.group_summary.name,
        window=f"{first.gpus} → {last.gpus} GPUs, the windows of {first.runs} and {last.runs} runs",
        n=estimate.n,
        low=estimate.low,
        high=estimate.high,
        repeats=min(first.runs, last.runs),
        detail=f"{first.gpus} → {last.gpus} GPUs, {_interval(estimate)}",
        further=tuple(_point_evidence(point, facts.scaling.unit if facts.scaling else "") for point in points),
    )


def _point_evidence(point: ScalingPoint, unit: str) -> Evidence:
    return Evidence(
        subject=point.group,
        name=f"total at {point.gpus} GPUs",
        value=point.value.mean,
        unit=unit,
        file=FILES.group_summary.name,
        window="the windows of its runs",
        n=point.runs,
    )


def _interval(estimate: Estimate) -> str:
    return f"95 % interval {estimate.low:.3g} to {estimate.high:.3g}"


def _drift_reading(facts: Facts) -> Reading:
    drift = facts.drift
    if drift is None:
        return missing(CAMPAIGN, "the plan has no sentinel; set `sentinel`, so that one group is run again in between")
    if drift.drift_pct is None or drift.verdict is StabilityVerdict.INCONCLUSIVE:
        return missing(CAMPAIGN, drift.reason.rstrip("."), FILES.per_run_metrics.name)
    ends = (
        f", 95 % interval {drift.drift_low:.3g} to {drift.drift_high:.3g} %"
        if drift.drift_low is not None and drift.drift_high is not None
        else ""
    )
    return Reading(
        subject=drift.group,
        value=abs(drift.drift_pct),
        unit="%",
        file=FILES.per_run_metrics.name,
        window=drift_window(drift.first_t, drift.last_t),
        n=drift.runs,
        detail=f"{drift.drift_pct:+.3g} %{ends}, {drift.runs} sentinel runs",
    )


def drift_window(first_t: float | None, last_t: float | None) -> str:
    if first_t is None or last_t is None:
        return "over the campaign"
    return f"over {(last_t - first_t) / 60:.0f} min of the campaign"
