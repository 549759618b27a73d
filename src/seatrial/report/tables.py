"""The report's tables: per_run_metrics.csv, group_summary.csv, ranked_groups.csv, skipped_runs.tsv and charts/*.csv; typed frames for
export.

In: CampaignResults. Out: rows as dicts of plain values, polars frames, and files. A table without rows is not written; that of an earlier
report is removed.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.core.files import atomic_write
from seatrial.core.paths import CampaignPaths
from seatrial.core.tables import format_cell, quote_formula, write_table
from seatrial.records.caution import Scalar
from seatrial.records.columns import (
    AXIS,
    BOOLEAN_COLUMNS,
    CHART_TABLES,
    GROUP_OURS,
    GROUP_STAGE1,
    INTEGER_COLUMNS,
    NAME_COLUMNS,
    PER_RUN_OURS,
    PER_RUN_STAGE1,
    RUN_KEY_COLUMNS,
    SKIPPED,
    SPANS,
    STAGE1_SETTINGS,
    TELEMETRY,
    TIME_COLUMNS,
    Columns,
)
from seatrial.records.measure import GroupSummary
from seatrial.records.outcome import Outcome
from seatrial.records.plan import SENTINEL
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.run_table import axis_cells, run_cells
from seatrial.records.verdict import Verdict
from seatrial.report.view.campaign import labels_of

if TYPE_CHECKING:
    import polars as pl


Row = dict[str, Scalar]

# Estimates with their interval, and those with only their mean: metric → column.
WITH_INTERVAL = {"samples_per_s": "wall_samples_per_sec", "tokens_per_s": "wall_tokens_per_sec", "steps_per_s": "wall_steps_per_sec"}
MEAN_ALONE = {
    "wall_p50_ms": "wall_iter_p50_ms",
    "wall_p90_over_p50": "wall_p90_over_p50",
    "startup_s": "startup_sec",
    "duration_s": "duration_sec",
}


def axis_columns(results: CampaignResults) -> list[str]:
    """`axis_NAME` for every axis without a stage-1 column, in the order of their first occurrence."""
    run_axes = (run.attempt.spec.axes for run in results.runs)
    names = dict.fromkeys(name for axes in (*(group.axes for group in results.groups), *run_axes) for name in axes)
    return [f"{AXIS}{name}" for name in names if name not in STAGE1_SETTINGS]


def per_run_columns(results: CampaignResults) -> list[str]:
    return [*PER_RUN_STAGE1, *PER_RUN_OURS, *axis_columns(results)]


def group_columns(results: CampaignResults) -> list[str]:
    return [*GROUP_STAGE1, *GROUP_OURS, *axis_columns(results)]


def per_run_rows(results: CampaignResults) -> list[Row]:
    columns = per_run_columns(results)
    labels = labels_of(results)
    rows = [{**run_cells(run.attempt, run.measure), "group": labels.group(run.attempt.spec)} for run in results.counted]
    return [_in_order(cells, columns) for cells in rows]


def group_rows(results: CampaignResults) -> list[Row]:
    """Every group, in the campaign's order."""
    by_name = {ranked.group: ranked for ranked in (*results.ranking.groups, *results.ranking.off_lane)}
    columns = group_columns(results)
    return [_in_order(_group_cells(group, by_name.get(group.group)), columns) for group in results.groups]


def ranked_rows(results: CampaignResults) -> list[Row]:
    """The main lane in its order, then the groups off it, then those without a rank; sentinels are not ranked."""
    by_name = {row["group"]: row for row in group_rows(results)}
    order = [ranked.group for ranked in (*results.ranking.groups, *results.ranking.off_lane) if ranked.group in by_name]
    rest = [group.group for group in results.groups if group.group not in order and group.mode != SENTINEL]
    return [by_name[name] for name in (*order, *rest)]


def rows_by_stability(results: CampaignResults) -> list[Row]:
    """Groups with a rank by stability, in stage 1's order."""
    placed = [(rank, row) for row in group_rows(results) if isinstance(rank := row["rank_by_stability"], int)]
    return [row for _, row in sorted(placed, key=lambda pair: pair[0])]


def skipped_rows(results: CampaignResults) -> list[Row]:
    """Current attempts that ended without timing, with stage 1's reason."""
    labels = labels_of(results)
    rows = []
    for run in results.runs:
        reason = _skip_reason(run, results.ranking.metric)
        if run.attempt.current and run.attempt.outcome and reason:
            cells = {
                **run_cells(run.attempt, run.measure),
                "group": labels.group(run.attempt.spec),
                "reason": reason,
                "outcome": run.attempt.outcome.outcome.value,
                "cause": run.attempt.outcome.cause.value,
                "action": run.attempt.outcome.action,
            }
            rows.append(_in_order(cells, SKIPPED))
    return rows


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


def _group_cells(group: GroupSummary, ranked: RankedGroup | None) -> Row:
    cells: Row = {
        **{name: value for name, value in group.axes.items() if name in STAGE1_SETTINGS},
        **{name: value for name, value in group.stage1.items() if value is not None},
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
    return {**cells, **_figure_cells(group), **_stability_cells(group), **_ranking_cells(ranked)}


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


def _ranking_cells(ranked: RankedGroup | None) -> Row:
    if ranked is None:
        return {}
    cells: Row = {"rank": ranked.rank, "tied_with_best": ranked.tied, "can_win": ranked.can_win, "reason": ranked.reason}
    cells["confounded"] = ranked.confounded or None
    if ranked.ratio:
        cells |= {"ratio_to_best": ranked.ratio.mean, "ratio_low": ranked.ratio.low, "ratio_high": ranked.ratio.high}
    return cells


def _in_order(cells: Row, columns: Iterable[str]) -> Row:
    return {column: cells.get(column) for column in columns}


def write_tables(results: CampaignResults, paths: CampaignPaths) -> None:
    """Write the four tables, each completely or not at all."""
    _write_or_remove(paths.per_run_metrics, per_run_columns(results), per_run_rows(results))
    _write_or_remove(paths.group_summary, group_columns(results), group_rows(results))
    _write_or_remove(paths.ranked_groups, group_columns(results), ranked_rows(results))
    _write_or_remove(paths.skipped_runs, SKIPPED, skipped_rows(results), delimiter="\t")


def _write_or_remove(path: Path, columns: Sequence[str], rows: Sequence[Row], delimiter: str = ",") -> None:
    if rows:
        write_table(path, columns, rows, delimiter)
    else:
        path.unlink(missing_ok=True)


FORMATS = ("csv", "parquet")
Schema = Mapping[str, Any]

# Names of columns of numbers: the type of a column must not depend on whether this campaign has values for it.
_NUMBER_NAME = re.compile(
    r"_(?:ms|s|sec|w|j|c|mhz|mib|kib|pct|per_sec|p50|p90|ratio|mean|std|min|max|low|high|count|rows|points|step|steps|fraction|loss|runs)$"
    r"|_over_p50|_score$|^rank|^speedup"
)


def typed_frame(rows: Sequence[Mapping[str, Scalar]], columns: Sequence[str]) -> pl.DataFrame:
    """The rows as a frame: numbers, booleans, and everything else as text; None without a value."""
    import polars as pl

    data = {name: [_none_if_empty(row.get(name)) for row in rows] for name in columns}
    schema = {name: _type_of(name, values) for name, values in data.items()}
    for name, values in data.items():
        if schema[name] == pl.String:
            data[name] = [None if value is None else format_cell(value) for value in values]
    return pl.DataFrame(data, schema=schema, strict=False)


def _type_of(name: str, values: Iterable[Scalar]) -> Any:
    import polars as pl

    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pl.Float64 if _NUMBER_NAME.search(name) else pl.String
    if kinds == {bool}:
        return pl.Boolean
    if kinds == {int}:
        return pl.Int64
    return pl.Float64 if kinds <= {int, float} else pl.String


def _none_if_empty(value: Scalar) -> Scalar:
    """None for cells that a table leaves empty: empty text, a number that is not finite."""
    return None if value == "" or (isinstance(value, float) and not math.isfinite(value)) else value


def write_frames(path: Path, frames: Iterable[pl.DataFrame], schema: Schema, form: str) -> int:
    """Write `path` completely, in `form`, and return its number of rows."""
    counted = _Counted(frames)
    with atomic_write(path) as temporary:
        if form == "parquet":
            _write_parquet(temporary, counted, schema)
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as target:
                target.writelines(csv_parts(counted, schema))
    return counted.rows


def csv_parts(frames: Iterable[pl.DataFrame], schema: Schema) -> Iterator[str]:
    """The header, then each frame's lines; numbers have no exponent, and an empty cell means no value."""
    import polars as pl

    yield pl.DataFrame(schema={quote_formula(name): kind for name, kind in schema.items()}).write_csv()
    for frame in frames:
        yield _for_spreadsheets(frame).write_csv(include_header=False, float_scientific=False)


def _for_spreadsheets(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with text that a spreadsheet would take for a formula in quotes. Most columns have few texts, and none of that kind."""
    import polars as pl

    texts = {
        name: {text: quoted for text in frame[name].drop_nulls().unique() if (quoted := quote_formula(text)) != text}
        for name, kind in frame.schema.items()
        if kind == pl.String
    }
    return frame.with_columns([pl.col(name).replace(quoted) for name, quoted in texts.items() if quoted])


def _write_parquet(path: Path, frames: Iterable[pl.DataFrame], schema: Schema) -> None:
    from polars.io.plugins import register_io_source

    def source(with_columns: Any, predicate: Any, n_rows: int | None, batch_size: int | None) -> Iterator[pl.DataFrame]:
        yield from frames

    register_io_source(source, schema=dict(schema)).sink_parquet(path)


class _Counted:
    """Frames, and the number of rows they had so far."""

    def __init__(self, frames: Iterable[pl.DataFrame]) -> None:
        self._frames, self.rows = frames, 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for frame in self._frames:
            self.rows += len(frame)
            yield frame


SAMPLED_TABLES = (TELEMETRY, SPANS)
FEW_RUNS = 500
MAX_ROWS, MIN_ROWS = 270_000, 20_000
TAKEN_BY_A_RUN = 50
"""What a run's steps, quantiles and ranks take, in rows of both tables; a row takes some 18 bytes of the page. A thousand runs with 8
points per metric and typical spans fit; a page of five thousand is below 10 MB."""


def timeline_runs(results: CampaignResults) -> frozenset[str]:
    """Folders of the attempts whose timeline is kept."""
    drawn = [run for run in results.runs if _rows(run)]
    if len(drawn) <= FEW_RUNS:
        return frozenset(run.attempt.folder for run in drawn)
    return frozenset(run.attempt.folder for run in _chosen(_by_level(results, drawn), timeline_row_budget(len(drawn))))


def timeline_row_budget(runs: int) -> int:
    """The most timeline rows that a page of `runs` runs may have."""
    return max(MIN_ROWS, MAX_ROWS - TAKEN_BY_A_RUN * runs)


def num_runs_with_timeline(results: CampaignResults) -> int:
    """Number of runs with samples or spans, kept or not."""
    return sum(_rows(run) > 0 for run in results.runs)


def _rows(run: MeasuredRun) -> int:
    """Rows of its timeline; 0 for an attempt that is not current."""
    if not run.attempt.current or run.charts is None:
        return 0
    return sum(len(next(iter(table.values()))) for name in SAMPLED_TABLES if (table := run.charts.tables.get(name)))


def _chosen(levels: list[list[MeasuredRun]], room: int) -> Iterator[MeasuredRun]:
    for level in levels:
        needed = sum(map(_rows, level))
        fitting = min(len(level), len(level) * room // needed)
        for at in range(fitting):
            run = level[at * len(level) // fitting]
            room -= _rows(run)
            # Runs differ in length: as many as fit by their mean may be too many.
            if room < 0:
                return
            yield run
        if fitting < len(level):
            return


def _by_level(results: CampaignResults, runs: list[MeasuredRun]) -> list[list[MeasuredRun]]:
    """The runs, grouped by how likely a reader is to need them."""
    labels, named, seen = labels_of(results), named_in_findings(results), Counter[str]()
    levels: dict[int, list[MeasuredRun]] = {}
    for run in runs:
        label, group = labels.run(run.attempt.spec), labels.group(run.attempt.spec)
        level = 0 if group == results.ranking.recommended else 1 if named & {label, group, run.attempt.spec.run} else 2 + seen[group]
        seen[group] += 1
        levels.setdefault(level, []).append(run)
    return [levels[level] for level in sorted(levels)]


def named_in_findings(results: CampaignResults) -> set[str]:
    """The subjects of failed findings."""
    found = (*results.verdict.findings, *results.verdict.statements)
    return {evidence.subject for finding in found if finding.verdict is Verdict.FAIL for evidence in finding.evidence}


DIGITS = 6
SECONDS_DECIMALS = 3

Part = tuple[tuple[Scalar, ...], Columns]
"""The cells of RUN_KEY_COLUMNS, and one of that run's tables."""


def write_chart_tables(frames: Mapping[str, pl.DataFrame], paths: CampaignPaths) -> None:
    """Write every table that has rows, and remove the others."""
    for name in CHART_TABLES:
        path = paths.chart_table(name)
        if name not in frames:
            path.unlink(missing_ok=True)
            continue
        with atomic_write(path) as temporary:
            _for_spreadsheets(frames[name]).write_csv(temporary, float_scientific=False)
    # The folder stays where it holds pictures, or where the disk fails.
    with contextlib.suppress(OSError):
        paths.charts.rmdir()


def chart_frames(results: CampaignResults) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables that have rows, by name."""
    labels = labels_of(results)
    in_time = timeline_runs(results)
    drawn = [
        (labels.run_key(run.attempt.spec), run.charts.tables, run.attempt.folder in in_time)
        for run in results.runs
        if run.attempt.current and run.charts is not None
    ]
    for name, columns in CHART_TABLES.items():
        parts = [
            (run_key, tables[name])
            for run_key, tables, has_timeline in drawn
            if tables.get(name) and (has_timeline or name not in SAMPLED_TABLES)
        ]
        if parts:
            yield name, _frame(parts, columns)


def _frame(parts: Sequence[Part], columns: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    lengths = [len(table[columns[0]]) for _, table in parts]
    keys = [[key] * length for (key, _), length in zip(parts, lengths, strict=True)]
    series = [_series(name, [key[at] for repeated in keys for key in repeated]) for at, name in enumerate(RUN_KEY_COLUMNS)]
    return pl.DataFrame([*series, *(_series(name, chain.from_iterable([table[name] for _, table in parts])) for name in columns)])


def _series(name: str, values: Iterable[Scalar]) -> pl.Series:
    import polars as pl

    if name in NAME_COLUMNS:
        return pl.Series(name, _texts(values), dtype=pl.String)
    if name in INTEGER_COLUMNS or name in BOOLEAN_COLUMNS:
        return pl.Series(name, list(values), dtype=pl.Int64 if name in INTEGER_COLUMNS else pl.Boolean)
    numbers = pl.Series(name, list(values), dtype=pl.Float64, strict=False)
    return numbers.round(SECONDS_DECIMALS) if name in TIME_COLUMNS else numbers.round_sig_figs(DIGITS)


def _texts(values: Iterable[Any]) -> list[str | None]:
    """Texts as in every table: one line each, None for an empty one. Each is formatted once: there are many rows and few texts."""
    shown: dict[Any, str | None] = {}
    cells = list(values)
    for value in set(cells):
        shown[value] = (format_cell(value) or None) if value is not None else None
    return [shown[value] for value in cells]
