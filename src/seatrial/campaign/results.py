"""From what lies in a campaign's folder to everything that is said of it.

`remake(folder)` reads every attempt, measures it, groups, ranks and judges, and writes every table and report anew: the same
from a finished campaign, a half-finished one, or one copied from another machine. `record_run` does it for one attempt that has
just ended, and appends its row to the manifest, so that the manifest grows as runs end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from seatrial.append import TROUBLE
from seatrial.campaign.in_the_way import folders_moved_aside
from seatrial.campaign.measuring import measure, measure_all
from seatrial.collect.attempts import StoredPlans, read_attempt, read_campaign, read_stored, read_stored_plans
from seatrial.collect.manifest import (
    append_manifest,
    eta_point_rows,
    manifest_row,
    timing_point_rows,
    write_eta_points,
    write_manifest,
    write_timing_points,
)
from seatrial.collect.original.translation import translation_cautions
from seatrial.collect.recovered import recover
from seatrial.errors import CampaignError
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.caution import Caution
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.run_spec import RunSpec
from seatrial.records.verdict import Criterion

THROUGHPUT = "throughput"
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
    folders_moved_aside(paths)
    # On a bad disk the next report makes it anew, from the attempts themselves.
    with contextlib.suppress(OSError):
        append_manifest(paths.manifest, manifest_row(measured.attempt, measured.measure))
    return measured


def known_durations_s(paths: CampaignPaths) -> dict[str, float]:
    """Mean length of the runs that ended well so far, by group key: what an estimate of the time rests on."""
    lengths: dict[str, list[float]] = {}
    for attempt in read_campaign(paths):
        if attempt.outcome is not None and attempt.outcome.outcome is Outcome.OK:
            lengths.setdefault(attempt.spec.group_key, []).append(attempt.outcome.duration_s)
    return {key: fmean(values) for key, values in lengths.items()}


def remake(folder: Path, *, tail_points: int | None = None, baseline: str | None = None) -> CampaignResults:
    """Read everything, write everything, and say it; with another tail or baseline than the plans say, where they are given."""
    paths = CampaignPaths(folder)
    recover(folder)
    results = gather_results(paths, tail_points=tail_points, baseline=baseline)
    results = replace(results, cautions=(*results.cautions, *folders_moved_aside(paths)))
    write_results(results, paths)
    return results


def remake_or_say(folder: Path) -> tuple[CampaignResults, str]:
    """The same for the end of a night: where a bad disk takes no tables, a sentence says so and the results are there all the same."""
    paths = CampaignPaths(folder)
    try:
        return remake(folder), ""
    except OSError as error:
        if error.errno not in TROUBLE:
            raise
        remedy = f"mend that, then `seatrial report {folder}`"
        return gather_results(paths), f"{error.filename or folder}: {error.strerror}; tables and report are not written: {remedy}"


def write_results(results: CampaignResults, paths: CampaignPaths) -> None:
    """Every table and report."""
    from seatrial.report.write import write_report

    write_manifest(paths.manifest, [manifest_row(run.attempt, run.measure) for run in results.runs])
    _write_points(paths, results)
    write_report(results, paths)


def gather_results(paths: CampaignPaths, *, tail_points: int | None = None, baseline: str | None = None) -> CampaignResults:
    """Everything known of the folder now; nothing is written. `tail_points` (timing points that the seeds' tail columns average) and
    `baseline` (the group that speed-ups are against) are those of the plans where they are not given."""
    if not can_measure():
        raise CampaignError(NO_POLARS)
    from seatrial.analyse.groups import summarise
    from seatrial.analyse.rank import rank
    from seatrial.judge.verdict import judge

    read = plans_of(paths)
    plans = read.plans
    asked = {(spec.run, spec.hash): spec for plan in plans for spec in plan.runs}
    stored = read_stored(paths, plans)
    attempts = [with_tail(as_asked_now(attempt, asked), tail_points) for attempt in stored.attempts]
    runs = measure_all(attempts)
    baseline = plans[-1].baseline if baseline is None else baseline
    groups = summarise(runs, baseline)
    rank_by, unknown = _rank_by(plans[-1])
    ranking = rank(groups, rank_by)
    waiting = pending(plans, runs)
    return CampaignResults(
        output=str(paths.folder),
        plans=tuple(plan.name for plan in plans),
        generated_t=time.time(),
        baseline_group=baseline,
        runs=runs,
        pending=waiting,
        groups=groups,
        ranking=ranking,
        verdict=judge(_criteria(plans), runs, groups, ranking, waiting),
        cautions=(*translation_cautions(paths), *read.cautions, *stored.cautions, *unknown),
    )


def plans_of(paths: CampaignPaths) -> StoredPlans:
    """The folder's plans, the latest last; a CampaignError that says why where there is none."""
    read = read_stored_plans(paths)
    if read.plans:
        return read
    if any(os.path.lexists(path) for path in (paths.plan, *paths.plans.glob("*.json"))):
        raise CampaignError(
            f"no plan in {paths.folder} can be read: plan.json and plans/ are damaged; run the plan again into this folder, which keeps "
            "every finished run, or put plan.json back from a copy"
        )
    raise CampaignError(f"{paths.folder} holds no campaign: there is no plan in it; name the folder that `seatrial run` wrote to")


def _rank_by(plan: CampaignPlan) -> tuple[str, list[Caution]]:
    """What to rank by; throughput where the plan, of a later version or damaged, names a figure that is not known here."""
    from seatrial.analyse.rank_metric import METRICS

    if plan.rank_by in (THROUGHPUT, *METRICS):
        return plan.rank_by, []
    text = f"The plan ranks by '{plan.rank_by[:40]}', which this version does not know; {THROUGHPUT} is used instead."
    return THROUGHPUT, [Caution(kind="unknown_figure", text=text)]


def as_asked_now(attempt: Attempt, asked: Mapping[tuple[str, str], RunSpec]) -> Attempt:
    """The attempt read as the plan asks for it now: window, patterns and lane may change without a run being made again."""
    spec = asked.get((attempt.spec.run, attempt.spec.hash))
    return attempt if spec is None else replace(attempt, spec=spec)


def with_tail(attempt: Attempt, tail_points: int | None) -> Attempt:
    """The attempt with so many timing points in its tail; as it is where None."""
    if tail_points is None:
        return attempt
    timing = replace(attempt.spec.timing, tail_points=tail_points)
    return replace(attempt, spec=replace(attempt.spec, timing=timing))


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
