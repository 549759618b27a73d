"""From what lies in a campaign's folder to everything that is said of it.

`remake(folder)` reads every attempt, measures it, groups, ranks and judges, and writes every table and report anew: the same
from a finished campaign, a half-finished one, or one copied from another machine. `record_run` does it for one attempt that has
just ended, and appends its row to the manifest, so that the manifest grows as runs end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from seatrial.campaign.grouped import GroupedCampaign, can_measure, group_campaign
from seatrial.campaign.in_the_way import folders_moved_aside
from seatrial.campaign.measuring import Measuring, measure
from seatrial.campaign.scaling_within import scaling_within
from seatrial.collect.attempts import read_attempt, read_campaign
from seatrial.collect.hosts.warnings import host_warnings
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
from seatrial.disk.append import TROUBLE
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.campaign_plan import SENTINEL, CampaignPlan
from seatrial.records.caution import Caution
from seatrial.records.measure import GroupSummary
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.stability import SentinelDrift
from seatrial.records.verdict import CampaignVerdict, Criterion
from seatrial.run_table.told_apart import told_apart
from seatrial.uncollected import uncollected


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


# A thousand runs are half a million objects, none of them in a circle: the search is a tenth of the time that a report takes.
@uncollected()
def remake(folder: Path, *, tail_points: int | None = None, baseline: str | None = None) -> CampaignResults:
    """Read everything, write everything, and say it; with another tail or baseline than the plans say, where they are given."""
    paths = CampaignPaths(folder)
    recover(folder)
    results = gather_results(paths, tail_points=tail_points, baseline=baseline, charts=True)
    results = replace(results, cautions=(*results.cautions, *folders_moved_aside(paths)))
    return write_results(results, paths)


def remake_or_say(folder: Path) -> tuple[CampaignResults, str]:
    """The same for the end of a night: where a bad disk takes no tables, a sentence says so and the results are there all the same."""
    from seatrial.report.digest.cautions import NOT_WRITTEN

    paths = CampaignPaths(folder)
    before = _stamps(paths)
    try:
        return remake(folder), ""
    except OSError as error:
        if error.errno not in TROUBLE:
            raise
        remedy = f"mend that, then `seatrial report {folder}`"
        said = f"{error.filename or folder}: {error.strerror}; {_what_is_new(before, _stamps(paths))}: {remedy}"
    results = gather_results(paths)
    return replace(results, cautions=(*results.cautions, Caution(kind=NOT_WRITTEN, text=said))), said


def _stamps(paths: CampaignPaths) -> dict[str, tuple[int, int] | None]:
    """Which file of the report lies under each name, of those that every report has; None where there is none."""
    found: dict[str, tuple[int, int] | None] = {}
    for path in (paths.manifest, paths.verdict, paths.group_summary, paths.summary_json, paths.summary_md, paths.summary_html):
        try:
            stat = path.stat()
        except OSError:
            found[path.name] = None
        else:
            found[path.name] = (stat.st_ino, stat.st_mtime_ns)
    return found


def _what_is_new(before: Mapping[str, tuple[int, int] | None], after: Mapping[str, tuple[int, int] | None]) -> str:
    """What was written before the disk failed, and what was not: an old report must not be taken for a new one."""
    new = [name for name, stamp in after.items() if stamp is not None and stamp != before[name]]
    if not new:
        return "tables and report are not written"
    missing = [name for name in after if name not in new]
    return f"written: {', '.join(new)}; not written: {', '.join(missing) or 'what comes after them'}"


def write_results(results: CampaignResults, paths: CampaignPaths) -> CampaignResults:
    """Every table and report; the results come back with what was amiss in that."""
    from seatrial.report.write import write_report

    write_manifest(paths.manifest, [manifest_row(run.attempt, run.measure) for run in results.runs])
    _write_points(paths, results)
    return write_report(results, paths)


def gather_results(
    paths: CampaignPaths,
    *,
    tail_points: int | None = None,
    baseline: str | None = None,
    charts: bool = False,
    measuring: Measuring | None = None,
) -> CampaignResults:
    """Everything known of the folder now, grouped as `group_campaign` does and judged; nothing is written."""
    grouped = group_campaign(paths, tail_points=tail_points, baseline=baseline, charts=charts, measuring=measuring)
    from seatrial.analyse.sentinel import sentinel_drift
    from seatrial.analyse.what_fits import what_fits

    drift = sentinel_drift(grouped.runs)
    return CampaignResults(
        output=grouped.output,
        plans=tuple(plan.name for plan in grouped.plans),
        generated_t=time.time(),
        baseline_group=grouped.baseline_group,
        runs=grouped.runs,
        pending=grouped.pending,
        groups=grouped.groups,
        ranking=grouped.ranking,
        verdict=_verdict(grouped, drift, paths.folder),
        drift=drift,
        cautions=(*translation_cautions(paths), *host_warnings(paths.preflight), *grouped.cautions, *what_fits(grouped.runs)),
        not_started=_not_started(grouped),
    )


def _not_started(grouped: GroupedCampaign) -> tuple[GroupSummary, ...]:
    """Groups that the plans ask for and that nothing has been made of yet, in the plans' order."""
    there, names = {group.group_key for group in grouped.groups}, {group.group for group in grouped.groups}
    waiting = set(grouped.pending)
    found: dict[str, GroupSummary] = {}
    for spec in (spec for plan in grouped.plans for spec in plan.chosen):
        if spec.key not in there and spec.key not in found and spec.run in waiting and spec.mode != SENTINEL:
            name = spec.group if spec.group not in names else told_apart(spec.group, spec.key)
            names.add(name)
            found[spec.key] = GroupSummary(
                group=name, group_key=spec.key, mode=spec.mode, lane=spec.lane, axes=dict(spec.axes), runs=0, failed_runs=0
            )
    return tuple(found.values())


def _verdict(grouped: GroupedCampaign, drift: SentinelDrift | None, folder: Path) -> CampaignVerdict:
    from seatrial.campaign.baselines import comparisons_for
    from seatrial.judge.verdict import judge

    criteria = _criteria(grouped.plans)
    comparisons = comparisons_for(
        criteria, groups=grouped.groups, runs=grouped.runs, ranking=grouped.ranking, pending=grouped.pending, folder=folder
    )
    return judge(
        criteria,
        grouped.runs,
        grouped.groups,
        grouped.ranking,
        grouped.pending,
        comparisons=comparisons,
        scaling=scaling_within(grouped),
        drift=drift,
        left_out=[spec.run for plan in grouped.plans for spec in plan.runs if plan.selected and spec.run not in plan.selected],
    )


def _criteria(plans: Sequence[CampaignPlan]) -> list[Criterion]:
    """The gates of every plan in the folder, each once."""
    return list(dict.fromkeys(criterion for plan in plans for criterion in plan.criteria))


def _write_points(paths: CampaignPaths, results: CampaignResults) -> None:
    current = [(run.attempt, run.measure) for run in results.runs if run.measure and run.attempt.current]
    write_timing_points(paths.timing_points, [row for attempt, measure in current for row in timing_point_rows(attempt, measure)])
    write_eta_points(paths.eta_points, [row for attempt, measure in current for row in eta_point_rows(attempt, measure)])
