"""From a criterion to the values it is judged on.

In: a criterion, looked up in `records.criteria_catalog`, and the campaign's facts. Out: one `Reading` for each run, group or
campaign it looks at, with the file and the window the value comes from; a value that does not exist says why and how to get it.
"""

from __future__ import annotations

from dataclasses import replace

from seatrial.errors import did_you_mean
from seatrial.judge.advice import OF_THROUGHPUT
from seatrial.judge.compared import comparison_reading, winner_reading
from seatrial.judge.counts import COUNTED, count_of_campaign, count_of_group
from seatrial.judge.facts import Facts, is_spoilt
from seatrial.judge.fields import Found, look_up
from seatrial.judge.how_to_get import how_to_get
from seatrial.judge.memory import leak_reading
from seatrial.judge.over_campaign import campaign_reading
from seatrial.judge.reading import (
    FILES,
    Reading,
    debug_text,
    failures_text,
    how_it_ended,
    interval_text,
    missing,
    outcome_file,
    run_window,
    runs_text,
)
from seatrial.judge.reported import is_reported, reported_reading
from seatrial.judge.straggling import ONE_RANK, is_alone
from seatrial.records.criteria_catalog import CAMPAIGN, EVERY_GROUP, EVERY_RUN, METRICS, MetricEntry, metric_entry
from seatrial.records.health import StragglerVerdict
from seatrial.records.measure import CONFIDENCE, Estimate, GroupSummary, RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.records.stability import GroupStability
from seatrial.records.verdict import Criterion
from seatrial.units import format_number
from seatrial.wording import count

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
    readings = _readings(criterion, entry, facts)
    if entry.unit == "runs" and criterion.at_least is not None:
        return [_with_those_to_come(reading, facts) for reading in readings]
    return readings


def _readings(criterion: Criterion, entry: MetricEntry, facts: Facts) -> list[Reading]:
    if criterion.scope == CAMPAIGN:
        return count_of_campaign(criterion.metric, facts) if criterion.metric in COUNTED else campaign_reading(criterion, facts)
    if criterion.scope == EVERY_RUN:
        return _of_every_run(criterion, entry, facts)
    return _of_groups(criterion, entry, facts)


def _with_those_to_come(reading: Reading, facts: Facts) -> Reading:
    """A count that is to reach a bound may still do so while runs are to come."""
    waiting = facts.pending if reading.subject == CAMPAIGN else facts.pending_of(reading.subject)
    if reading.missing or not waiting or not isinstance(reading.value, (int, float)):
        return reading
    come = f"{count(len(waiting), 'run')} of {'it' if reading.subject == CAMPAIGN else reading.subject} still to be run"
    high = (reading.value if reading.high is None else reading.high) + len(waiting)
    return replace(reading, high=high, unsettled="; ".join(part for part in (reading.unsettled, come) if part))


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
        return [_group_reading(criterion, entry, winner, facts) or winner_reading(criterion, winner, facts)]
    why = facts.ranking.reason or "no group could be ranked"
    return [missing("winner", f"there is no winner to look at: {why.rstrip('.')}")] if facts.finished else []


def _run_reading(criterion: Criterion, entry: MetricEntry, run: MeasuredRun) -> Reading:
    metric, name, file = criterion.metric, run.attempt.spec.run, FILES.per_run_metrics.name
    measure = run.measure
    if measure is None:
        return missing(name, f"nothing was measured of {name}; {how_to_get(metric)}", outcome_file(run))
    if metric == "leak_mib_per_min":
        return leak_reading(run)
    if is_reported(entry):
        return reported_reading(criterion, entry, run, measure)
    found = _of_run(metric, entry, measure)
    if found.value is None:
        return missing(name, f"{name} has no {metric}; {found.reason or how_to_get(metric)}", file)
    if metric in NEED_STEADY and measure.window and not measure.window.steady:
        return missing(name, f"{name} found no steady state ({measure.window.reason})", file)
    text, n = run_window(run)
    return Reading(
        subject=name,
        value=_shared(found.value, measure.world_size) if entry.per_gpu else found.value,
        unit=_unit(criterion, entry),
        file=file,
        window=text,
        n=n,
        unsettled=_silent_ranks(metric, measure),
        detail=_detail(metric, measure),
        beside=_ranks_told(metric, measure),
    )


def _of_run(metric: str, entry: MetricEntry, measure: RunMeasure) -> Found:
    straggler = measure.straggler
    no_straggler = straggler is not None and straggler.verdict is StragglerVerdict.NONE
    if metric == "straggler_score" and (no_straggler or is_alone(measure)):
        return Found(value=0.0)
    return look_up(measure, entry.run_field)


def _ranks_told(metric: str, measure: RunMeasure) -> str:
    """Of a loss that not every rank tells."""
    if metric not in ("loss_falls", "loss_finite") or measure.loss_ranks is None or measure.loss_ranks >= measure.world_size:
        return ""
    return f"{measure.loss_ranks} of {count(measure.world_size, 'rank')} told"


def _silent_ranks(metric: str, measure: RunMeasure) -> str:
    """Where several ranks tell a loss, one that tells none may have one that is no number. A loss told by one rank is the training's: what
    another one breaks reaches it with the next gradients."""
    several = measure.loss_ranks is not None and measure.loss_ranks > 1
    return (
        "let every rank tell its loss (`rank_scope: all`)" if metric == "loss_finite" and several and _ranks_told(metric, measure) else ""
    )


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
        return missing(name, f"{told} {found.reason or how_to_get(metric)}", file)
    steps = f"{count(group.window_n, 'step')} in the windows of {runs_text(group.runs)}"
    reading = Reading(
        subject=name,
        value=_shared(found.value, gpus) if entry.per_gpu else found.value,
        unit=_unit(criterion, entry),
        file=file,
        window=steps if group.window_n else f"{runs_text(group.runs)}, whole",
        n=group.runs,
        detail=", ".join([_of_figure(metric, found, group, gpus), *failures_text(group), *_debug(metric, group.debug)]),
    )
    return _with_interval(reading, found.estimate, gpus)


def _with_interval(reading: Reading, estimate: Estimate | None, gpus: int) -> Reading:
    """The interval decides, where there is one."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return reading
    return replace(reading, low=estimate.low / gpus, high=estimate.high / gpus, confidence=CONFIDENCE, repeats=estimate.n)


def _of_figure(metric: str, found: Found, group: GroupSummary, gpus: int) -> str:
    """Interval and n; of steadiness what the whole verdict rests on."""
    if found.estimate:
        return _interval(found.estimate, gpus)
    if group.stability and metric in ("iter_ratio_median", "iter_ratio_max"):
        return _ratios(group.stability)
    if isinstance(found.value, bool) and found.reason:
        # Enough within a criterion; the statement beside it has the whole.
        return found.reason.split(". ")[0].split("; ")[0]
    return f"over {runs_text(group.runs)}"


def _ratios(found: GroupStability) -> str:
    both = [("median", found.ratio_median), ("highest", found.ratio_max)]
    told = [f"{name} {format_number(value)}" for name, value in both if value is not None]
    return f"p90/p50 of {runs_text(found.runs)}: {', '.join(told)}"


def _debug(metric: str, settings: tuple[str, ...]) -> list[str]:
    return debug_text(settings) if metric in OF_THROUGHPUT else []


def _shared(value: object, gpus: int) -> float | None:
    return value / max(gpus, 1) if isinstance(value, (int, float)) else None


def _unit(criterion: Criterion, entry: MetricEntry) -> str:
    """'ratio' is the catalogue's word for a plain number."""
    unit = criterion.unit or entry.unit
    return "" if unit == "ratio" else unit


def _detail(metric: str, measure: RunMeasure) -> str:
    if metric == "loss_falls":
        losses = (measure.first_loss, measure.last_loss)
        return " → ".join("?" if loss is None else format_number(loss) for loss in losses)
    if metric == "straggler_score" and is_alone(measure):
        return ONE_RANK
    straggler = measure.straggler
    if metric == "straggler_score":
        return f"rank {straggler.rank}" if straggler and straggler.rank is not None else ""
    return ", ".join(_debug(metric, tuple(dict.fromkeys(f"{one.name}={one.value}" for one in measure.debug))))


def _interval(estimate: Estimate, gpus: int) -> str:
    if estimate.low is None or estimate.high is None:
        return "one run, no interval" if estimate.n == 1 else f"{runs_text(estimate.n)}, no interval"
    ends = f"{format_number(estimate.low / gpus)} to {format_number(estimate.high / gpus)}"
    return f"{interval_text()} {ends}, {runs_text(estimate.n)}"
