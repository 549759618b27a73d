"""compare_NAME.html: two campaigns side by side, one file that needs no other.

In: the data of both, what `seatrial compare` says of them (or why it refuses), and what differs between a run of each. Out: the page. On
top stands the comparison, then rankings, verdicts and machines in two columns, the differences, and the charts with the runs of both.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial import files
from seatrial.records.comparison import Comparison, Relation
from seatrial.report.comparison_text import APART, REACH, facts
from seatrial.report.html import failures, loose, machine, ranking
from seatrial.report.html.both_sides import SIDES, Both, both_sides
from seatrial.report.html.chart import Chart
from seatrial.report.html.content import NOTHING, SECTIONS, VERDICT_WORDS, title
from seatrial.report.html.page_data import PageData
from seatrial.report.html.shown_text import plain
from seatrial.report.run_diff import RunDiff
from seatrial.report.run_diff_text import shown_value
from seatrial.wording import count

MARKS = {Relation.FASTER: ("▲", "pass"), Relation.SLOWER: ("▼", "fail"), Relation.SAME: ("=", "pass"), Relation.AMBIGUOUS: ("?", "open")}
NOT_COMPARED = ("NOT COMPARED", "!", "open")
SHOWN_AT_ONCE = 6
RANKED_COLUMNS = ("group", "95 % interval", "p90/p50", "runs", "note")
LONGEST_NAME = 80
APART_BY = 6
OWN_SECTIONS = (("verdict", "Comparison"), ("sides", "Both"), ("differences", "What differs"))
DRAWN = ("steps", "distribution", "phases", "startup", "timeline", "ranks", "eta")

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What `seatrial compare A B` says, or why it does not."""

    comparisons: tuple[Comparison, ...] = ()
    note: str = ""
    refused: str = ""


def page_name(out: Path, other: Path) -> str:
    """The page's file in OUT, named after the campaign that is compared with. Only the neighbours of OUT are told apart by their names
    alone: m1/out and m2/out have a few letters more, always the same for the same folder."""
    folder = other.resolve()
    name = re.sub(r"[^\w.-]+", "_", folder.name)[:LONGEST_NAME].strip(".")
    is_told_apart = name and name == folder.name and folder.parent == out.resolve().parent
    more = "" if is_told_apart else f"-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:APART_BY]}"
    return f"compare_{name or 'other'}{more}.html"


def write_compare_page(path: Path, *, a: PageData, b: PageData, names: tuple[str, str], compared: Compared, diff: RunDiff | None) -> None:
    """Make the page anew."""
    files.write_text(path, compare_page(a=a, b=b, names=names, compared=compared, diff=diff))


def compare_page(*, a: PageData, b: PageData, names: tuple[str, str], compared: Compared, diff: RunDiff | None) -> str:
    """The whole page. `names` is what the two were called by whoever asked."""
    from seatrial.report.html.compare_charts import compare_charts
    from seatrial.report.html.document import assembled, environment
    from seatrial.report.html.vega_bundle import vega_bundle

    both = both_sides(a, b)
    charts = compare_charts(both.data)
    said = {
        "names": dict(zip(SIDES, names, strict=True)),
        "word": _word(compared),
        "refused": compared.refused,
        "note": compared.note,
        "comparisons": [_comparison(one) for one in compared.comparisons],
        "shown_at_once": SHOWN_AT_ONCE,
        "sides": [_side(side, name, data) for side, name, data in zip(SIDES, names, (a, b), strict=True)],
        "diff": _differences(diff) if diff else None,
        **_drawn(charts, both, has_bundle=vega_bundle() is not None),
    }
    parts = {
        "title": plain(" and ".join(dict.fromkeys(title(data.summary) for data in (a, b)))),
        "main": environment().get_template("compare.html.j2").render(said),
        "payload": _payload(both, charts),
        "sections": [{"id": id, "title": name} for id, name in (*OWN_SECTIONS, *_titles().items())],
    }
    return assembled(parts)


def _drawn(charts: Sequence[Chart], both: Both, *, has_bundle: bool) -> Row:
    return {
        "has_bundle": has_bundle,
        "charts": {section: [chart for chart in charts if chart.section == section] for section in ("ranking", *DRAWN)},
        "nothing": {**NOTHING, "ranking": "No group of either has a figure to draw."},
        "drawn": DRAWN,
        "titles": _titles(),
        "remarks": both.remarks,
    }


def _titles() -> dict[str, str]:
    titles = dict(SECTIONS)
    return {section: titles[section] for section in ("ranking", *DRAWN)}


def _payload(both: Both, charts: Sequence[Chart]) -> Row:
    from seatrial.report.html.document import payload

    picks = {"runs": [plain(run) for run in both.picks["runs"]], "timeline": plain(both.picks["timeline"])}
    return {**payload(both.data, charts), "picks": picks}


def _word(compared: Compared) -> Row:
    """The largest word of the page."""
    found = [one.relation for one in compared.comparisons]
    if not found:
        word, mark, style = NOT_COMPARED
        return {"text": word, "mark": mark, "style": style}
    mark, style = MARKS[found[0]] if len(set(found)) == 1 else ("", "open")
    counts = [f"{found.count(relation)} {relation.value}" for relation in Relation if relation in found]
    return {"text": found[0].value if len(found) == 1 else ", ".join(counts), "mark": mark, "style": style}


def _comparison(one: Comparison) -> Row:
    mark, style = MARKS[one.relation]
    return {
        "sides": f"{one.b} against {one.a}",
        "relation": one.relation.value,
        "mark": mark,
        "style": style,
        "reason": one.reason,
        "facts": [(label, text.split(APART)) for label, text in facts(one)],
        "bar": _bar(one),
    }


def _bar(one: Comparison) -> Row | None:
    """Where on a scale with a ratio of 1 in its middle everything lies, in per cent; None where there is no ratio."""
    if one.ratio is None or one.ratio.mean <= 0:
        return None
    log_margin = math.log1p(one.margin_pct / 100)
    ends = {name: math.log(end) for name in ("mean", "low", "high") if (end := getattr(one.ratio, name)) and end > 0}
    reach = max(*map(abs, ends.values()), 2 * log_margin, 1e-6) * REACH
    places = {name: round(50 + 50 * value / reach, 2) for name, value in ends.items()}
    return {"low": None, "high": None, **places, "margin_low": round(50 - 50 * log_margin / reach, 2), "margin": f"{one.margin_pct:g}"}


def _side(side: str, name: str, data: PageData) -> Row:
    summary = data.summary
    word = loose.text(summary, "verdict", "verdict")
    mark, meaning = VERDICT_WORDS.get(word, ("?", "No verdict was found."))
    return {
        "side": side,
        "name": name,
        "title": title(summary),
        "verdict": word if word in VERDICT_WORDS else "UNKNOWN",
        "mark": mark,
        "meaning": meaning,
        "pending": loose.text(summary, "sentences", "pending"),
        "winners": loose.text(summary, "winners"),
        "ranking": [_compact(table) for table in ranking.ranking_tables(summary)],
        "machines": machine.machines(summary),
        "failures": [f"{one['runs']}: {one['cause']}" for one in failures.failures(summary)],
        "cautions": [one["text"] for one in failures.cautions(summary)],
        "runs": count(len(data.tables.get("runs", {}).get("run", [])), "run"),
    }


def _compact(table: Row) -> Row:
    """The columns that fit beside another table: names carry the axes."""
    columns: list[str] = table["columns"]
    figure_at = columns.index("95 % interval") - 1
    kept = [at for at, column in enumerate(columns) if column in RANKED_COLUMNS or at == figure_at]
    return {
        "title": table["title"],
        "columns": [table["titles"][at] for at in kept],
        "rows": [[row["cells"][at] for at in kept] for row in table["rows"]],
        "right": [place for place, at in enumerate(kept) if at in table["right"]],
        "name": kept.index(table["name"]),
    }


def _differences(diff: RunDiff) -> Row:
    """Between a run of each side."""
    rows = [
        [one.section, f"{one.name}{' *' if one.parts else ''}", shown_value(one.name, one.before), shown_value(one.name, one.after)]
        for one in diff.differences
    ]
    return {
        "runs": [side.attempt.spec.run for side in (diff.before, diff.after)],
        "rows": rows,
        "columns": ["of", "what", *SIDES],
        "says": diff.says,
        "parts": any(one.parts for one in diff.differences),
    }
