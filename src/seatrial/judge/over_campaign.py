"""Criteria over the whole campaign: how throughput grows with GPUs, and how the platform drifted.

In: a criterion and the campaign's facts. Out: one reading; that of the scaling has an interval, which decides.
"""

from __future__ import annotations

from dataclasses import replace

from seatrial.judge.facts import Facts
from seatrial.judge.reading import FILES, Reading, interval_text, missing, runs_text
from seatrial.records.comparison import Scaling, ScalingPoint
from seatrial.records.criteria_catalog import CAMPAIGN
from seatrial.records.measure import CONFIDENCE, Estimate
from seatrial.records.stability import LEAST_REPEATS, SentinelDrift
from seatrial.records.verdict import Criterion, Evidence
from seatrial.wording import count


def campaign_reading(criterion: Criterion, facts: Facts) -> list[Reading]:
    """Scaling and drift: one value for the whole campaign."""
    if not facts.finished:
        return []
    return [_scaling_reading(facts) if criterion.metric == "scaling_efficiency" else _drift_reading(facts)]


def _scaling_reading(facts: Facts) -> Reading:
    """The efficiency at the largest number, of the family of groups that scales worst."""
    found = facts.scaling
    if found is None or not found.is_measured:
        why = found.reason.rstrip(".") if found and found.reason else "there are not two numbers of ranks to compare"
        return missing(CAMPAIGN, f"{why}; run the same group on 1, 2, 4 … ranks into one folder", FILES.group_summary.name)
    points = sorted(found.points, key=lambda point: point.gpus)
    first, last = points[0], points[-1]
    estimate, sizes = last.efficiency, f"{first.gpus} → {count(last.gpus, found.worker)}"
    if estimate.low is None or estimate.high is None:
        why = f"{estimate.mean:.3g} at {count(last.gpus, found.worker)} has no interval; set repeats to {LEAST_REPEATS} or more"
        return missing(CAMPAIGN, why, FILES.group_summary.name)
    return Reading(
        subject=last.group,
        value=estimate.mean,
        file=FILES.group_summary.name,
        window=f"{sizes}, the windows of {first.runs} and {runs_text(last.runs)}",
        n=estimate.n,
        low=estimate.low,
        high=estimate.high,
        confidence=CONFIDENCE,
        repeats=min(first.runs, last.runs),
        detail=", ".join(filter(None, (sizes, found.family and f"the worst of several: {found.family}", _interval(estimate)))),
        further=tuple(_point_evidence(point, found) for point in points),
    )


def _point_evidence(point: ScalingPoint, found: Scaling) -> Evidence:
    return Evidence(
        subject=point.group,
        name=f"total at {count(point.gpus, found.worker)}",
        value=point.value.mean,
        unit=found.unit,
        file=FILES.group_summary.name,
        window="the windows of its runs",
        n=point.runs,
    )


def _interval(estimate: Estimate) -> str:
    return f"{interval_text()} {estimate.low:.3g} to {estimate.high:.3g}"


def _drift_reading(facts: Facts) -> Reading:
    drift = facts.drift
    if drift is None:
        return missing(CAMPAIGN, "the plan has no sentinel; set `sentinel`, so that one group is run again in between")
    ends = _drift_ends(drift)
    if drift.drift_pct is None or ends is None:
        return replace(missing(CAMPAIGN, drift.reason.rstrip("."), FILES.per_run_metrics.name), further=drift_evidence(drift))
    return Reading(
        subject=drift.group,
        value=max(abs(drift.drift_pct), abs(drift.level_change_pct or 0.0)),
        unit="%",
        file=FILES.per_run_metrics.name,
        window=drift_window(drift.first_t, drift.last_t),
        n=drift.runs,
        low=ends[0],
        high=ends[1],
        confidence=CONFIDENCE,
        repeats=drift.runs,
        detail=_drift_detail(drift),
        further=drift_evidence(drift),
    )


def _drift_ends(drift: SentinelDrift) -> tuple[float, float] | None:
    """The interval of how far the platform moved, whichever way; a level that changed in between is the least of it."""
    if drift.drift_low is None or drift.drift_high is None:
        return None
    far = sorted((abs(drift.drift_low), abs(drift.drift_high)))
    near = 0.0 if drift.drift_low <= 0.0 <= drift.drift_high else far[0]
    level = abs(drift.level_change_pct or 0.0)
    return max(near, level), max(far[1], level)


def _drift_detail(drift: SentinelDrift) -> str:
    parts = []
    if drift.drift_pct is not None:
        parts.append(f"{drift.drift_pct:+.3g} % from the first to the last")
    if drift.drift_low is not None and drift.drift_high is not None:
        parts.append(f"{interval_text()} {drift.drift_low:.3g} to {drift.drift_high:.3g} %")
    if drift.level_change_pct is not None:
        parts.append(f"its level changed by {drift.level_change_pct:+.3g} % in between")
    return ", ".join([*parts, count(drift.runs, "sentinel run")])


def drift_evidence(drift: SentinelDrift) -> tuple[Evidence, ...]:
    values = (
        ("drift", drift.drift_pct),
        ("drift, lower end", drift.drift_low),
        ("drift, upper end", drift.drift_high),
        ("change of level", drift.level_change_pct),
        ("spread", drift.spread_pct),
    )
    window = drift_window(drift.first_t, drift.last_t)
    return tuple(
        Evidence(subject=drift.group, name=name, value=value, unit="%", file=FILES.per_run_metrics.name, window=window, n=drift.runs)
        for name, value in values
        if value is not None
    )


def drift_window(first_t: float | None, last_t: float | None) -> str:
    if first_t is None or last_t is None:
        return "over the campaign"
    return f"over {(last_t - first_t) / 60:.0f} min of the campaign"
