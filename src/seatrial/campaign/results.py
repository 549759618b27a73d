"""From what lies in a campaign's folder to everything that is said of it.

`remake(folder)` reads every attempt, measures it, groups, ranks and judges, and writes every table and report anew: the same
from a finished campaign, a half-finished one, or one copied from another machine. `record_run` does it for one attempt that has
just ended, and appends its row to the manifest, so that the manifest grows as runs end.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from seatrial.campaign.measuring import measure, measure_all
from seatrial.collect.attempts import read_attempt, read_campaign, read_plans
from seatrial.collect.manifest import (
    append_manifest,
    eta_point_rows,
    manifest_row,
    timing_point_rows,
    write_eta_points,
    write_manifest,
    write_timing_points,
)
from seatrial.errors import CampaignError
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.run_spec import RunSpec
from seatrial.records.verdict import Criterion

BASELINE_GROUP = "old_like"
NO_POLARS = "polars is not installed here, so no tables can be made; copy the folder to a machine that has it and run `seatrial report`"


def can_measure() -> bool:
    """Whether this machine has what the tables need: runs can be made without it and read elsewhere."""
    return importlib.util.find_spec("polars") is not None


def record_run(paths: CampaignPaths, attempt: AttemptPaths) -> MeasuredRun | None:
    """Measure an attempt that has just ended and append it to the manifest; None where that cannot be done here."""
    stored = read_attempt(attempt)
    if stored is None or not can_measure():
        return None
    measured = measure(stored)
    append_manifest(paths.manifest, manifest_row(measured.attempt, measured.measure))
    return measured


def known_durations_s(paths: CampaignPaths) -> dict[str, float]:
    """Mean length of the runs that ended well so far, by group key: what an estimate of the time rests on."""
    lengths: dict[str, list[float]] = {}
    for attempt in read_campaign(paths):
        if attempt.outcome is not None and attempt.outcome.outcome is Outcome.OK:
            lengths.setdefault(attempt.spec.group_key, []).append(attempt.outcome.duration_s)
    return {key: fmean(values) for key, values in lengths.items()}


def remake(folder: Path) -> CampaignResults:
    """Read everything, write everything, and say it."""
    from seatrial.report.write import write_report

    paths = CampaignPaths(folder)
    results = gather_results(paths)
    write_manifest(paths.manifest, [manifest_row(run.attempt, run.measure) for run in results.runs])
    _write_points(paths, results)
    write_report(results, paths)
    return results


def gather_results(paths: CampaignPaths) -> CampaignResults:
    """Everything known of the folder now; nothing is written."""
    if not can_measure():
        raise CampaignError(NO_POLARS)
    from seatrial.analyse.groups import summarise
    from seatrial.analyse.rank import rank
    from seatrial.judge.verdict import judge

    plans = read_plans(paths)
    if not plans:
        raise CampaignError(f"{paths.folder} holds no campaign: there is no plan in it; name the folder that `seatrial run` wrote to")
    latest = plans[-1]
    asked = {(spec.run, spec.hash): spec for plan in plans for spec in plan.runs}
    runs = measure_all([as_asked_now(attempt, asked) for attempt in read_campaign(paths, plans)])
    groups = summarise(runs, BASELINE_GROUP)
    ranking = rank(groups, latest.rank_by)
    waiting = pending(plans, runs)
    return CampaignResults(
        output=str(paths.folder),
        plans=tuple(plan.name for plan in plans),
        generated_t=time.time(),
        baseline_group=BASELINE_GROUP,
        runs=runs,
        pending=waiting,
        groups=groups,
        ranking=ranking,
        verdict=judge(_criteria(plans), runs, groups, ranking, waiting),
    )


def as_asked_now(attempt: Attempt, asked: Mapping[tuple[str, str], RunSpec]) -> Attempt:
    """The attempt read as the plan asks for it now: window, patterns and lane may change without a run being made again."""
    spec = asked.get((attempt.spec.run, attempt.spec.hash))
    return attempt if spec is None else replace(attempt, spec=spec)


def pending(plans: list[CampaignPlan], runs: tuple[MeasuredRun, ...]) -> tuple[str, ...]:
    """Runs that a plan asks for and that have no attempt that came to its own end, in the plans' order."""
    ended = {run.attempt.spec.hash for run in runs if run.outcome is not None and not run.outcome.is_cut_short}
    return tuple(spec.run for plan in plans for spec in plan.chosen if spec.hash not in ended)


def _criteria(plans: list[CampaignPlan]) -> list[Criterion]:
    """The gates of every plan in the folder, each once."""
    return list(dict.fromkeys(criterion for plan in plans for criterion in plan.criteria))


def _write_points(paths: CampaignPaths, results: CampaignResults) -> None:
    current = [(run.attempt, run.measure) for run in results.runs if run.measure and run.attempt.current]
    write_timing_points(paths.timing_points, [row for attempt, measure in current for row in timing_point_rows(attempt, measure)])
    write_eta_points(paths.eta_points, [row for attempt, measure in current for row in eta_point_rows(attempt, measure)])
