"""From a criterion to the values it is judged on.

In: a criterion, looked up in `records.criteria_catalog`, and the campaign's facts. Out: one `Reading` for each run, group or
campaign it looks at, with the file and the window the value comes from; a value that does not exist says why and how to get it.
"""

from __future__ import annotations

from seatrial.errors import did_you_mean
from seatrial.judge.compared import campaign_reading, comparison_reading, own_baseline
from seatrial.judge.counts import COUNTED, count_of_campaign, count_of_group
from seatrial.judge.facts import Facts, is_spoilt
from seatrial.judge.fields import Found, look_up
from seatrial.judge.memory import leak_reading
from seatrial.judge.reading import FILES, Reading, attempt_file, how_it_ended, missing, outcome_file, run_window, runs_text
from seatrial.records.criteria_catalog import CAMPAIGN, EVERY_GROUP, EVERY_RUN, METRICS, REPORTED, MetricEntry, metric_entry
from seatrial.records.health import StragglerVerdict
from seatrial.records.measure import Estimate, GroupSummary, RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Criterion

_NEEDS_STEPS = "let it report steps: use the probe, or name the log format it prints with `reads`"
_NEEDS_POINTS = "lower `timing.log_every` or run more steps, so that timing points are written"
_NEEDS_LOSSES = "report the loss in each step"
_NEEDS_GPU_SAMPLES = "leave `telemetry.gpu_s` on, on a machine with an NVIDIA GPU"
HOW_TO_GET = {
    "loss_falls": "its losses are missing, too few, or do not move beyond their noise; report them in each step, and run more steps",
    "loss_finite": _NEEDS_LOSSES,
    "loss_fall_pct": f"{_NEEDS_LOSSES}, and run at least 8 steps",
    "samples_per_s": "report samples in each step, or set `samples_per_step` of the workload",
    "tokens_per_s": "report tokens in each step, or set `tokens_per_step` of the workload",
    "samples_per_s_per_gpu": "report samples in each step, or set `samples_per_step` of the workload",
    "tokens_per_s_per_gpu": "report tokens in each step, or set `tokens_per_step` of the workload",
    "iter_p90_over_p50": _NEEDS_POINTS,
    "step_p90_over_p50": _NEEDS_POINTS,
    "iter_ratio_median": _NEEDS_POINTS,
    "iter_ratio_max": _NEEDS_POINTS,
    "unstable_run_ratio": _NEEDS_POINTS,
    "throughput_cv_pct": "set repeats to 3 or more",
    "stable": "set repeats to 3 or more, and run more steps",
    "gpu_mem_peak_mib": _NEEDS_GPU_SAMPLES,
    "gpu_throttled_pct": _NEEDS_GPU_SAMPLES,
    "gpu_telemetry_empty_ratio": _NEEDS_GPU_SAMPLES,
    "host_rss_peak_mib": "leave `telemetry.host_s` on",
    "straggler_score": "run more than one rank, and let every rank report its steps through the probe",
}

# Figures of a window: without a steady state they are of no use as a gate.
NEED_STEADY = frozenset(
    {"samples_per_s", "tokens_per_s", "steps_per_s", "samples_per_s_per_gpu", "tokens_per_s_per_gpu", "wall_p50_ms", "wall_p90_over_p50"}
)


def read(criterion: Criterion, facts: Facts) -> list[Reading]:
    """Every value the criterion looks at; [] when its scope holds nothing yet."""
    entry = metric_entry(criterion.metric)
    if entry is None:
        return [missing(CAMPAIGN, f"the metric '{criterion.metric}' is not measured; {did_you_mean(criterion.metric, METRICS)}")]
    if criterion.scope not in entry.scopes:
        allowed = ", ".join(entry.scopes)
        return [missing(CAMPAIGN, f"{criterion.metric} cannot be looked at with the scope '{criterion.scope}'; use {allowed}")]
    if criterion.scope == CAMPAIGN:
        return count_of_campaign(criterion.metric, facts) if criterion.metric in COUNTED else campaign_reading(criterion, facts)
    if criterion.scope == EVERY_RUN:
        return _of_every_run(criterion, entry, facts)
    return _of_groups(criterion, entry, facts)


def _of_every_run(criterion: Criterion, entry: MetricEntry, facts: Facts) -> list[Reading]:
    # A run that failed has no figure that could pass: its part of the data is missing.
    measured = [_run_reading(criterion, entry, run) for run in facts.ok]
    return [*measured, *(_of_failed_run(criterion.metric, run) for run in (*facts.failed, *facts.spoilt))]


def _of_groups(criterion: Criterion, entry: MetricEntry, facts: Facts) -> list[Reading]:
    if criterion.scope == EVERY_GROUP:
        readings = [_group_reading(criterion, entry, group, facts) for group in facts.groups]
        others = [reading for reading in readings if reading is not None]
        if readings and not others:
            return [missing(CAMPAIGN, "there is no group but the baseline itself; add one to compare with it")]
        return others
    winner = facts.group(facts.ranking.winner)
    if winner is not None:
        return [_group_reading(criterion, entry, winner, facts) or own_baseline(criterion, winner)]
    why = facts.ranking.reason or "no group could be ranked"
    return [missing("winner", f"there is no winner to look at: {why.rstrip('.')}")] if facts.finished else []


def _run_reading(criterion: Criterion, entry: MetricEntry, run: MeasuredRun) -> Reading:
    metric, name, file = criterion.metric, run.attempt.spec.run, FILES.per_run_metrics.name
    if run.measure is None:
        return missing(name, f"nothing was measured of {name}; {_how_to_get(metric)}", outcome_file(run))
    if metric == "leak_mib_per_min":
        return leak_reading(run)
    found = _of_run(metric, entry, run.measure)
    if found.value is None:
        return missing(name, f"{name} has no {metric}; {found.reason or _how_to_get(metric)}", file)
    window = run.measure.window
    if metric in NEED_STEADY and window and not window.steady:
        return missing(name, f"{name} found no steady state ({window.reason})", file)
    text, n = run_window(run)
    return Reading(
        subject=name,
        value=_shared(found.value, run.measure.world_size) if entry.per_gpu else found.value,
        unit=_unit(criterion, entry, found),
        file=attempt_file(run, found.figure.file) if found.figure and found.figure.file else file,
        window="as the run reported it" if found.figure else text,
        n=found.figure.n if found.figure else n,
        detail=_detail(metric, run.measure),
    )


def _of_run(metric: str, entry: MetricEntry, measure: RunMeasure) -> Found:
    straggler = measure.straggler
    if metric == "straggler_score" and straggler is not None and straggler.verdict is StragglerVerdict.NONE:
        return Found(value=0.0 if straggler.score is None else straggler.score)
    return look_up(measure, entry.run_field)


def _of_failed_run(metric: str, run: MeasuredRun) -> Reading:
    name = run.attempt.spec.run
    remedy = "the platform failed it: run it again on a healthy one" if is_spoilt(run) else "mend it and run it again"
    return missing(name, f"{name} has no {metric} to go by ({how_it_ended(run)}); {remedy}", outcome_file(run))


def _group_reading(criterion: Criterion, entry: MetricEntry, group: GroupSummary, facts: Facts) -> Reading | None:
    """What the group has; None where it is the baseline of the comparison that is asked for."""
    metric, file, name = criterion.metric, FILES.group_summary.name, group.group
    if metric in COUNTED:
        return count_of_group(metric, group, facts)
    if group.runs == 0:
        return missing(name, f"no run of {name} ended ok; mend it and run it again", file)
    if entry.compares:
        return comparison_reading(criterion, group, facts)
    if metric in NEED_STEADY and group.unsteady_runs:
        return missing(name, f"{group.unsteady_runs} of {runs_text(group.runs)} of {name} found no steady state; run more steps", file)
    return _figure_reading(criterion, entry, group, facts)


def _figure_reading(criterion: Criterion, entry: MetricEntry, group: GroupSummary, facts: Facts) -> Reading:
    metric, file, name = criterion.metric, FILES.group_summary.name, group.group
    found = look_up(group, entry.group_field)
    gpus = next((run.measure.world_size for run in facts.runs_of(group) if run.measure), None) if entry.per_gpu else 1
    if found.value is None or gpus is None:
        told = f"{name} has no {metric};" if entry.needs_bound else f"{name}:"
        return missing(name, f"{told} {found.reason or _how_to_get(metric)}", file)
    window = f"{group.window_n} steps in the windows of {runs_text(group.runs)}" if group.window_n else f"{runs_text(group.runs)}, whole"
    return Reading(
        subject=name,
        value=_shared(found.value, gpus) if entry.per_gpu else found.value,
        unit=_unit(criterion, entry, found),
        file=file,
        window=window,
        n=group.runs,
        detail=_interval(found.estimate, gpus) if found.estimate else _first_clause(found.reason) or f"over {runs_text(group.runs)}",
    )


def _first_clause(reason: str) -> str:
    """Enough within a criterion; the statement beside it has the whole."""
    return reason.split(". ")[0].split("; ")[0]


def _shared(value: object, gpus: int) -> float | None:
    return value / max(gpus, 1) if isinstance(value, (int, float)) else None


def _unit(criterion: Criterion, entry: MetricEntry, found: Found) -> str:
    """'ratio' is the catalogue's word for a plain number."""
    unit = criterion.unit or entry.unit or (found.figure.unit if found.figure else "")
    return "" if unit == "ratio" else unit


def _how_to_get(metric: str) -> str:
    if metric.startswith(REPORTED) or "reported." in (METRICS[metric].run_field or ""):
        name = metric.removeprefix(REPORTED)
        return f'let the workload tell it: `probe.figure("{name}", value)`'
    return HOW_TO_GET.get(metric, _NEEDS_STEPS)


def _detail(metric: str, measure: RunMeasure) -> str:
    if metric == "loss_falls":
        return " → ".join("?" if loss is None else f"{loss:.6g}" for loss in (measure.first_loss, measure.last_loss))
    straggler = measure.straggler
    return f"rank {straggler.rank}" if metric == "straggler_score" and straggler and straggler.rank is not None else ""


def _interval(estimate: Estimate, gpus: int) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{runs_text(estimate.n)}, no interval"
    return f"95 % interval {estimate.low / gpus:.6g} to {estimate.high / gpus:.6g}, {runs_text(estimate.n)}"
