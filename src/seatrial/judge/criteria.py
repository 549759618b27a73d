"""Reads the values of runs, groups and campaign that a criterion is judged on; `judge.evidence` and `judge.verdict` decide.

In: a criterion, whose metric is looked up in `METRICS`, and the campaign. Out: one `CriterionValue` for each run, group or campaign in its
scope, with the file and window of the value, or why there is none and how to get it.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from seatrial.core.errors import did_you_mean
from seatrial.core.text import convert_unit, count, format_number
from seatrial.judge.advice import THROUGHPUT_METRICS
from seatrial.judge.cross_run_criteria import (
    COUNTED,
    campaign_value,
    comparison_value,
    count_of_campaign,
    count_of_group,
    recommended_value,
    why_not_run,
)
from seatrial.judge.evidence import (
    FILES,
    ONE_RANK,
    CriterionValue,
    JudgedCampaign,
    attempt_file,
    debug_text,
    failed_by_platform,
    failures_text,
    how_it_ended,
    interval_text,
    is_single_rank,
    leak_value,
    missing,
    outcome_file,
    run_window,
)
from seatrial.records.caution import Scalar
from seatrial.records.comparison import LossVerdict
from seatrial.records.measure import (
    CONFIDENCE,
    MIN_REPEATS,
    Estimate,
    GroupSummary,
    MemoryVerdict,
    ReportedFigure,
    RunMeasure,
    StabilityVerdict,
    StragglerVerdict,
)
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import CAMPAIGN, EVERY_GROUP, EVERY_RUN, METRICS, REPORTED, Criterion, MetricEntry, metric_entry

# Figures of a window: not judged without a steady state.
NEED_STEADY = frozenset(
    {"samples_per_s", "tokens_per_s", "steps_per_s", "samples_per_s_per_gpu", "tokens_per_s_per_gpu", "wall_p50_ms", "wall_p90_over_p50"}
)
# Whether a verdict meets a criterion without a bound; one that is not listed is undecided.
TRUTH: dict[enum.Enum, bool] = {
    StabilityVerdict.STABLE: True,
    StabilityVerdict.UNSTABLE: False,
    LossVerdict.COMPARABLE: True,
    LossVerdict.WORSE: False,
    MemoryVerdict.PLATEAU: True,
    MemoryVerdict.LEAK: False,
    StragglerVerdict.NONE: True,
    StragglerVerdict.NAMED: False,
}
_RANK = re.compile(r"rank(\d+)")
_NEEDS_STEPS = "report steps: use the probe, or name the log format with `reads`"
_NEEDS_POINTS = "lower `timing.log_every` or run more steps, so that timing points are written"
_NEEDS_LOSSES = "report the loss in each step"
_NEEDS_SAMPLES = "report samples in each step, or set `samples_per_step` of the workload"
_NEEDS_TOKENS = "report tokens in each step, or set `tokens_per_step` of the workload"
_NEEDS_GPU_SAMPLES = "leave `telemetry.gpu_s` on, on a machine with an NVIDIA GPU"
HOW_TO_GET = {
    "loss_falls": "its losses are missing, too few, or do not move beyond their noise; report them in each step, and run more steps",
    "loss_finite": _NEEDS_LOSSES,
    "loss_fall_pct": f"{_NEEDS_LOSSES}, and run at least 8 steps",
    "samples_per_s": _NEEDS_SAMPLES,
    "tokens_per_s": _NEEDS_TOKENS,
    "samples_per_s_per_gpu": _NEEDS_SAMPLES,
    "tokens_per_s_per_gpu": _NEEDS_TOKENS,
    "iter_p90_over_p50": _NEEDS_POINTS,
    "step_p90_over_p50": _NEEDS_POINTS,
    "iter_ratio_median": _NEEDS_POINTS,
    "iter_ratio_max": _NEEDS_POINTS,
    "unstable_run_ratio": _NEEDS_POINTS,
    "throughput_cv_pct": f"set repeats to {MIN_REPEATS} or more",
    "stable": f"set repeats to {MIN_REPEATS} or more, and run more steps",
    "gpu_mem_peak_mib": _NEEDS_GPU_SAMPLES,
    "gpu_throttled_pct": _NEEDS_GPU_SAMPLES,
    "gpu_telemetry_empty_ratio": _NEEDS_GPU_SAMPLES,
    "host_rss_peak_mib": "leave `telemetry.host_s` on",
    "straggler_score": "run more than one rank, and let every rank report its steps through the probe",
}


@dataclass(frozen=True, kw_only=True)
class MetricValue:
    """The value of a field of a record; None where it has none."""

    value: Scalar = None
    estimate: Estimate | None = None
    reason: str = ""
    """The record's own reason, if any."""


def evaluate(criterion: Criterion, campaign: JudgedCampaign) -> list[CriterionValue]:
    """Every value that the criterion checks; [] while its scope is empty."""
    entry = metric_entry(criterion.metric)
    if entry is None:
        return [missing(CAMPAIGN, f"the metric '{criterion.metric}' is unknown; {did_you_mean(criterion.metric, METRICS)}")]
    if criterion.scope not in entry.scopes:
        return [missing(CAMPAIGN, f"{criterion.metric} has no scope '{criterion.scope}'; use {', '.join(entry.scopes)}")]
    values = _values(criterion, entry, campaign)
    if entry.unit == "runs" and criterion.at_least is not None:
        return [_with_pending(value, campaign) for value in values]
    return values


def _values(criterion: Criterion, entry: MetricEntry, campaign: JudgedCampaign) -> list[CriterionValue]:
    if criterion.scope == CAMPAIGN:
        return count_of_campaign(criterion.metric, campaign) if criterion.metric in COUNTED else campaign_value(criterion, campaign)
    if criterion.scope == EVERY_RUN:
        # A failed run has no figure that could pass: its value is missing.
        values = [_run_value(criterion, entry, run) for run in campaign.ok]
        for run in (*campaign.failed, *campaign.platform_failed):
            remedy = "it failed because of the platform: run it again" if failed_by_platform(run) else "fix it and run it again"
            why = f"{run.attempt.spec.run} has no {criterion.metric} ({how_it_ended(run)}): {remedy}"
            values.append(missing(run.attempt.spec.run, why, outcome_file(run)))
        return values
    return _group_values(criterion, entry, campaign)


def _with_pending(value: CriterionValue, campaign: JudgedCampaign) -> CriterionValue:
    """A count with a lower bound may still reach it while runs are pending."""
    waiting = campaign.pending if value.subject == CAMPAIGN else campaign.pending_of(value.subject)
    if value.missing or not waiting or not isinstance(value.value, (int, float)):
        return value
    pending = f"{count(len(waiting), 'pending run')}{'' if value.subject == CAMPAIGN else f' of {value.subject}'}"
    high = (value.value if value.high is None else value.high) + len(waiting)
    return replace(value, high=high, unsettled="; ".join(filter(None, (value.unsettled, pending))))


def _group_values(criterion: Criterion, entry: MetricEntry, campaign: JudgedCampaign) -> list[CriterionValue]:
    if criterion.scope == EVERY_GROUP:
        values = [_group_value(criterion, entry, group, campaign) for group in campaign.groups]
        others = [value for value in values if value is not None]
        if values and not others:
            return [missing(CAMPAIGN, "the baseline is the only group: add one to compare with it")]
        return others
    if criterion.group:
        return _named_value(criterion, entry, campaign)
    # The scope `winner` is the group to use: the winner, else the recommended group.
    chosen = campaign.group(campaign.ranking.recommended)
    if chosen is not None:
        return [_group_value(criterion, entry, chosen, campaign) or recommended_value(criterion, chosen, campaign)]
    why = campaign.ranking.reason or "no group could be ranked"
    return [missing("winner", f"no group can be recommended: {why.rstrip('.')}")] if campaign.finished else []


def _named_value(criterion: Criterion, entry: MetricEntry, campaign: JudgedCampaign) -> list[CriterionValue]:
    """The value of the group that the criterion names."""
    name = criterion.group
    found = campaign.group(name)
    value = _group_value(criterion, entry, found, campaign) if found else None
    if value is not None:
        return [value]
    why = why_not_run(name, campaign) or f"there is no group {name} here: run the plan"
    return [missing(name, why, FILES.group_summary.name)] if campaign.finished else []


def _run_value(criterion: Criterion, entry: MetricEntry, run: MeasuredRun) -> CriterionValue:
    metric, name, file = criterion.metric, run.attempt.spec.run, FILES.per_run_metrics.name
    measure = run.measure
    if measure is None:
        return missing(name, f"{name} was not measured: {how_to_get(metric)}", outcome_file(run))
    if metric == "leak_mib_per_min":
        return leak_value(run)
    if is_reported(entry):
        return _reported_value(criterion, entry, run, measure)
    found = _run_metric(metric, entry, measure)
    if found.value is None:
        return missing(name, f"{name} has no {metric}: {found.reason or how_to_get(metric)}", file)
    if entry.per_gpu and not measure.ranks_known:
        return missing(name, f"{name} has no {metric}: its number of ranks is unknown", file)
    if metric in NEED_STEADY and measure.window and not measure.window.steady:
        return missing(name, f"{name} has no steady state ({measure.window.reason})", file)
    text, n = run_window(run)
    return CriterionValue(
        subject=name,
        value=_shared(found.value, measure.world_size) if entry.per_gpu else found.value,
        unit=_unit(criterion, entry),
        file=file,
        window=text,
        n=n,
        unsettled=_unreported_losses(metric, measure),
        detail=_detail(metric, measure),
        note=_ranks_reported(metric, measure),
    )


def _run_metric(metric: str, entry: MetricEntry, measure: RunMeasure) -> MetricValue:
    straggler = measure.straggler
    no_straggler = straggler is not None and straggler.verdict is StragglerVerdict.NONE
    if metric == "straggler_score" and (no_straggler or is_single_rank(measure)):
        return MetricValue(value=0.0)
    return look_up(measure, entry.run_field)


def _ranks_reported(metric: str, measure: RunMeasure) -> str:
    """How many ranks report the loss; empty where all do."""
    if metric not in ("loss_falls", "loss_finite") or measure.loss_ranks is None or measure.loss_ranks >= measure.world_size:
        return ""
    return f"{measure.loss_ranks} of {count(measure.world_size, 'rank')} reported"


def _unreported_losses(metric: str, measure: RunMeasure) -> str:
    """Where several ranks report a loss, the loss of a silent one may not be finite. A loss that a single rank reports is that of the
    training: one that is not finite elsewhere reaches it with the next gradients."""
    several = measure.loss_ranks is not None and measure.loss_ranks > 1
    unreported = metric == "loss_finite" and several and _ranks_reported(metric, measure)
    return "let every rank report its loss (`rank_scope: all`)" if unreported else ""


def _group_value(criterion: Criterion, entry: MetricEntry, group: GroupSummary, campaign: JudgedCampaign) -> CriterionValue | None:
    """The group's value; None for the baseline of the comparison."""
    metric, file, name = criterion.metric, FILES.group_summary.name, group.group
    if metric in COUNTED:
        return count_of_group(metric, group, campaign)
    if group.runs == 0:
        return missing(name, f"no run of {name} ended ok: fix it and run it again", file)
    if entry.compares:
        return comparison_value(criterion, group, campaign)
    if metric in NEED_STEADY and group.unsteady_runs:
        return missing(name, f"{group.unsteady_runs} of {count(group.runs, 'run')} of {name} have no steady state: run more steps", file)
    return _figure_value(criterion, entry, group, campaign)


def _figure_value(criterion: Criterion, entry: MetricEntry, group: GroupSummary, campaign: JudgedCampaign) -> CriterionValue:
    metric, file, name = criterion.metric, FILES.group_summary.name, group.group
    found = look_up(group, entry.group_field)
    known = [run.measure.world_size for run in campaign.runs_of(group) if run.measure and run.measure.ranks_known]
    gpus = next(iter(known), None) if entry.per_gpu else 1
    if found.value is None or gpus is None:
        lacks = f"{name} has no {metric}:" if entry.needs_bound else f"{name}:"
        return missing(name, f"{lacks} {found.reason or how_to_get(metric)}", file)
    steps = f"{count(group.window_n, 'step')} in the windows of {count(group.runs, 'run')}"
    value = CriterionValue(
        subject=name,
        value=_shared(found.value, gpus) if entry.per_gpu else found.value,
        unit=_unit(criterion, entry),
        file=file,
        window=steps if group.window_n else f"{count(group.runs, 'run')}, whole",
        n=group.runs,
        detail=", ".join([_of_figure(metric, found, group, gpus), *failures_text(group), *_debug(metric, group.debug)]),
    )
    return _with_interval(value, found.estimate, gpus)


def _with_interval(value: CriterionValue, estimate: Estimate | None, gpus: int) -> CriterionValue:
    """The interval, if any, decides."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return value
    return replace(value, low=estimate.low / gpus, high=estimate.high / gpus, confidence=CONFIDENCE, repeats=estimate.n)


def _of_figure(metric: str, found: MetricValue, group: GroupSummary, gpus: int) -> str:
    """Interval and n; for stability what the verdict is based on."""
    if found.estimate:
        return _interval(found.estimate, gpus)
    stability = group.stability
    if stability and metric in ("iter_ratio_median", "iter_ratio_max"):
        both = [("median", stability.ratio_median), ("highest", stability.ratio_max)]
        ratios = [f"{name} {format_number(value)}" for name, value in both if value is not None]
        return f"p90/p50 of {count(stability.runs, 'run')}: {', '.join(ratios)}"
    if isinstance(found.value, bool) and found.reason:
        # Enough within a criterion; the finding on stability has all of it.
        return found.reason.split(". ")[0].split("; ")[0]
    return f"over {count(group.runs, 'run')}"


def _debug(metric: str, settings: tuple[str, ...]) -> list[str]:
    return debug_text(settings) if metric in THROUGHPUT_METRICS else []


def _shared(value: object, gpus: int) -> float | None:
    return value / max(gpus, 1) if isinstance(value, (int, float)) else None


def _unit(criterion: Criterion, entry: MetricEntry) -> str:
    """'' for a plain number, whose unit is `ratio` in METRICS."""
    unit = criterion.unit or entry.unit
    return "" if unit == "ratio" else unit


def _detail(metric: str, measure: RunMeasure) -> str:
    if metric == "loss_falls":
        losses = (measure.first_loss, measure.last_loss)
        return " → ".join("?" if loss is None else format_number(loss) for loss in losses)
    if metric == "straggler_score" and is_single_rank(measure):
        return ONE_RANK
    straggler = measure.straggler
    if metric == "straggler_score":
        return f"rank {straggler.rank}" if straggler and straggler.rank is not None else ""
    return ", ".join(_debug(metric, tuple(dict.fromkeys(f"{one.name}={one.value}" for one in measure.debug))))


def _interval(estimate: Estimate, gpus: int) -> str:
    if estimate.low is None or estimate.high is None:
        return "one run, no interval" if estimate.n == 1 else f"{count(estimate.n, 'run')}, no interval"
    ends = f"{format_number(estimate.low / gpus)} to {format_number(estimate.high / gpus)}"
    return f"{interval_text()} {ends}, {count(estimate.n, 'run')}"


def look_up(record: object, field: str | None) -> MetricValue:
    """The value of a dotted field such as `figures.samples_per_s`: a mapping is read by key, a record by attribute. An `Estimate` gives its
    mean, a verdict true, false or None with its reason; text and non-finite numbers give None."""
    holder: Any = record
    parts = field.split(".") if field else []
    for index, part in enumerate(parts):
        if holder is None:
            return MetricValue()
        if isinstance(holder, Mapping):
            # A key may contain dots: the rest is the key.
            return _metric_value(holder.get(".".join(parts[index:])), "")
        parent, holder = holder, getattr(holder, part, None)
        if index == len(parts) - 1:
            return _metric_value(holder, str(getattr(parent, "reason", "")).rstrip("."))
    return MetricValue()


def _metric_value(value: Any, reason: str) -> MetricValue:
    if isinstance(value, Estimate):
        return MetricValue(value=_number(value.mean), estimate=value)
    if isinstance(value, enum.Enum):
        return MetricValue(value=TRUTH.get(value), reason=reason)
    return MetricValue(value=_number(value), reason=reason)


def _number(value: Any) -> Scalar:
    if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return None


def is_reported(entry: MetricEntry) -> bool:
    return (entry.run_field or "").startswith(REPORTED)


def _reported_value(criterion: Criterion, entry: MetricEntry, run: MeasuredRun, measure: RunMeasure) -> CriterionValue:
    """The figure that a run reported: the last one, by the lowest of several ranks."""
    name, key = run.attempt.spec.run, (entry.run_field or "").removeprefix(REPORTED)
    figure = measure.reported.get(key)
    if figure is None:
        why = f'{name} has no {criterion.metric}: report it with `probe.figure("{key}", value)`'
        return missing(name, why, FILES.per_run_metrics.name)
    file = attempt_file(run, figure.file) if figure.file else FILES.per_run_metrics.name
    if not math.isfinite(figure.value):
        return missing(name, f"{name} has no {criterion.metric}: it reported {figure.value:g}", file)
    wanted = criterion.unit or entry.unit
    reported = figure.unit or (entry.unit if criterion.metric in METRICS else "")
    value = convert_unit(figure.value, reported, wanted) if wanted else figure.value
    if value is None:
        mismatch = f"{key} is reported in {reported}, the criterion asks for {wanted}: report it in {wanted}"
        unitless = f'{key} has no unit, the criterion asks for {wanted}: report it with `probe.figure("{key}", value, unit="{wanted}")`'
        return missing(name, f"{name}: {mismatch if reported else unitless}", file)
    return CriterionValue(
        subject=name,
        value=value,
        unit="" if (wanted or reported) == "ratio" else wanted or reported,
        file=file,
        window="as the run reported it",
        n=figure.n,
        detail=_reported_detail(figure, measure.world_size, reported if wanted and reported != wanted else ""),
    )


def _reported_detail(figure: ReportedFigure, ranks: int, converted_from: str) -> str:
    rank = _RANK.search(figure.file)
    rank_text = [f"rank {rank[1]}'s"] if rank and ranks > 1 else []
    reported = [f"reported as {format_number(figure.value)} {converted_from}"] if converted_from else []
    return ", ".join([*rank_text, *reported])


def how_to_get(metric: str) -> str:
    return HOW_TO_GET.get(metric, _NEEDS_STEPS)
