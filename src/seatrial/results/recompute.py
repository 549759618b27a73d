"""Every table and report of a campaign, computed from what is in its folder.

`recompute(folder)` reads every attempt, measures it, groups, ranks and judges, and writes every table and report: the same for a finished
campaign, a half-finished one, or one copied from another machine. `RunRecorder` measures one attempt when it ends and appends its row to
the manifest; the report at the end uses what it measured.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Unpack

from seatrial.collect.attempt_files import recover_files
from seatrial.collect.attempts import preflight_cautions, read_attempt, read_campaign, read_plans
from seatrial.collect.logs.bounded_lines import LineIndex
from seatrial.collect.manifest import (
    append_manifest,
    eta_point_rows,
    manifest_row,
    timing_point_rows,
    write_eta_points,
    write_manifest,
    write_timing_points,
)
from seatrial.collect.original.translate import translation_cautions
from seatrial.core import files
from seatrial.core.durable_writes import DISK_ERRNOS
from seatrial.core.errors import SeatrialError
from seatrial.core.linux import garbage_collector_off
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.caution import Caution
from seatrial.records.columns import CHART_TABLES, Detail
from seatrial.records.comparison import Scaling
from seatrial.records.measure import GroupSummary, SentinelDrift
from seatrial.records.outcome import Outcome
from seatrial.records.plan import SENTINEL
from seatrial.records.results import CampaignResults, GroupedCampaign, MeasuredRun
from seatrial.records.run_table import qualified_name
from seatrial.records.verdict import CampaignVerdict
from seatrial.results.cache import MeasureCache
from seatrial.results.compare import comparable_groups, compared_group
from seatrial.results.gather import GatherOptions, Specs, can_measure, group_campaign, planned_specs, with_current_spec
from seatrial.results.workers import load_measuring


class RunRecorder:
    """Measures each run of a campaign once, when it ends."""

    def __init__(self, paths: CampaignPaths) -> None:
        self._paths = paths
        self.cache = MeasureCache()

    def load(self) -> None:
        """Import what `record` needs before the first run starts: later it would take a third of a second between two runs."""
        if can_measure():
            load_measuring()

    def record(self, attempt: AttemptPaths, log_index: LineIndex | None = None) -> MeasuredRun | None:
        """Measure an attempt that has just ended and append it to the manifest; None where it cannot be measured here. `log_index` is
        the index of its log, where the log was followed."""
        stored = read_attempt(attempt)
        if stored is None or not can_measure():
            return None
        from seatrial.collect.steps import ReadAhead

        measured = self.cache.add(with_current_spec(stored, self._specs), self._detail, ReadAhead(log_index=log_index))
        move_folders_aside(self._paths)
        # Where the disk fails, the next report writes it from the attempts.
        with contextlib.suppress(OSError):
            append_manifest(self._paths.manifest, manifest_row(measured.attempt, measured.measure))
        return measured

    @cached_property
    def _specs(self) -> Specs:
        return planned_specs(read_plans(self._paths))

    @cached_property
    def _detail(self) -> Detail:
        """The detail of the finished campaign's page, so that charts are computed once."""
        from seatrial.analyse.charts.run_charts import detail_for

        return detail_for(len(self._specs))


def known_durations_s(paths: CampaignPaths) -> dict[str, float]:
    """Mean length of the runs that ended ok so far, by group key, for estimates of time."""
    lengths: dict[str, list[float]] = {}
    for attempt in read_campaign(paths):
        if attempt.outcome is not None and attempt.outcome.outcome is Outcome.OK:
            lengths.setdefault(attempt.spec.group_key, []).append(attempt.outcome.duration_s)
    return {key: fmean(values) for key, values in lengths.items()}


# A thousand runs are half a million objects without reference cycles: searching for them takes a tenth of a report's time.
@garbage_collector_off()
def recompute(folder: Path, **options: Unpack[GatherOptions]) -> CampaignResults:
    """Read everything and write everything."""
    paths = CampaignPaths(folder)
    files.refuse_links([paths.charts])
    recover_files(folder)
    results = gather_results(paths, charts=True, **options)
    results = replace(results, cautions=(*results.cautions, *move_folders_aside(paths)))
    return write_results(results, paths)


def recompute_or_explain(folder: Path, cache: MeasureCache | None = None, *, allow_confounded: bool = False) -> tuple[CampaignResults, str]:
    """`recompute` at the end of a campaign: where the disk fails, the results come back with a sentence about it."""
    from seatrial.report.view.campaign import REPORT_NOT_WRITTEN

    paths = CampaignPaths(folder)
    before = _stamps(paths)
    try:
        return recompute(folder, cache=cache, allow_confounded=allow_confounded), ""
    except OSError as error:
        if error.errno not in DISK_ERRNOS:
            raise
        written = _describe_written(before, _stamps(paths))
        text = f"{error.filename or folder}: {error.strerror}; {written}: fix that, then `seatrial report {folder}`"
    results = gather_results(paths, allow_confounded=allow_confounded)
    return replace(results, cautions=(*results.cautions, Caution(kind=REPORT_NOT_WRITTEN, text=text))), text


def _stamps(paths: CampaignPaths) -> dict[str, tuple[int, int] | None]:
    """Inode and time of the files of every report; None for a missing one."""
    found: dict[str, tuple[int, int] | None] = {}
    for path in (paths.manifest, paths.verdict, paths.group_summary, paths.summary_json, paths.summary_md, paths.summary_html):
        try:
            stat = path.stat()
        except OSError:
            found[path.name] = None
        else:
            found[path.name] = (stat.st_ino, stat.st_mtime_ns)
    return found


def _describe_written(before: Mapping[str, tuple[int, int] | None], after: Mapping[str, tuple[int, int] | None]) -> str:
    """What was written before the disk failed, and what was not: an older report must not be taken for this one."""
    new = [name for name, stamp in after.items() if stamp is not None and stamp != before[name]]
    if not new:
        return "tables and report are not written"
    missing = [name for name in after if name not in new]
    return f"written: {', '.join(new)}; not written: {', '.join(missing) or 'what comes after them'}"


def write_results(results: CampaignResults, paths: CampaignPaths) -> CampaignResults:
    """Write every table and report; the results come back with cautions about what could not be written."""
    from seatrial.report.write import write_report

    write_manifest(paths.manifest, [manifest_row(run.attempt, run.measure) for run in results.runs])
    current = [(run.attempt, run.measure) for run in results.runs if run.measure and run.attempt.current]
    write_timing_points(paths.timing_points, [row for attempt, measure in current for row in timing_point_rows(attempt, measure)])
    write_eta_points(paths.eta_points, [row for attempt, measure in current for row in eta_point_rows(attempt, measure)])
    return write_report(results, paths)


def gather_results(paths: CampaignPaths, *, charts: bool = False, **options: Unpack[GatherOptions]) -> CampaignResults:
    """The campaign as it is on disk now, grouped and judged; nothing is written."""
    grouped = group_campaign(paths, charts=charts, **options)
    from seatrial.analyse.oom_boundary import oom_boundaries
    from seatrial.analyse.stability import sentinel_drift

    drift = sentinel_drift(grouped.runs)
    cautions = (*translation_cautions(paths), *preflight_cautions(paths.preflight), *grouped.cautions, *oom_boundaries(grouped.runs))
    return CampaignResults(
        **vars(replace(grouped, cautions=cautions)),
        generated_t=time.time(),
        verdict=_judge(grouped, drift, paths.folder),
        drift=drift,
        not_started=_groups_not_started(grouped),
    )


def _groups_not_started(grouped: GroupedCampaign) -> tuple[GroupSummary, ...]:
    """Groups of the plans without any attempt yet, in the plans' order."""
    there, names = {group.group_key for group in grouped.groups}, {group.group for group in grouped.groups}
    waiting = set(grouped.pending)
    found: dict[str, GroupSummary] = {}
    for spec in (spec for plan in grouped.plans for spec in plan.chosen):
        if spec.key not in there and spec.key not in found and spec.run in waiting and spec.mode != SENTINEL:
            name = spec.group if spec.group not in names else qualified_name(spec.group, spec.key)
            names.add(name)
            found[spec.key] = GroupSummary(
                group=name, group_key=spec.key, mode=spec.mode, lane=spec.lane, axes=dict(spec.axes), runs=0, failed_runs=0
            )
    return tuple(found.values())


def _judge(grouped: GroupedCampaign, drift: SentinelDrift | None, folder: Path) -> CampaignVerdict:
    from seatrial.judge.verdict import judge
    from seatrial.results.baselines import comparisons_for

    # The criteria of every plan in the folder, each once.
    criteria = list(dict.fromkeys(criterion for plan in grouped.plans for criterion in plan.criteria))
    return judge(
        criteria,
        grouped.runs,
        grouped.groups,
        grouped.ranking,
        grouped.pending,
        comparisons=comparisons_for(criteria, grouped, folder=folder),
        scaling=worst_scaling(grouped),
        drift=drift,
        left_out=[spec.run for plan in grouped.plans for spec in plan.runs if plan.selected and spec.run not in plan.selected],
    )


def worst_scaling(grouped: GroupedCampaign) -> Scaling | None:
    """The family of groups that scales worst with the number of ranks, for criteria; `family` names it where there are several. None where
    all runs had the same number of ranks."""
    from seatrial.analyse.scaling import worst_family

    return worst_family(scaling_within(grouped))


def scaling_within(grouped: GroupedCampaign) -> list[Scaling]:
    """One per family of main-lane groups that differ only in ranks. Groups that cannot be compared are reported and do not fail the
    campaign."""
    sizes = {run.measure.world_size for run in grouped.runs if run.attempt.current and run.measure}
    if len(sizes) < 2:
        return []
    from seatrial.analyse.scaling import scaling_families

    try:
        groups = [compared_group(grouped, name) for name in comparable_groups(grouped)]
        return scaling_families(groups, allow_confounded=grouped.ranking.allow_confounded)
    except SeatrialError as error:
        return [Scaling(metric="throughput", unit="", points=(), reason=f"Scaling unknown: {error}.")]


def move_folders_aside(paths: CampaignPaths) -> list[Caution]:
    """Rename folders in the way of files of the report, and a file in the way of the charts' folder; nothing is lost."""
    in_the_way = [_move_aside(paths.charts, "file")] if paths.charts.is_file() else []
    return in_the_way + [moved for path in _report_files(paths) if (moved := move_folder_aside(path))]


def move_folder_aside(path: Path) -> Caution | None:
    """Rename a folder that is in the way of a file; None where there is none."""
    return _move_aside(path, "folder") if path.is_dir() and not path.is_symlink() else None


def _report_files(paths: CampaignPaths) -> Iterator[Path]:
    yield from (paths.manifest, paths.timing_points, paths.eta_points, paths.skipped_runs)
    yield from (paths.per_run_metrics, paths.group_summary, paths.ranked_groups)
    yield from (paths.verdict, paths.summary_json, paths.summary_md)
    yield from (paths.best_config_json, paths.best_config_env, paths.best_overrides)
    yield from (paths.summary_html, *(paths.chart_table(name) for name in CHART_TABLES))


def _move_aside(path: Path, what: str) -> Caution:
    free = (path.with_name(f"{path.name}.{what}-{number}") for number in itertools.count(1))
    aside = next(name for name in free if not name.exists())
    path.rename(aside)
    return Caution(
        kind="moved_aside", text=f"A {what} was in the way of {path.name}; it is now {aside.name}: remove it if it is not needed."
    )
