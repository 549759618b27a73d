"""Criteria over several runs: counts of runs, groups against a baseline, scaling and drift of the campaign.

In: a criterion and the campaign. Out: `CriterionValue`s. A count is the number of runs known to match; runs of which it is unknown raise
its upper end and prevent a pass. Of a comparison the interval decides: a speed-up of at least 20 % passes when the lower end of its
interval is at 20 % or above, fails when the upper end is below, and is inconclusive in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.core.text import count
from seatrial.judge.evidence import (
    FILES,
    NO_SAMPLES,
    ONE_RANK,
    CriterionValue,
    JudgedCampaign,
    attempt_file,
    failed_by_platform,
    how_it_ended,
    inconclusive_text,
    interval_text,
    is_single_rank,
    listed,
    missing,
    outcome_file,
    run_window,
    slope_text,
    straggler_evidence,
    trend_evidence,
    without_numbers,
)
from seatrial.records.comparison import Comparison, LossParity, LossVerdict, Scaling, ScalingPoint
from seatrial.records.measure import (
    ANTI_CORRELATED_GPUS,
    ANTI_CORRELATION_MIN_SAMPLES,
    CONFIDENCE,
    JITTER_RATIO,
    MIN_REPEATS,
    GroupSummary,
    MemoryTrend,
    MemoryVerdict,
    SentinelDrift,
    StragglerVerdict,
    exceeds,
    iter_ratios,
    jitters_persistently,
)
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import CAMPAIGN, HOW_TO_NAME_A_BASELINE, Baseline, Criterion, Evidence

VERBS = {
    "failed_runs": ("failed", "failed"),
    "halted_runs": ("halted", "halted"),
    "leaking_runs": ("leaks", "leak"),
    "straggling_runs": ("has a straggler", "have stragglers"),
    "turn_taking_runs": ("has anti-correlated GPU utilisation", "have anti-correlated GPU utilisation"),
    "jittering_runs": ("jitters persistently", "jitter persistently"),
}
"""Singular and plural."""
PCT_DIGITS = 9
FEWER_THAN_TWO_GPUS = "fewer than two GPUs"


@dataclass(frozen=True, kw_only=True)
class RunCheck:
    """Whether a run counts; None where unknown, with the reason in `what`."""

    counts: bool | None
    what: str = ""
    evidence: tuple[Evidence, ...] = ()


def count_of_campaign(metric: str, campaign: JudgedCampaign) -> list[CriterionValue]:
    """The count over all runs; [] where no run has ended."""
    return [_count_value(metric, CAMPAIGN, campaign.finished)] if campaign.finished else []


def count_of_group(metric: str, group: GroupSummary, campaign: JudgedCampaign) -> CriterionValue:
    runs = campaign.runs_of(group)
    if not runs:
        return missing(group.group, f"no run of {group.group} has ended: run the plan", FILES.group_summary.name)
    return _count_value(metric, group.group, runs)


def _count_value(metric: str, subject: str, runs: Sequence[MeasuredRun]) -> CriterionValue:
    seen = [(run, COUNTED[metric](run)) for run in runs]
    counted = [(run, one) for run, one in seen if one.counts]
    unknown = [(run, one) for run, one in seen if one.counts is None]
    return CriterionValue(
        subject=subject,
        value=len(counted),
        unit="runs",
        file=FILES.manifest.name if metric == "failed_runs" else FILES.per_run_metrics.name,
        window="whole runs" if metric == "failed_runs" else "the window of each run",
        n=len(seen),
        low=len(counted),
        high=len(counted) + len(unknown),
        unsettled=_unknown_text(unknown),
        detail=listed([f"{run.attempt.spec.run} ({one.what})" for run, one in counted]) or _notes([one for _, one in seen]),
        further=tuple(evidence for _, one in seen for evidence in one.evidence),
    )


def count_text(metric: str, value: CriterionValue) -> str:
    """'1 of 7 runs failed: mb8_r2 (failed: cuda_oom)'; of a group, its name too."""
    where = "" if value.subject == CAMPAIGN else f" in {value.subject}"
    one, more = VERBS[metric]
    text = f"{value.value} of {count(value.n or 0, 'run')} {one if value.value == 1 else more}{where}"
    return f"{text}: {value.detail}" if value.detail else text


def _notes(seen: Sequence[RunCheck]) -> str:
    """'one rank only', with the number of runs unless it is all."""
    notes = [one.what for one in seen if one.counts is False and one.what]
    distinct = dict.fromkeys(notes)
    return "; ".join(note if notes.count(note) == len(seen) else f"{count(notes.count(note), 'run')}: {note}" for note in distinct)


def _unknown_text(unknown: Sequence[tuple[MeasuredRun, RunCheck]]) -> str:
    """Each reason with its runs; reasons that differ only in numbers are one."""
    reasons: dict[str, tuple[str, list[str]]] = {}
    for run, one in unknown:
        reasons.setdefault(without_numbers(one.what), (one.what, []))[1].append(run.attempt.spec.run)
    return listed([f"{listed(runs)}: {why}" for why, runs in reasons.values()], "; ")


def _failed(run: MeasuredRun) -> RunCheck:
    if run.outcome is Outcome.OK:
        return RunCheck(counts=False)
    outcome = run.attempt.outcome
    at = Evidence(
        subject=run.attempt.spec.run,
        name="cause",
        value=outcome.cause.value if outcome else None,
        file=outcome_file(run),
        window="whole run",
        n=1,
    )
    if failed_by_platform(run):
        return RunCheck(counts=None, what=f"failed because of the platform ({at.value}): run it again", evidence=(at,))
    return RunCheck(counts=True, what=how_it_ended(run), evidence=(at,))


def _halted(run: MeasuredRun) -> RunCheck:
    health = run.measure.health if run.measure else None
    if run.outcome is Outcome.STALLED or (health and health.halted):
        at = Evidence(subject=run.attempt.spec.run, name="halted", value=True, file=outcome_file(run), window="whole run", n=1)
        return RunCheck(counts=True, what=how_it_ended(run), evidence=(at,))
    if health is None:
        return RunCheck(counts=None, what="how its ranks ended is unknown: run the report again with its event files in place")
    return _cut_short(run) or RunCheck(counts=False)


def _leaking(run: MeasuredRun) -> RunCheck:
    trends = run.measure.memory if run.measure else ()
    leaks = [trend for trend in trends if trend.verdict is MemoryVerdict.LEAK]
    if leaks:
        leaking = listed([f"{trend.subject} {slope_text(trend)}" for trend in leaks])
        return RunCheck(counts=True, what=leaking, evidence=_trend_evidence(run, leaks))
    if short := _cut_short(run):
        return short
    if not trends:
        return RunCheck(counts=None, what=NO_SAMPLES)
    undecided = [trend for trend in trends if trend.verdict is MemoryVerdict.INCONCLUSIVE]
    if undecided:
        return RunCheck(counts=None, what=inconclusive_text(undecided[0]), evidence=_trend_evidence(run, undecided))
    return RunCheck(counts=False, evidence=_trend_evidence(run, trends))


def _trend_evidence(run: MeasuredRun, trends: Sequence[MemoryTrend]) -> tuple[Evidence, ...]:
    return tuple(evidence for trend in trends for evidence in trend_evidence(run, trend))


def _straggling(run: MeasuredRun) -> RunCheck:
    found = run.measure.straggler if run.measure else None
    if found and found.verdict is StragglerVerdict.NAMED:
        return RunCheck(counts=True, what=f"rank {found.rank}", evidence=(straggler_evidence(run, found),))
    if short := _cut_short(run):
        return short
    if is_single_rank(run.measure):
        return RunCheck(counts=False, what=ONE_RANK)
    if found is None:
        return RunCheck(counts=None, what="its ranks were not measured: let every rank report its steps through the probe")
    return RunCheck(counts=False) if found.verdict is StragglerVerdict.NONE else RunCheck(counts=None, what=found.reason.rstrip("."))


def _anti_correlated(run: MeasuredRun) -> RunCheck:
    found = next((cause for cause in run.measure.jitter_causes if cause.kind == ANTI_CORRELATED_GPUS), None) if run.measure else None
    if found is not None:
        value = found.numbers.get("rank_correlation")
        at = Evidence(
            subject=run.attempt.spec.run,
            name="rank correlation of the utilisation of two GPUs",
            value=value,
            file=attempt_file(run, found.file),
            window=found.window,
            n=found.n,
        )
        what = f"GPU {found.numbers.get('gpu_a')} and GPU {found.numbers.get('gpu_b')}"
        return RunCheck(counts=True, what=what, evidence=(at,))
    if short := _cut_short(run):
        return short
    if num_gpus(run) < 2:
        return RunCheck(counts=False, what=FEWER_THAN_TWO_GPUS)
    measure, every_s = run.measure, run.attempt.spec.telemetry.gpu_s
    if measure is None or not every_s or measure.telemetry.get("gpu_util_mean_pct") is None:
        return RunCheck(counts=None, what="its GPUs were not sampled: leave `telemetry.gpu_s` on")
    if measure.window_s is None or measure.window_s / every_s < ANTI_CORRELATION_MIN_SAMPLES:
        return RunCheck(
            counts=None, what=f"fewer than {ANTI_CORRELATION_MIN_SAMPLES} samples of its GPUs: run more steps, or lower `telemetry.gpu_s`"
        )
    return RunCheck(counts=False)


def num_gpus(run: MeasuredRun) -> int:
    """GPUs that the ranks use: those that the plan names, else one per rank where the machine has any."""
    spec = run.attempt.spec
    named = sum(len(host.devices) for host in spec.place.hosts) or len(spec.place.devices) * max(1, spec.place.nodes)
    if named or not run.attempt.provenance.gpu_uuid_list or spec.settings.get("device") == "cpu":
        return named
    return run.measure.world_size if run.measure else spec.place.ranks


def _jittering(run: MeasuredRun) -> RunCheck:
    ratios = iter_ratios(run.measure.timing_points, run.attempt.spec.timing.timing_window) if run.measure else []
    found = jitters_persistently(ratios)
    if found:
        high = sum(exceeds(ratio, JITTER_RATIO) for ratio in ratios)
        at = Evidence(
            subject=run.attempt.spec.run,
            name=f"share of timing windows with iter p90/p50 above {JITTER_RATIO:g}",
            value=high / len(ratios),
            file=FILES.timing_points.name,
            window="all windows without step 0",
            n=len(ratios),
        )
        return RunCheck(counts=True, what=f"above {JITTER_RATIO:g} in {high} of {len(ratios)} timing windows", evidence=(at,))
    if short := _cut_short(run):
        return short
    if found is None:
        return RunCheck(counts=None, what="too few timing windows: run more steps, or lower `timing.log_every`")
    return RunCheck(counts=False)


def _cut_short(run: MeasuredRun) -> RunCheck | None:
    """Unknown for a run that did not end ok: it may have ended too early to show it."""
    if run.outcome is Outcome.OK:
        return None
    window, _ = run_window(run)
    return RunCheck(counts=None, what=f"it ended early ({how_it_ended(run)}, {window}): fix it and run it again")


def comparison_value(criterion: Criterion, group: GroupSummary, campaign: JudgedCampaign) -> CriterionValue | None:
    """The group against the criterion's baseline; None for the baseline itself."""
    name, baseline = group.group, criterion.baseline
    if baseline is None or not baseline.text:
        return missing(name, f"no baseline is named: {HOW_TO_NAME_A_BASELINE}")
    if baseline.text == name:
        return None
    if not_run := _not_run(baseline, campaign):
        return missing(name, not_run, FILES.group_summary.name)
    found = campaign.comparisons.get((name, baseline.text), f"{name} was not compared with {baseline.shown}: run the report again")
    if isinstance(found, str):
        return missing(name, found.rstrip("."), FILES.group_summary.name)
    if found.blocked:
        return missing(name, found.blocked.rstrip("."), FILES.group_summary.name)
    if criterion.metric == "loss_comparable":
        return _loss_value(name, found)
    return _speed_value(criterion, baseline, name, found)


def _not_run(baseline: Baseline, campaign: JudgedCampaign) -> str:
    """Why a baseline of this plan has no runs; empty where it has some, or is not a group of this plan."""
    return "" if baseline.campaign or baseline.history else why_not_run(baseline.group, campaign)


def why_not_run(name: str, campaign: JudgedCampaign) -> str:
    """Why a group of this plan has no runs; empty where it has some, or is not one of its groups."""
    if campaign.group(name):
        return ""
    if campaign.left_out_of(name):
        return f"{name} is in the plan and was not run: run the plan without `--only`, or with `--only {name}` too"
    return f"{name} is pending" if campaign.pending_of(name) else ""


def recommended_value(criterion: Criterion, chosen: GroupSummary, campaign: JudgedCampaign) -> CriterionValue:
    """The recommended group against the baseline. If it is the baseline itself, the best other group shows the possible gain: the two may
    be indistinguishable."""
    value = comparison_value(criterion, chosen, campaign)
    if value is not None:
        return value
    if criterion.metric == "loss_comparable":
        return _own_loss(chosen, campaign)
    other = _best_other(chosen, campaign)
    if other is None and campaign.ranking.without_effect:
        why = f"{campaign.ranking.without_effect[0]}; {chosen.group}, the baseline itself, stands for all groups"
        return missing(chosen.group, why, FILES.group_summary.name)
    other_value = comparison_value(criterion, other, campaign) if other and criterion.metric == "speedup_pct" else None
    if other_value is None:
        return _own_baseline(chosen, 0.0, "%")
    own = f"{chosen.group}, the baseline itself, is recommended"
    if other_value.missing:
        return replace(other_value, missing=f"{own}; {other_value.missing}")
    return replace(other_value, unsettled="so it is not the recommended group's", detail=f"{other_value.detail}; {own}")


def _best_other(chosen: GroupSummary, campaign: JudgedCampaign) -> GroupSummary | None:
    """The best other group that can win."""
    ranking = campaign.ranking
    rivals = [(row.value, row.group) for row in ranking.groups if row.can_win and row.value is not None]
    others = [(value, name) for value, name in rivals if name != chosen.group and value is not None]
    best = (max if ranking.higher_is_better else min)(others, default=None)
    return campaign.group(best[1]) if best else None


def _own_loss(group: GroupSummary, campaign: JudgedCampaign) -> CriterionValue:
    """The baseline's loss is comparable with itself, if it has one."""
    measures = [run.measure for run in campaign.runs_of(group) if run.measure]
    failed = [run.attempt.spec.run for run in campaign.runs_of(group) if run.measure and run.measure.loss_finite is False]
    if failed:
        return replace(_own_baseline(group, False, ""), detail=f"it is the baseline itself, and the loss of {listed(failed)} is not finite")
    if all(measure.last_loss is None for measure in measures):
        why = f"{group.group} is the baseline itself and has no loss: report the loss in each step"
        return missing(group.group, why, FILES.group_summary.name)
    return _own_baseline(group, True, "")


def _own_baseline(group: GroupSummary, value: float | bool, unit: str) -> CriterionValue:
    window = f"the windows of {count(group.runs, 'run')}"
    detail = "it is the baseline itself"
    return CriterionValue(
        subject=group.group, value=value, unit=unit, file=FILES.group_summary.name, window=window, n=group.runs, detail=detail
    )


def _speed_value(criterion: Criterion, baseline: Baseline, name: str, found: Comparison) -> CriterionValue:
    ratio = found.ratio
    if ratio is None:
        return missing(name, found.reason.rstrip("."), FILES.group_summary.name)
    if ratio.low is None or ratio.high is None:
        against = f"{name} against {found.a}: {_pct(criterion, found, ratio.mean):+.3g} % {found.unit}"
        why = f"{against}, without an interval: set repeats to {MIN_REPEATS} or more"
        return missing(name, why, FILES.group_summary.name)
    ends = sorted(_pct(criterion, found, end) for end in (ratio.low, ratio.high))
    return CriterionValue(
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
        # A speed-up with a worse loss does not count; for an unknown loss there is `loss_comparable`.
        violation=found.loss.reason if found.loss and found.loss.verdict is LossVerdict.WORSE else "",
        detail=_detail(found, ends),
        further=_both_groups(baseline, found),
    )


def _pct(criterion: Criterion, found: Comparison, ratio: float) -> float:
    """Per cent of A by which group B is faster; slower for `regression_pct`."""
    speed = ratio if found.higher_is_better else 1 / ratio if ratio else math.inf
    gained = (speed - 1) * 100
    # 1.2 - 1 is slightly below 0.2, and a bound of 20 % must count as met.
    return round(-gained if criterion.metric == "regression_pct" else gained, PCT_DIGITS)


def _detail(found: Comparison, ends: list[float]) -> str:
    """Metric, interval, and everything that weakens the comparison."""
    parts = [f"against {found.a} by {found.unit}", f"{interval_text(found.confidence)} {ends[0]:.3g} to {ends[1]:.3g} %"]
    parts += [found.method] if found.method else []
    parts += [f"only {found.condition}"] if found.condition else []
    if found.loss and found.loss.verdict is LossVerdict.UNKNOWN:
        parts.append(f"loss {found.loss.verdict.value}: {found.loss.reason.rstrip('.')}")
    weak = [caution.rstrip(".") for caution in found.cautions]
    differs = [f"what differs: {listed(found.differs)}{_of_all(found)}"] if found.differs else []
    return "; ".join([", ".join(parts), *differs, *weak])


def _of_all(found: Comparison) -> str:
    """Added where several settings differ: none of them alone has been shown to cause the difference."""
    return ": the difference is of all of them together" if len(found.settings_apart) > 1 else ""


def _both_groups(baseline: Baseline, found: Comparison) -> tuple[Evidence, ...]:
    groups = ((found.a, found.value_a, baseline_file(baseline)), (found.b, found.value_b, FILES.group_summary.name))
    return tuple(
        Evidence(subject=name, name=found.metric, value=value.mean, unit=found.unit, file=file, window="the windows of its runs", n=value.n)
        for name, value, file in groups
        if value is not None
    )


def baseline_file(baseline: Baseline) -> str:
    """The file with a baseline's figures: this campaign's table, another one's, or a row of history."""
    if baseline.history:
        return baseline.text
    return str(Path(baseline.campaign) / FILES.group_summary.name)


def _loss_value(name: str, found: Comparison) -> CriterionValue:
    loss = found.loss
    if loss is None or loss.verdict is LossVerdict.UNKNOWN:
        why = loss.reason.rstrip(".") if loss else "the losses were not compared: let both report them in each step"
        return missing(name, f"{name} against {found.a}: {why}", FILES.group_summary.name)
    window = f"to step {loss.last_step}" if loss.last_step is not None else "the steps both have"
    return CriterionValue(
        subject=name,
        value=loss.verdict is LossVerdict.COMPARABLE,
        file=FILES.verdict.name,
        window=window,
        n=loss.n,
        detail=loss.reason.rstrip("."),
        further=tuple(_loss_evidence(name, loss, window)),
    )


def _loss_evidence(name: str, loss: LossParity, window: str) -> Iterator[Evidence]:
    values = (
        ("loss difference", loss.difference),
        ("loss of the baseline", loss.loss_a),
        ("loss of the group", loss.loss_b),
        ("difference allowed", loss.allowed),
    )
    for what, value in values:
        if value is not None:
            yield Evidence(subject=name, name=what, value=value, file=FILES.verdict.name, window=window, n=loss.n)


def campaign_value(criterion: Criterion, campaign: JudgedCampaign) -> list[CriterionValue]:
    """Scaling and drift: one value for the whole campaign."""
    if not campaign.finished:
        return []
    return [_scaling_value(campaign) if criterion.metric == "scaling_efficiency" else _drift_value(campaign)]


def _scaling_value(campaign: JudgedCampaign) -> CriterionValue:
    """Efficiency at the largest number of workers, of the family of groups that scales worst."""
    found = campaign.scaling
    if found is None or not found.is_measured:
        why = found.reason.rstrip(".") if found and found.reason else "all groups ran on the same number of ranks"
        # Where several numbers gave no points, the reason already names the remedy.
        remedy = ": run the same group on 1, 2, 4 … ranks into one folder" if found is None or found.points else ""
        return missing(CAMPAIGN, f"{why}{remedy}", FILES.group_summary.name)
    points = sorted(found.points, key=lambda point: point.gpus)
    first, last = points[0], points[-1]
    estimate, sizes = last.efficiency, f"{first.gpus} → {count(last.gpus, found.worker)}"
    if estimate.low is None or estimate.high is None:
        why = f"{estimate.mean:.3g} at {count(last.gpus, found.worker)} has no interval: set repeats to {MIN_REPEATS} or more"
        return missing(CAMPAIGN, why, FILES.group_summary.name)
    family = f", the worst of several: {found.family}" if found.family else ""
    return CriterionValue(
        subject=last.group,
        value=estimate.mean,
        file=FILES.group_summary.name,
        window=f"{sizes}, the windows of {first.runs} and {count(last.runs, 'run')}",
        n=estimate.n,
        low=estimate.low,
        high=estimate.high,
        confidence=CONFIDENCE,
        repeats=min(first.runs, last.runs),
        detail=f"{sizes}{family}, {interval_text()} {estimate.low:.3g} to {estimate.high:.3g}",
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


def _drift_value(campaign: JudgedCampaign) -> CriterionValue:
    drift = campaign.drift
    if drift is None:
        return missing(CAMPAIGN, "the plan has no sentinel: set `sentinel`")
    ends = _drift_ends(drift)
    if drift.drift_pct is None or ends is None:
        return replace(missing(CAMPAIGN, drift.reason.rstrip("."), FILES.per_run_metrics.name), further=drift_evidence(drift))
    return CriterionValue(
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
    """Interval of the drift in either direction; at least the change of level."""
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


COUNTED: dict[str, Callable[[MeasuredRun], RunCheck]] = {
    "failed_runs": _failed,
    "halted_runs": _halted,
    "leaking_runs": _leaking,
    "straggling_runs": _straggling,
    "turn_taking_runs": _anti_correlated,
    "jittering_runs": _jittering,
}
