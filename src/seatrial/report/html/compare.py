"""compare_NAME.html: two campaigns side by side, in one self-contained file.

In: the data of both, the result of `seatrial compare` (or why it refuses), and what differs between a run of each. Out: the page.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.core.text import count, join_names
from seatrial.records.caution import Scalar
from seatrial.records.columns import CHART_TABLES, Columns
from seatrial.records.comparison import Comparison, Relation
from seatrial.records.ranking import RECOMMENDED
from seatrial.report.comparison import REACH, facts, relation_text
from seatrial.report.html import vega
from seatrial.report.html.data import Chart, ChartData, PageData, Picks
from seatrial.report.html.group_charts import figure_title
from seatrial.report.html.page import all_charts, assemble, environment, payload, vega_bundle
from seatrial.report.html.sections import NOTHING, SECTIONS, VERDICTS, machine_lines, ranking_tables, title
from seatrial.report.html.vega import Spec
from seatrial.report.run_diff import RunDiff, shown_value
from seatrial.report.text import plain_line
from seatrial.report.view import campaign
from seatrial.report.view.campaign import NOTE_TEXTS
from seatrial.report.view.problems import failures

LETTERS = ("A", "B")
PREFIXED = ("run", "group")
LETTER_COLUMN = "campaign"
MAX_ROWS_OF_A_CAMPAIGN = 150_000
"""Half the rows of the page of one large campaign."""
RUNS_PICKED = 2
"""Runs of each campaign's winner."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class MergedData:
    """Two campaigns as one for the charts: names of groups and runs begin with A or B, and rows have a column `campaign`."""

    drawn: ChartData
    remarks: tuple[str, ...] = ()
    """Sentences about what is not drawn."""


def merge_campaigns(a: ChartData, b: ChartData) -> MergedData:
    """B's rows after A's. Figures in different units have no common scale: no groups are drawn then. Of large campaigns only runs of the
    best groups are drawn, so that the page stays small enough to open."""
    campaigns = dict(zip(LETTERS, (a, b), strict=True))
    kept = {letter: _best_rows(letter, data) for letter, data in campaigns.items()}
    same_unit = a.unit == b.unit or not all("groups" in data.tables for data in campaigns.values())
    names = [name for name in dict.fromkeys([*a.tables, *b.tables]) if same_unit or name != "groups"]
    remarks = [remark for _, remark in kept.values() if remark]
    if not same_unit:
        remarks.append(f"A is ranked by {a.unit} and B by {b.unit}: their figures are not drawn on one scale.")
    merged = ChartData(
        tables={name: _stacked([(letter, tables[name]) for letter, (tables, _) in kept.items() if name in tables]) for name in names},
        picks=_merged_picks(campaigns),
        unit=a.unit,
        higher_is_better=a.higher_is_better,
        stragglers={lettered(letter, run): rank for letter, data in campaigns.items() for run, rank in data.stragglers.items()},
    )
    return MergedData(drawn=merged, remarks=tuple(remarks))


def lettered(letter: str, name: object) -> str:
    """The name of a group or run in the charts of both."""
    return f"{letter} {name}"


def _stacked(parts: Sequence[tuple[str, Columns]]) -> Columns:
    columns = list(dict.fromkeys(name for _, table in parts for name in table))
    stacked: Columns = {name: [] for name in columns}
    stacked[LETTER_COLUMN] = []
    for letter, table in parts:
        rows = _length(table)
        for name in columns:
            values = table.get(name, [None] * rows)
            stacked[name] += [lettered(letter, value) for value in values] if name in PREFIXED else values
        stacked[LETTER_COLUMN] += [letter] * rows
    return stacked


def _best_rows(letter: str, data: ChartData) -> tuple[dict[str, Columns], str]:
    """The tables with as many runs as fit, best groups first; and a sentence where some are left out."""
    drawn = {name: table for name, table in data.tables.items() if name in CHART_TABLES}
    rows_of: dict[Scalar, int] = {}
    for table in drawn.values():
        for run in table["run"]:
            rows_of[run] = rows_of.get(run, 0) + 1
    kept: set[Scalar] = set()
    left = MAX_ROWS_OF_A_CAMPAIGN
    for run in _runs_by_rank(data, rows_of):
        left -= rows_of[run]
        if left < 0 and kept:
            break
        kept.add(run)
    if len(kept) == len(rows_of):
        return data.tables, ""
    reduced = {}
    for name, table in drawn.items():
        row_indices = [index for index, run in enumerate(table["run"]) if run in kept]
        reduced[name] = {column: [values[index] for index in row_indices] for column, values in table.items()}
    remark = f"Of {letter}, only the runs of the best groups are drawn: {len(kept)} of {len(rows_of)}."
    return {**data.tables, **{name: table for name, table in reduced.items() if _length(table)}}, remark


def _runs_by_rank(data: ChartData, rows_of: dict[Scalar, int]) -> list[Scalar]:
    """Runs with rows: initially selected ones first, then by the rank of their group."""
    positions = {str(group): position for position, group in enumerate(data.tables.get("groups", {}).get("group", []))}
    group_of = _groups_of_runs(data)
    return sorted(rows_of, key=lambda run: (run not in data.picks.runs, positions.get(str(group_of.get(run)), len(positions))))


def _length(table: Columns) -> int:
    return len(next(iter(table.values()), []))


def _merged_picks(campaigns: Mapping[str, ChartData]) -> Picks:
    """Runs of both winners; the timeline is A's."""
    runs = [lettered(letter, run) for letter, data in campaigns.items() for run in _of_first_group(data, data.picks.runs)]
    timelines = [lettered(letter, data.picks.timeline) for letter, data in campaigns.items() if data.picks.timeline]
    return Picks(runs=tuple(runs), timeline=next(iter(timelines), ""))


def _of_first_group(data: ChartData, runs: Sequence[str]) -> list[str]:
    group_of = _groups_of_runs(data)
    return [run for run in runs if group_of.get(run) == group_of.get(runs[0])][:RUNS_PICKED]


def _groups_of_runs(data: ChartData) -> dict[Scalar, Scalar]:
    runs = data.tables.get("runs", {})
    return dict(zip(runs.get("run", []), runs.get("group", []), strict=False))


SINGLE_CAMPAIGN_CHARTS = ("ranking", "heat")
COLOURS, SHAPES = (vega.BLUE, vega.ORANGE), ("circle", "diamond")


def compare_charts(data: ChartData) -> list[Chart]:
    """The charts with rows."""
    ranking = merged_ranking_chart(data)
    others = [chart for chart in all_charts(data) if chart.id not in SINGLE_CAMPAIGN_CHARTS]
    return [ranking, *others] if ranking else others


def merged_ranking_chart(data: ChartData) -> Chart | None:
    """Every group of both with its interval, best first; None where no group has a figure."""
    groups = [row for row in vega.table_rows(data.tables.get("groups")) if vega.is_number(row.get("value"))]
    groups.sort(key=lambda row: float(row["value"] or 0), reverse=data.higher_is_better)
    if not groups:
        return None
    drawn = groups[: vega.MAX_NAMES]
    return Chart(
        id="ranking",
        section="ranking",
        title="Both rankings",
        caption="Each group's figure with its 95 % interval, best first, over the steps that count; A and B by colour and shape."
        + vega.best_only_note(len(drawn), len(groups), "groups"),
        tables=("groups",),
        spec=vega.document(
            height=vega.row_height(len(drawn)),
            transform=[
                *vega.lookup_rows("group", [{"group": row["group"], "position": position} for position, row in enumerate(drawn)]),
                vega.interval_text("low", "high", "interval"),
                {"calculate": f"split(datum.note, ',')[0] === '{RECOMMENDED}' ? '{NOTE_TEXTS[RECOMMENDED]}' : datum.note", "as": "note"},
            ],
            encoding={
                "y": vega.named_y("group"),
                "color": _by_campaign("range", COLOURS),
                "tooltip": _ranking_tooltip(str(drawn[0].get("unit") or "")),
            },
            layer=_ranking_layers(data),
        ),
    )


def _by_campaign(kind: str, values: tuple[str, str]) -> Spec:
    return {"field": LETTER_COLUMN, "type": "nominal", "scale": {"domain": list(LETTERS), kind: list(values)}, "legend": vega.legend()}


def _ranking_layers(data: ChartData) -> list[Spec]:
    x = vega.quantity("value", figure_title(data), zero=False)
    shape = _by_campaign("range", SHAPES)
    return [
        {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        {"mark": {"type": "point", "filled": True, "opacity": 1, "size": 100}, "encoding": {"x": x, "shape": shape}},
    ]


def _ranking_tooltip(unit: str) -> list[Spec]:
    shown = [
        vega.text_field("group", "group"),
        vega.text_field("rank", "rank in its campaign"),
        vega.number_field("value", unit or "figure"),
        vega.text_field("interval", "95 % interval"),
    ]
    return vega.tooltip([*shown, vega.text_field("runs", "runs"), vega.text_field("note", "note")])


MARKS = {Relation.FASTER: ("▲", "pass"), Relation.SLOWER: ("▼", "fail"), Relation.SAME: ("=", "pass"), Relation.AMBIGUOUS: ("?", "open")}
NOT_COMPARED = ("NOT COMPARED", "!", "open")
SHOWN_AT_ONCE = 6
RANKED_COLUMNS = ("group", "95 % interval", "p90/p50", "runs", "note")
LONGEST_NAME = 80
HASH_DIGITS = 6
OWN_SECTIONS = (("verdict", "Comparison"), ("campaigns", "Both campaigns"), ("differences", "Differences"))
DRAWN = ("steps", "distribution", "phases", "startup", "timeline", "ranks", "eta")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The result of `seatrial compare A B`, or why it refuses."""

    comparisons: tuple[Comparison, ...] = ()
    note: str = ""
    refused: str = ""


def page_name(out: Path, other: Path) -> str:
    """The page's file in OUT, named after the other campaign. A folder that is not beside OUT gets a few digits of a hash of its path: its
    name alone would not identify it."""
    folder = other.resolve()
    name = re.sub(r"[^\w.-]+", "_", folder.name)[:LONGEST_NAME].strip(".")
    is_neighbour = name and name == folder.name and folder.parent == out.resolve().parent
    more = "" if is_neighbour else f"-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:HASH_DIGITS]}"
    return f"compare_{name or 'other'}{more}.html"


def compare_page(*, a: PageData, b: PageData, names: tuple[str, str], compared: Compared, diff: RunDiff | None) -> str:
    """The whole page. `names` are the folders as the user gave them."""
    both = merge_campaigns(a.drawn, b.drawn)
    charts = compare_charts(both.drawn)
    values = {
        "names": dict(zip(LETTERS, names, strict=True)),
        "word": _word(compared),
        "refused": compared.refused,
        "note": compared.note,
        "comparisons": [_comparison(one) for one in compared.comparisons],
        "shown_at_once": SHOWN_AT_ONCE,
        "campaigns": [_campaign(letter, name, data) for letter, name, data in zip(LETTERS, names, (a, b), strict=True)],
        "diff": _differences(diff) if diff else None,
        **_drawn(charts, both, has_bundle=vega_bundle() is not None),
    }
    parts = {
        "title": plain_line(" and ".join(dict.fromkeys(title(data.results) for data in (a, b)))),
        "main": environment().get_template("compare.html.j2").render(values),
        "payload": payload(both.drawn, charts),
        "sections": [{"id": id, "title": name} for id, name in (*OWN_SECTIONS, *_titles().items())],
    }
    return assemble(parts)


def _drawn(charts: Sequence[Chart], both: MergedData, *, has_bundle: bool) -> Row:
    return {
        "has_bundle": has_bundle,
        "charts": {section: [chart for chart in charts if chart.section == section] for section in ("ranking", *DRAWN)},
        "nothing": {**NOTHING, "ranking": "No group of either campaign has a figure to draw."},
        "drawn": DRAWN,
        "titles": _titles(),
        "remarks": both.remarks,
    }


def _titles() -> dict[str, str]:
    titles = dict(SECTIONS)
    return {section: titles[section] for section in ("ranking", *DRAWN)}


def _word(compared: Compared) -> Row:
    """The heading of the page: the relation, or the number of each."""
    found = [one.relation for one in compared.comparisons]
    if not found:
        word, mark, style = NOT_COMPARED
        return {"text": word, "mark": mark, "style": style}
    conditions = [one.condition for one in compared.comparisons if one.condition]
    mark, style = MARKS[found[0]] if len(set(found)) == 1 and not conditions else ("", "open")
    counts = [f"{found.count(relation)} {relation.value}" for relation in Relation if relation in found]
    text = found[0].value if len(found) == 1 else ", ".join(counts)
    return {"text": ", ".join([text, *conditions[:1]]), "mark": mark, "style": style}


def _comparison(one: Comparison) -> Row:
    mark, style = ("", "open") if one.condition else MARKS[one.relation]
    return {
        "title": f"{one.b} against {one.a}",
        "relation": relation_text(one),
        "mark": mark,
        "style": style,
        "reason": one.reason,
        "facts": [(label, list(parts)) for label, parts in facts(one)],
        "bar": _bar(one),
    }


def _bar(one: Comparison) -> Row | None:
    """Positions in per cent on a scale with a ratio of 1 in its middle; None where there is no ratio."""
    if one.ratio is None or one.ratio.mean <= 0:
        return None
    log_margin = math.log1p(one.margin_pct / 100)
    ends = {name: math.log(end) for name in ("mean", "low", "high") if (end := getattr(one.ratio, name)) and end > 0}
    reach = max(*map(abs, ends.values()), 2 * log_margin, 1e-6) * REACH
    positions = {name: round(50 + 50 * value / reach, 2) for name, value in ends.items()}
    return {"low": None, "high": None, **positions, "margin_low": round(50 - 50 * log_margin / reach, 2), "margin": f"{one.margin_pct:g}"}


def _campaign(letter: str, name: str, data: PageData) -> Row:
    results = data.results
    mark, meaning = VERDICTS[results.verdict.verdict]
    return {
        "letter": letter,
        "name": name,
        "title": title(results),
        "verdict": results.verdict.verdict.value,
        "mark": mark,
        "meaning": meaning,
        "pending": campaign.pending_sentence(results),
        "winners": campaign.winners_sentence(results),
        "ranking": [_compact(table) for table in ranking_tables(results)],
        "machines": machine_lines(results),
        "failures": [f"{join_names(one.runs)}: {one.cause}" for one in failures(results)],
        "cautions": [one.text for one in campaign.shown_cautions(results)],
        "runs": count(len(data.drawn.tables.get("runs", {}).get("run", [])), "run"),
    }


def _compact(table: Row) -> Row:
    """The columns that fit beside another table: group names contain the axes."""
    columns: list[str] = table["columns"]
    figure_at = columns.index("95 % interval") - 1
    kept = [at for at, column in enumerate(columns) if column in RANKED_COLUMNS or at == figure_at]
    return {
        "title": table["title"],
        "columns": [table["titles"][at] for at in kept],
        "rows": [[row["cells"][at] for at in kept] for row in table["rows"]],
        "right": [index for index, at in enumerate(kept) if at in table["right"]],
        "name": kept.index(table["name"]),
    }


def _differences(diff: RunDiff) -> Row:
    """What differs between a run of each campaign."""
    rows = [
        [one.section, f"{one.name}{' *' if one.parts else ''}", shown_value(one.name, one.before), shown_value(one.name, one.after)]
        for one in diff.differences
    ]
    return {
        "runs": [run.attempt.spec.run for run in (diff.before, diff.after)],
        "rows": rows,
        "columns": ["section", "name", *LETTERS],
        "conclusion": diff.conclusion,
        "parts": any(one.parts for one in diff.differences),
    }
