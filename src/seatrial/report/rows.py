"""The rows of the report's tables, as dicts of plain values: written as text by `tables`, as JSON by `summary`.

In: CampaignResults. Out: rows of runs, of groups (in campaign order or ranked), and of the runs that give no timing.
"""

from __future__ import annotations

from collections.abc import Iterable

from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.columns import AXIS, GROUP_OURS, GROUP_SEED, PER_RUN_OURS, PER_RUN_SEED, SEED_SETTINGS, SKIPPED
from seatrial.records.measure import Cell, GroupSummary, RankedGroup, Ranking
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.run_table.run_cells import run_cells
from seatrial.run_table.seed_columns import axis_cells

Row = dict[str, Cell]

# Estimates with their interval, and those shown by their mean alone: metric → column.
WITH_INTERVAL = {"samples_per_s": "wall_samples_per_sec", "tokens_per_s": "wall_tokens_per_sec", "steps_per_s": "wall_steps_per_sec"}
MEAN_ALONE = {
    "wall_p50_ms": "wall_iter_p50_ms",
    "wall_p90_over_p50": "wall_p90_over_p50",
    "startup_s": "startup_sec",
    "duration_s": "duration_sec",
}


def axis_columns(results: CampaignResults) -> list[str]:
    """`axis_NAME` for every axis the seeds have no column for, in the order they first occur."""
    of_runs = (run.attempt.spec.axes for run in results.runs)
    names = dict.fromkeys(name for axes in (*(group.axes for group in results.groups), *of_runs) for name in axes)
    return [f"{AXIS}{name}" for name in names if name not in SEED_SETTINGS]


def per_run_columns(results: CampaignResults) -> list[str]:
    return [*PER_RUN_SEED, *PER_RUN_OURS, *axis_columns(results)]


def group_columns(results: CampaignResults) -> list[str]:
    return [*GROUP_SEED, *GROUP_OURS, *axis_columns(results)]


def per_run_rows(results: CampaignResults) -> list[Row]:
    columns = per_run_columns(results)
    names = unique_group_names(results)
    rows = []
    for run in results.counted:
        spec = run.attempt.spec
        cells = {**run_cells(run.attempt, run.measure), "group": names.get(spec.key, spec.group)}
        rows.append(_in_order(cells, columns))
    return rows


def group_rows(results: CampaignResults) -> list[Row]:
    """Every group, in the campaign's order."""
    places = _places(results.ranking)
    columns = group_columns(results)
    return [_in_order(_group_cells(group, places.get(group.group)), columns) for group in results.groups]


def ranked_rows(results: CampaignResults) -> list[Row]:
    """The main lane in its order, then the groups off it in theirs, then any that have no place; a sentinel watches the platform only."""
    by_name = {row["group"]: row for row in group_rows(results)}
    order = [ranked.group for ranked in (*results.ranking.groups, *results.ranking.off_lane) if ranked.group in by_name]
    rest = [group.group for group in results.groups if group.group not in order and group.mode != SENTINEL]
    return [by_name[name] for name in (*order, *rest)]


def rows_by_stability(results: CampaignResults) -> list[Row]:
    """The seeds' order of stability; groups without that rank are left out."""
    placed = [(rank, row) for row in group_rows(results) if isinstance(rank := row["rank_by_stability"], int)]
    return [row for _, row in sorted(placed, key=lambda pair: pair[0])]


def skipped_rows(results: CampaignResults) -> list[Row]:
    """Current attempts that are over and give no timing, with the seeds' reason."""
    names = unique_group_names(results)
    rows = []
    for run in results.runs:
        reason = _skip_reason(run, results.ranking.metric)
        if run.attempt.current and run.attempt.outcome and reason:
            spec = run.attempt.spec
            cells = {
                **run_cells(run.attempt, run.measure),
                "group": names.get(spec.key, spec.group),
                "reason": reason,
                "outcome": run.attempt.outcome.outcome.value,
                "cause": run.attempt.outcome.cause.value,
                "action": run.attempt.outcome.action,
            }
            rows.append(_in_order(cells, SKIPPED))
    return rows


def unique_group_names(results: CampaignResults) -> dict[str, str]:
    """Group key → the name that is unique in the campaign; a run's own spec only knows the plain one."""
    return {group.group_key: group.group for group in results.groups}


def _skip_reason(run: MeasuredRun, metric: str) -> str | None:
    how = run.outcome
    if how and how.is_failure:
        return "run_failed"
    if how is not Outcome.OK:
        return None
    if run.measure is None:
        return "train_log_missing"
    if run.measure.timing_points or getattr(run.measure, metric, None) is not None:
        return None
    return "train_log_missing" if run.measure.source == "whole" else "no_timing_points"


def _group_cells(group: GroupSummary, place: RankedGroup | None) -> Row:
    from_axes = {name: value for name, value in group.axes.items() if name in SEED_SETTINGS}
    cells: Row = {
        **from_axes,
        **{name: value for name, value in group.seed.items() if value is not None},
        **axis_cells(group.axes),
        "group": group.group,
        "mode": group.mode,
        "runs": group.runs,
        "lane": group.lane,
        "group_key": group.group_key,
        "failed_runs": group.failed_runs,
        "failed_attempts": group.failed_attempts,
        "set_aside_runs": group.set_aside_runs,
        "unsteady_runs": group.unsteady_runs,
        "window_n": group.window_n,
    }
    return {**cells, **_figure_cells(group), **_stability_cells(group), **_place_cells(place)}


def _stability_cells(group: GroupSummary) -> Row:
    cells: Row = {
        "infrastructure_failures": len(group.infrastructure_failures),
        "debug_settings": "+".join(group.debug) or None,
    }
    found = group.stability
    if found:
        cells |= {
            "stability": found.verdict.value,
            "stability_ratio_median": found.ratio_median,
            "stability_ratio_max": found.ratio_max,
            "throughput_cv_pct": found.cv_pct,
            "stability_causes": "+".join(cause.kind for cause in found.causes) or None,
        }
    return cells


def _figure_cells(group: GroupSummary) -> Row:
    cells: Row = {column: group.figures[metric].mean for metric, column in MEAN_ALONE.items() if metric in group.figures}
    for metric, column in WITH_INTERVAL.items():
        estimate = group.figures.get(metric)
        if estimate:
            cells |= {column: estimate.mean, f"{column}_low": estimate.low, f"{column}_high": estimate.high}
    return cells


def _place_cells(place: RankedGroup | None) -> Row:
    if place is None:
        return {}
    cells: Row = {"rank": place.rank, "tied_with_best": place.tied, "can_win": place.can_win, "reason": place.reason}
    if place.ratio:
        cells |= {"ratio_to_best": place.ratio.mean, "ratio_low": place.ratio.low, "ratio_high": place.ratio.high}
    return cells


def _places(ranking: Ranking) -> dict[str, RankedGroup]:
    return {ranked.group: ranked for ranked in (*ranking.groups, *ranking.off_lane)}


def _in_order(cells: Row, columns: Iterable[str]) -> Row:
    return {column: cells.get(column) for column in columns}
