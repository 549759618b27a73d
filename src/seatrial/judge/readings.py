"""From a criterion to the values it is judged on.

In: a criterion, looked up in `records.criteria_catalog`, and the campaign's facts. Out: one `Reading` for each run, group or
campaign it looks at, with the file and the window the value comes from; a value that does not exist says why and how to get it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.errors import did_you_mean
from seatrial.judge.facts import Facts
from seatrial.paths import CampaignPaths
from seatrial.records.criteria_catalog import CAMPAIGN, EVERY_GROUP, EVERY_RUN, METRICS
from seatrial.records.measure import Cell, Estimate, GroupSummary, RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Criterion, Evidence

_FILES = CampaignPaths(Path())

_NEEDS_STEPS = "let it report steps: use the probe, or name the log format it prints with `reads`"
_NEEDS_POINTS = "lower `timing.log_every` or run more steps, so that timing points are written"
HOW_TO_GET = {
    "loss_falls": "its losses are missing, too few, or do not move beyond their noise; report them in each step, and run more steps",
    "samples_per_s": "report samples in each step, or set `samples_per_step` of the workload",
    "tokens_per_s": "report tokens in each step, or set `tokens_per_step` of the workload",
    "iter_p90_over_p50": _NEEDS_POINTS,
    "unstable_run_ratio": _NEEDS_POINTS,
}

# Figures of a window: without a steady state they are of no use as a gate.
NEED_STEADY = frozenset({"samples_per_s", "tokens_per_s", "steps_per_s", "wall_p90_over_p50"})
# Sentences name this many runs; the evidence has them all.
MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One value a criterion looks at, or why there is none."""

    subject: str
    value: Cell = None
    file: str = ""
    window: str = ""
    n: int | None = None
    missing: str = ""
    """Set when `value` is None: what is missing and how to get it."""
    detail: str = ""
    """What a reader wants beside the value: first and last loss, the runs that failed, the interval."""

    def evidence(self) -> Evidence:
        return Evidence(subject=self.subject, value=self.value, file=self.file, window=self.window, n=self.n)


def read(criterion: Criterion, facts: Facts) -> list[Reading]:
    """Every value the criterion looks at; [] when its scope holds nothing yet."""
    entry = METRICS.get(criterion.metric)
    if entry is None:
        return [_missing("campaign", f"the metric '{criterion.metric}' is not measured; {did_you_mean(criterion.metric, METRICS)}")]
    if criterion.scope not in entry.scopes:
        allowed = ", ".join(entry.scopes)
        return [_missing("campaign", f"{criterion.metric} cannot be looked at with the scope '{criterion.scope}'; use {allowed}")]
    if criterion.scope == CAMPAIGN:
        return _of_campaign(facts)
    if criterion.scope == EVERY_RUN:
        return _of_every_run(criterion.metric, facts)
    if criterion.scope == EVERY_GROUP:
        return [_group_reading(criterion.metric, group) for group in facts.groups]
    return _of_winner(criterion.metric, facts)


def listed(parts: Sequence[str], separator: str = ", ") -> str:
    """The first few, and how many more there are."""
    more = len(parts) - MOST_NAMED
    return separator.join([*parts[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def _of_campaign(facts: Facts) -> list[Reading]:
    """`failed_runs` is the one figure of a whole campaign."""
    if not facts.finished:
        return []
    failed = listed([f"{run.attempt.spec.run} ({_how_it_ended(run)})" for run in facts.failed])
    return [Reading(subject="campaign", value=len(facts.failed), file=_FILES.manifest.name, n=len(facts.finished), detail=failed)]


def _of_every_run(metric: str, facts: Facts) -> list[Reading]:
    # A run that failed has no figure that could pass: its part of the data is missing.
    return [*(_run_reading(metric, run) for run in facts.ok), *(_of_failed_run(metric, run) for run in facts.failed)]


def _of_winner(metric: str, facts: Facts) -> list[Reading]:
    winner = facts.group(facts.ranking.winner)
    if winner is not None:
        return [_group_reading(metric, winner)]
    why = facts.ranking.reason or "no group could be ranked"
    return [_missing("winner", f"there is no winner to look at: {why.rstrip('.')}")] if facts.finished else []


def _run_reading(metric: str, run: MeasuredRun) -> Reading:
    name, file = run.attempt.spec.run, _FILES.per_run_metrics.name
    if run.measure is None:
        return _missing(name, f"nothing was measured of {name}; {_how_to_get(metric)}", _outcome_file(run))
    value = _look_up(run.measure, METRICS[metric].run_field)
    if value is None:
        return _missing(name, f"{name} has no {metric}; {_how_to_get(metric)}", file)
    window = run.measure.window
    if metric in NEED_STEADY and window and not window.steady:
        return _missing(name, f"{name} found no steady state ({window.reason})", file)
    return Reading(
        subject=name,
        value=value,
        file=file,
        window=f"steps {window.first_step}–{window.last_step}" if window else "whole run",
        n=window.n if window else None,
        detail=_losses(run.measure) if metric == "loss_falls" else "",
    )


def _of_failed_run(metric: str, run: MeasuredRun) -> Reading:
    name = run.attempt.spec.run
    return _missing(name, f"{name} has no {metric} to go by ({_how_it_ended(run)}); mend it and run it again", _outcome_file(run))


def _group_reading(metric: str, group: GroupSummary) -> Reading:
    file, name = _FILES.group_summary.name, group.group
    if metric == "failed_runs":
        tried = group.runs + group.failed_runs + group.set_aside_runs
        if not tried:
            return _missing(name, f"no run of {name} has ended; run the plan", file)
        return Reading(subject=name, value=group.failed_runs, file=file, n=tried, detail=f"of {runs_text(tried)}")
    if group.runs == 0:
        return _missing(name, f"no run of {name} ended ok; mend it and run it again", file)
    if metric in NEED_STEADY and group.unsteady_runs:
        return _missing(name, f"{group.unsteady_runs} of {runs_text(group.runs)} of {name} found no steady state; run more steps", file)
    found = _look_up(group, METRICS[metric].group_field)
    if found is None:
        return _missing(name, f"{name} has no {metric}; {_how_to_get(metric)}", file)
    value, detail = (found.mean, _interval(found)) if isinstance(found, Estimate) else (found, f"mean of {runs_text(group.runs)}")
    window = f"{group.window_n} steps in the windows of {runs_text(group.runs)}" if group.window_n else f"{runs_text(group.runs)}, whole"
    return Reading(subject=name, value=value, file=file, window=window, n=group.runs, detail=detail)


def _look_up(record: RunMeasure | GroupSummary, field: str | None) -> Any:
    """The catalogue's field of a record; a dotted one reads into a mapping. Text and NaN are no values."""
    if field is None:
        return None
    name, _, key = field.partition(".")
    value = getattr(record, name)
    if key:
        value = value.get(key)
    no_number = isinstance(value, str) or (isinstance(value, float) and not math.isfinite(value))
    return None if no_number else value


def _missing(subject: str, why: str, file: str = "") -> Reading:
    return Reading(subject=subject, missing=why, file=file)


def _how_to_get(metric: str) -> str:
    return HOW_TO_GET.get(metric, _NEEDS_STEPS)


def _how_it_ended(run: MeasuredRun) -> str:
    outcome = run.attempt.outcome
    return f"{outcome.outcome.value}: {outcome.cause.value}" if outcome else "not over"


def _losses(measure: RunMeasure) -> str:
    return " → ".join("?" if loss is None else f"{loss:.6g}" for loss in (measure.first_loss, measure.last_loss))


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{runs_text(estimate.n)}, no interval"
    return f"95 % interval {estimate.low:.6g} to {estimate.high:.6g}, {runs_text(estimate.n)}"


def runs_text(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _outcome_file(run: MeasuredRun) -> str:
    return str(_FILES.run(run.attempt.spec.run).attempt(run.attempt.number).outcome)
