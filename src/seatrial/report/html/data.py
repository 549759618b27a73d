"""The page's data: tables of groups, runs and charts, the runs selected initially, the rows of each chart, and their compact JSON.

In: CampaignResults whose runs have charts. Out: `PageData`. Its tables hold what summary.json and charts/*.csv hold, so that anybody can
draw the same charts, or others, from those files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seatrial.core.text import join_names
from seatrial.records.caution import Scalar
from seatrial.records.columns import AXIS, CHART_TABLES, NON_FINITE_COLUMNS, TIME_COLUMNS, Columns
from seatrial.records.events import STARTUP_PARTS
from seatrial.records.measure import StragglerVerdict
from seatrial.records.outcome import Outcome
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults
from seatrial.records.run_table import KEY_SEPARATOR
from seatrial.records.verdict import CAMPAIGN, CampaignVerdict, Verdict
from seatrial.report.tables import MEAN_ALONE, WITH_INTERVAL, chart_frames, timeline_runs
from seatrial.report.text import axis_level, plain_line
from seatrial.report.view.campaign import Labels, axis_names, labels_of, ranking_values

if TYPE_CHECKING:
    import polars

NOT_IN_CHARTS = ("reason", "runs_text", "axes")
"""Keys of a ranking row that no chart draws; an axis is a column of its own."""
RUN_COLUMNS = ("run", "group", "repeat", "outcome", "value", "unit", "p50_ms", "p90_over_p50", "window", "n")
STARTUP_COLUMNS = ("run", "group", "repeat", "part", "seconds", "window", "n")
STARTUP_WINDOW = "launch to the end of the first step"
RANKED_METRICS = frozenset({*WITH_INTERVAL, *MEAN_ALONE})
MAX_PICKED = 8
"""Runs that can be selected at once."""

Row = dict[str, Scalar]


@dataclass(frozen=True, kw_only=True)
class Picks:
    """The initial selection of runs and axes."""

    runs: tuple[str, ...] = ()
    """Runs in the charts of single runs."""
    timeline: str = ""
    """The run of the timeline and the ranks."""
    x: str = ""
    """Axes of the heat map; '' for the chart's own order."""
    y: str = ""
    by: str = "step"
    """`step` or `time`: what x is in charts over steps."""


@dataclass(frozen=True, kw_only=True)
class ChartData:
    """What charts draw: one campaign, or two that are compared."""

    tables: dict[str, Columns] = field(default_factory=dict)
    """`groups`: one row per ranked group; `runs`: one per current run; `startup`: one per run and part of its start-up; and the tables of
    records.columns with the run's columns first. Tables without rows are left out."""
    picks: Picks = Picks()
    unit: str = ""
    """The unit of the ranked figure."""
    higher_is_better: bool = True
    stragglers: dict[str, int] = field(default_factory=dict)
    """Run → the rank that the verdict names as its straggler."""
    timeline_note: str = ""
    """Sentences for the timeline's caption on GPUs and hosts that are not drawn."""


@dataclass(frozen=True, kw_only=True)
class PageData:
    """One campaign as its page shows it."""

    results: CampaignResults
    drawn: ChartData
    running: tuple[int, int] | None = None
    """Number of finished runs and of all runs, while the campaign runs."""


def page_data(results: CampaignResults, frames: Mapping[str, polars.DataFrame] | None = None) -> PageData:
    """The data of a campaign's page; `frames` are the chart tables, if the caller has them already."""
    return PageData(results=results, drawn=chart_data(results, dict(chart_frames(results)) if frames is None else frames))


def chart_data(results: CampaignResults, frames: Mapping[str, polars.DataFrame]) -> ChartData:
    labels, rows = labels_of(results), results.ranking_rows
    tables = {
        "groups": _groups_table(results, rows),
        "runs": _runs_table(results, labels),
        "startup": _startup_table(results, labels),
        **{name: {series.name: _series_cells(series) for series in frame.iter_columns()} for name, frame in frames.items()},
    }
    tables = {name: table for name, table in tables.items() if table}
    stragglers = [(run.attempt.spec, run.measure.straggler) for run in results.counted if run.measure and run.measure.straggler]
    return ChartData(
        tables=tables,
        picks=default_picks(
            tables,
            groups=[results.ranking.recommended or "", *(row.group for row in rows)],
            baseline=results.baseline_group,
            verdict=results.verdict,
        ),
        unit=unit_of(results),
        higher_is_better=results.ranking.higher_is_better,
        stragglers={
            labels.run(spec): found.rank for spec, found in stragglers if found.verdict is StragglerVerdict.NAMED and found.rank is not None
        },
        timeline_note=_timeline_note(results, labels),
    )


def unit_of(results: CampaignResults) -> str:
    return results.ranking.unit or results.ranking.metric


def _groups_table(results: CampaignResults, rows: Sequence[RankedGroup]) -> Columns:
    """Main lane first, each in its order; an axis is a column `axis_NAME`."""
    values = ranking_values(results)
    cells = [{**row, "unit": unit_of(results), **{f"{AXIS}{name}": level for name, level in row["axes"].items()}} for row in values]
    columns = [name for name in (*values[0], "unit") if name not in NOT_IN_CHARTS] if values else []
    return _columns(cells, (*columns, *(f"{AXIS}{name}" for name in axis_names(rows))))


def _runs_table(results: CampaignResults, labels: Labels) -> Columns:
    """Current runs; only counted ones have figures."""
    counted = {run.attempt.folder for run in results.counted}
    metric = results.ranking.metric
    rows = []
    for run in results.runs:
        if not run.attempt.current:
            continue
        measure = run.measure if run.attempt.folder in counted else None
        window = measure.window if measure else None
        rows.append(
            {
                "run": labels.run(run.attempt.spec),
                "group": labels.group(run.attempt.spec),
                "repeat": run.attempt.spec.repeat,
                "outcome": run.outcome.value if run.outcome else "running",
                "value": getattr(measure, metric, None) if metric in RANKED_METRICS else None,
                "unit": unit_of(results),
                "p50_ms": measure.wall_p50_ms if measure else None,
                "p90_over_p50": measure.wall_p90_over_p50 if measure else None,
                "window": window.text if window else "",
                "n": window.n if window else None,
            }
        )
    return _columns(rows, RUN_COLUMNS)


def _startup_table(results: CampaignResults, labels: Labels) -> Columns:
    """One row per run and part; n is 1, as a run starts once."""
    rows = [
        dict(zip(STARTUP_COLUMNS, (*labels.run_key(run.attempt.spec), part, run.measure.startup[part], STARTUP_WINDOW, 1), strict=True))
        for run in results.counted
        if run.measure
        for part in STARTUP_PARTS
        if part in run.measure.startup
    ]
    return _columns(rows, STARTUP_COLUMNS)


def _timeline_note(results: CampaignResults, labels: Labels) -> str:
    """Sentences about GPUs and hosts that are not all drawn, and in which runs."""
    in_time = timeline_runs(results)
    current = [run for run in results.runs if run.attempt.current]
    not_all: dict[tuple[int, int, str], list[str]] = {}
    for run in current:
        if run.charts is None:
            continue
        gpus_drawn = run.charts.gpus_drawn if run.attempt.folder in in_time else run.charts.gpus
        for drawn, there, what in ((gpus_drawn, run.charts.gpus, "GPUs"), (run.charts.hosts_drawn, run.charts.hosts, "hosts")):
            if drawn < there:
                not_all.setdefault((drawn, there, what), []).append(labels.run(run.attempt.spec))
    sentences = []
    for drawn, there, what in sorted(not_all, key=lambda key: key[2] == "hosts"):
        names = not_all[drawn, there, what]
        sentences.append(f" {drawn} of {there} {what} drawn{'' if len(names) == len(current) else f' in {join_names(names)}'}.")
    return "".join(sentences)


def _columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Columns:
    return {name: [_scalar(row.get(name)) for row in rows] for name in names} if rows else {}


def _scalar(value: Any) -> Scalar:
    """The value as a cell; None for other types and for numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) else None


def _series_cells(series: polars.Series) -> list[Scalar]:
    """Cells of a column: missing text is empty, and a number that is not finite is None, except for a loss."""
    import polars as pl

    if series.dtype == pl.String:
        return series.fill_null("").to_list()
    if series.dtype == pl.Boolean:
        return series.fill_null(False).to_list()
    if series.dtype.is_float() and series.name not in NON_FINITE_COLUMNS:
        return series.set(~series.is_finite(), None).to_list()
    return series.to_list()


REPEATS_EACH = 2
SUSPECTS = 2
DRAWN_BY_RUN = ("steps", "step_times", "phases", "ranks", "eta")
TABLES_WITH_TIMELINE = ("telemetry", "spans", "steps", "ranks")
SHOWN_IN_TIME = ("straggler:", "leak:", "stability:", "steady_state:")
"""Prefixes of the ids of findings whose evidence is visible in the timeline or the ranks."""

Runs = dict[str, list[str]]
"""Group → its runs."""


def default_picks(tables: Mapping[str, Columns], *, groups: Sequence[str], baseline: str, verdict: CampaignVerdict) -> Picks:
    """All runs if they are few, else those of the winner, the baseline and findings. `groups` are in the order of the ranking, the winner
    first. The timeline shows the first run that a finding names, as its evidence."""
    by_run, with_timeline = (_by_rank(_runs_of(tables, names), groups) for names in (DRAWN_BY_RUN, TABLES_WITH_TIMELINE))
    runs = _all_runs(by_run)
    if len(runs) > MAX_PICKED:
        ok = _ok_runs(tables, by_run)
        first, *others = ok
        compared = [first, *([baseline] if baseline in others else others[-1:])]
        runs = [run for group in compared for run in ok[group][:REPEATS_EACH]]
        runs += [run for run in _suspects(verdict, by_run) if run not in runs][:SUSPECTS]
    timeline = [*_suspects(verdict, with_timeline), *_all_runs(_ok_runs(tables, with_timeline))]
    return Picks(runs=tuple(runs), timeline=next(iter(timeline), ""))


def _ok_runs(tables: Mapping[str, Columns], runs: Runs) -> Runs:
    """Runs that ended ok; all of them where none did."""
    known = tables.get("runs", {})
    ok = {run for run, outcome in zip(known.get("run", ()), known.get("outcome", ()), strict=False) if outcome == Outcome.OK.value}
    left = {group: [run for run in names if run in ok] for group, names in runs.items()}
    return {group: names for group, names in left.items() if names} or runs


def _suspects(verdict: CampaignVerdict, runs: Runs) -> list[str]:
    """Runs that failed findings name first, or the first run of the named group; each once."""
    every = _all_runs(runs)
    found = (_run_of(subject, runs, every) for subject in _suspect_subjects(verdict))
    return list(dict.fromkeys(run for run in found if run))


def _run_of(subject: str, runs: Runs, every: Sequence[str]) -> str | None:
    """The run of an evidence, which has a run's own name; here digits follow a name that two configurations use."""
    if subject in runs:
        return runs[subject][0]
    return next((run for run in every if run == subject or run.startswith(f"{subject}{KEY_SEPARATOR}")), None)


def _suspect_subjects(verdict: CampaignVerdict) -> list[str]:
    """The first subject of each failed finding."""
    shown = [finding for finding in verdict.statements if finding.id.startswith(SHOWN_IN_TIME)]
    # Evidence over the whole campaign is in the order of the runs; otherwise the worst comes first.
    shown += [finding for finding in verdict.findings if finding.criterion is None or finding.criterion.scope != CAMPAIGN]
    failed = [[one.subject for one in finding.evidence if one.subject] for finding in shown if finding.verdict is Verdict.FAIL]
    return [subjects[0] for subjects in failed if subjects]


def _runs_of(tables: Mapping[str, Columns], names: Iterable[str]) -> Runs:
    """The runs in any of the tables, in the tables' order."""
    found: Runs = {}
    pairs = (
        pair for name in names for pair in zip(tables.get(name, {}).get("run", ()), tables.get(name, {}).get("group", ()), strict=False)
    )
    for run, group in dict.fromkeys(pairs):
        found.setdefault(str(group), []).append(str(run))
    return found


def _by_rank(runs: Runs, groups: Sequence[str]) -> Runs:
    """Sorted by `groups`, then those without a rank."""
    return {group: runs[group] for group in dict.fromkeys((*groups, *runs)) if group in runs}


def _all_runs(runs: Runs) -> list[str]:
    return [run for names in runs.values() for run in names]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A Vega-Lite document without its rows, and which rows it draws: they are added as the data set `rows` when it is drawn."""

    id: str
    """Stable: `chart-ID` in the page, `ID.png` among the pictures."""
    section: str
    """The section of the page it is in."""
    title: str
    caption: str
    """One or two sentences: what is drawn, over which steps."""
    tables: tuple[str, ...]
    """Names in ChartData.tables; where there are several, a row has its table's name as `kind`."""
    spec: dict[str, Any]
    """Its data are `{"name": "rows"}`; text and lines are `currentColor`, so that it is readable on light and on dark."""
    picks: str = "all"
    """Whose rows: `all`; `runs` (those selected in the page); `run` (the one chosen for the timeline)."""
    axes: tuple[str, ...] = ()
    """Axes that can be selected for the fields `x` and `y`; initially the first two. A missing level is the text `none`."""
    x_by: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What can be selected for the field `x` → its column and title; initially the first. Titles `{x}` and `{y}` are replaced by the
    titles of the choice."""


def rows_for(chart: Chart, data: ChartData) -> list[Row]:
    """The rows of a chart in a picture. The page's draw.js applies the same fields of `Chart` to the user's selection: pictures are drawn
    without a browser, and tests/browser compares the two."""
    picks = data.picks
    runs = {"all": None, "runs": set(map(plain_line, picks.runs)), "run": {plain_line(picks.timeline)}}[chart.picks]
    rows = []
    for name in chart.tables:
        table = data.tables.get(name, {})
        columns = {plain_line(column): decoded_cells(column, values, digits_of(name)) for column, values in table.items()}
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            if runs is None or row.get("run") in runs:
                rows.append({**row, "kind": name} if len(chart.tables) > 1 else row)
    chosen = (
        {"x": chart.x_by[picks.by][0]} if chart.x_by else {at: plain_line(AXIS + axis) for at, axis in chosen_axes(chart, picks).items()}
    )
    for at, column in chosen.items():
        for row in rows:
            row[at] = _level(row.get(column)) if chart.axes else row.get(column)
    return rows


def drawn_spec(chart: Chart, data: ChartData) -> dict[str, Any]:
    """The chart's document with its rows; titles `{x}` and `{y}` are replaced."""
    titles = {"{x}": chart.x_by[data.picks.by][1]} if chart.x_by else {}
    titles |= {f"{{{at}}}": plain_line(axis) for at, axis in chosen_axes(chart, data.picks).items()}
    spec: dict[str, Any] = _with_titles(chart.spec, titles)
    return {**spec, "datasets": {"rows": rows_for(chart, data)}}


def chosen_axes(chart: Chart, picks: Picks) -> dict[str, str]:
    """Which of the chart's axes is x and which is y."""
    return {at: getattr(picks, at) or axis for at, axis in zip("xy", chart.axes, strict=False)}


def _level(value: Scalar) -> Scalar:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else value


def _with_titles(part: Any, titles: Mapping[str, str], key: str = "") -> Any:
    """Titles alone: a run may well be named `{x}`."""
    if isinstance(part, dict):
        return {name: _with_titles(value, titles, name) for name, value in part.items()}
    if isinstance(part, list):
        return [_with_titles(value, titles, key) for value in part]
    return titles.get(part, part) if key == "title" and isinstance(part, str) else part


DIGITS = 5
FIGURE_DIGITS = 9
"""Digits in the small tables of groups and runs: the page shows four digits, and rounding twice may change the fourth."""
TIME_DECIMALS = 3
WORTH_IT = 3
"""Run-length encoding takes two numbers per run: used where there are at most a third as many runs as values."""
# In JSON these only occur inside strings, where an escape means the same; only with `<` can text leave a script element.
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_ESCAPES = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def script_safe_json(value: Any) -> str:
    """`value` as JSON in which no string can become markup."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def encode_tables(tables: dict[str, Columns]) -> dict[str, Any]:
    """Name → `{"rows": N, "columns": {NAME: COLUMN}}`, a column as `encode_column` gives it."""
    encoded = {}
    for name, table in tables.items():
        columns = {plain_line(column): encode_column(column, values, digits_of(name)) for column, values in table.items()}
        encoded[name] = {"rows": len(next(iter(table.values()))), "columns": columns}
    return encoded


def digits_of(table: str) -> int:
    """Significant digits of its numbers."""
    return DIGITS if table in CHART_TABLES else FIGURE_DIGITS


def encode_column(name: str, values: Sequence[Any], digits: int = DIGITS) -> dict[str, Any]:
    """`categories` for text and booleans; `values`, or `runs`: value, count, value, count, …"""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {bool}:
        return {"categories": [False, True], **_run_length(_numbers(name, values, digits))}
    # Booleans among numbers would become 1 and 0: such a column is text.
    if kinds & {str, bool}:
        codes, categories = _dictionary(values)
        return {"categories": categories, **_run_length(codes)}
    return _run_length(_numbers(name, values, digits))


def decoded_cells(name: str, values: Sequence[Any], digits: int = DIGITS) -> list[Any]:
    """The cells that decode.js gets from the column."""
    column = encode_column(name, values, digits)
    pairs = column.get("runs", ())
    decoded = column["values"] if "values" in column else [value for at in range(0, len(pairs), 2) for value in [pairs[at]] * pairs[at + 1]]
    categories = column.get("categories")
    return decoded if categories is None else [None if code is None else categories[code] for code in decoded]


def _dictionary(values: Sequence[Any]) -> tuple[polars.Series, list[str]]:
    """A code per row and the text of each code; None stays None."""
    import polars as pl

    texts = [None if value is None else value if type(value) is str else axis_level(value) for value in values]
    code_of: dict[str | None, int | None] = {text: at for at, text in enumerate(text for text in dict.fromkeys(texts) if text is not None)}
    categories = [plain_line(text) for text in code_of if text is not None]
    code_of[None] = None
    return pl.Series([code_of[text] for text in texts], dtype=pl.Int64), categories


def _numbers(name: str, values: Sequence[Any], digits: int) -> polars.Series:
    import polars as pl

    series = pl.Series(values, strict=False)
    if not series.dtype.is_float():
        return series.cast(pl.Int64, strict=False)
    rounded = series if name.startswith(AXIS) else series.round(TIME_DECIMALS) if name in TIME_COLUMNS else series.round_sig_figs(digits)
    # 4.0 is written as 4 where the whole column can be.
    return rounded.cast(pl.Int64) if _is_whole(rounded) else rounded


def _is_whole(series: polars.Series) -> bool:
    # `max` ignores NaN, and polars' `==` holds for two of them.
    if not series.is_finite().all():
        return False
    largest = series.abs().max()
    return isinstance(largest, float) and largest < 2**53 and bool((series == series.round(0)).all())


def _cells(series: polars.Series) -> list[Any]:
    """JSON has no NaN and no infinity: they are text."""
    cells = series.to_list()
    if not series.dtype.is_float() or series.is_finite().all():
        return cells
    return [value if value is None or math.isfinite(value) else _NON_FINITE[str(value)] for value in cells]


def _run_length(series: polars.Series) -> dict[str, Any]:
    stretches = series.rle()
    if WORTH_IT * len(stretches) > len(series):
        return {"values": _cells(series)}
    both = zip(_cells(stretches.struct.field("value")), stretches.struct.field("len").to_list(), strict=True)
    return {"runs": [item for pair in both for item in pair]}
