"""The sections of summary.md that the seeds' summary has, in their order and with their figures.

In: CampaignResults. Out: Best Config, ETA Overview, Group Summary, Rank Imbalance, Top Stable Groups, Skipped Runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.paths import CAMPAIGN_FILES, CampaignPaths
from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults
from seatrial.report.best import find_best
from seatrial.report.markdown.eta import eta_section
from seatrial.report.markdown.text import bounded_table, escape
from seatrial.report.numbers import NONE, figure
from seatrial.report.rows import Row, group_rows, rows_by_stability, skipped_rows
from seatrial.tables import format_cell

TOP_STABLE = 5
MOST_SETTINGS = 60
GROUP_COLUMNS = (
    ("runs", "runs"),
    ("tail_mean_iter_p50_ms_mean", "iter p50 ms"),
    ("tail_mean_iter_p50_ms_std", "std"),
    ("tail_mean_iter_p90_ms_mean", "iter p90 ms"),
    ("iter_p90_over_p50_mean", "phases p90/p50"),
    ("tail_samples_per_sec_mean", "tail samples/s"),
    ("unstable_run_count", "unstable runs"),
    ("stability_score", "stability"),
    ("speedup_vs_baseline", "speed-up"),
    ("rank_by_iter_p50", "rank iter"),
    ("rank_by_stability", "rank stability"),
    ("rank_balanced", "rank balanced"),
)
IMBALANCE_COLUMNS = (
    ("rank_iter_spread_p90_ms_mean", "iter spread p90 ms"),
    ("rank_step_spread_p90_ms_mean", "step spread p90 ms"),
    ("rank_spread_points_mean", "points"),
)
STABLE_COLUMNS = (
    ("rank_by_stability", "rank"),
    ("stability_score", "stability"),
    ("iter_p90_over_p50_mean", "phases p90/p50"),
    ("unstable_run_ratio", "unstable share"),
)
SKIPPED_COLUMNS = (("reason", "reason"), ("outcome", "outcome"), ("cause", "cause"), ("action", "what to do"))


def seed_sections(results: CampaignResults, paths: CampaignPaths) -> Iterator[str]:
    """Heading and body of each, in the seeds' order."""
    groups = group_rows(results)
    yield "## Best Config"
    yield _best(results, paths)
    yield from eta_section(results)
    yield "## Group Summary"
    yield from _group_summary(results, groups)
    yield "## Rank Imbalance"
    spread = [row for row in groups if row.get("rank_iter_spread_p90_ms_mean") is not None]
    nothing = "Not measured: it takes two ranks or more that all write steps (`rank_scope: all`)."
    yield _table(spread, "group", IMBALANCE_COLUMNS) if spread else nothing
    yield "## Top Stable Groups"
    stable = rows_by_stability(results)[:TOP_STABLE]
    yield _table(stable, "group", STABLE_COLUMNS) if stable else "No group has timing points to be judged by."
    yield "## Skipped Runs"
    skipped = skipped_rows(results)
    yield _table(skipped, "run", SKIPPED_COLUMNS, paths.skipped_runs.name) if skipped else "None."


def _best(results: CampaignResults, paths: CampaignPaths) -> str:
    best = find_best(results)
    if best is None:
        return f"None. {escape(results.ranking.reason or 'No group could be ranked.')}"
    told = {**(best.spec.settings if best.spec else {}), **best.group.axes}
    rows = [(name, format_cell(value) or NONE) for name, value in told.items()]
    settings = (
        bounded_table(["setting", "value"], rows, where=paths.best_config_json.name, most=MOST_SETTINGS)
        if rows
        else "It has no settings of its own."
    )
    ways = f"Ready to use: `{paths.best_config_env.name}`, `{paths.best_overrides.name}`, `{paths.best_config_json.name}`."
    return f"{escape(best.group.group)}: {escape(results.ranking.reason or 'first in the ranking.')}\n\n{settings}\n\n{ways}"


def _group_summary(results: CampaignResults, groups: Sequence[Row]) -> Iterator[str]:
    if not groups:
        yield "No group has a run that ended."
        return
    yield _table(groups, "group", GROUP_COLUMNS)
    yield (
        "These figures are sums of phases, the mean over the last timing points of each run, and not the wall clock of the ranking. "
        f"Speed-up is against the group '{escape(results.baseline_group)}', where there is one."
    )


def _table(rows: Sequence[Row], name: str, columns: Sequence[tuple[str, str]], where: str = CAMPAIGN_FILES.group_summary.name) -> str:
    """Rows by name; figures to the right."""
    body = [[row[name], *(_cell(row.get(column)) for column, _ in columns)] for row in rows]
    numeric = [number for number, (column, _) in enumerate(columns, start=1) if not any(isinstance(row.get(column), str) for row in rows)]
    return bounded_table([name, *(title for _, title in columns)], body, right=numeric, where=where)


def _cell(value: Cell) -> str:
    if isinstance(value, float):
        return figure(value)
    return NONE if value is None or value == "" else str(value)
