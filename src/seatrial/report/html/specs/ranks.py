"""How even the ranks of a run are: own work and waiting for the others, one above the other or, of many ranks, side by side.

The rank that holds the others up is the one that summary.json names (`straggler_rank` of a run whose `straggler` is `named`); where it
names none, the longest own work is marked as no more than that, where the ranks differ by more than EVEN_SHARE.
"""

from __future__ import annotations

from seatrial.records.measure import Cell
from seatrial.report.digest.ranks import EVEN_SHARE
from seatrial.report.html import loose
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.palette import BLUE, GREY, ORANGE, RED
from seatrial.report.html.specs.placed import is_number, shown
from seatrial.report.html.specs.theme import Spec, by_width, document, legend, quantity
from seatrial.report.html.specs.tooltip import SPELT_WINDOW, number, tooltip, word

MANY_RANKS = 48
WHOLE = "whole step"
PARTS = {"own work": BLUE, "waiting": ORANGE, WHOLE: GREY}

_OF_LOWEST: tuple[Spec, ...] = (
    {"calculate": f"isValid(datum.own) ? 'own work' : '{WHOLE}'", "as": "part"},
    {"calculate": "isValid(datum.own) ? datum.own : datum.whole", "as": "ms"},
)
"""Transforms: a mark lies above the lowest part of its bar, and tells what that would."""


def ranks(data: PageData) -> Chart | None:
    """None where no run has two ranks."""
    table = data.tables.get("ranks")
    if not table:
        return None
    counts: dict[Cell, int] = {}
    for run in table["run"]:
        counts[run] = counts.get(run, 0) + 1
    largest = max(counts.values())
    return Chart(
        id="ranks",
        section="ranks",
        title="Ranks",
        caption="Median milliseconds a step of each rank of the run chosen for the timeline, over the steps that count: its own work and "
        "its waiting for the others. Marked is the straggler that the verdict names; without one, the rank that works longest, if "
        f"by {100 * EVEN_SHARE:.0f} % of a step or more.",
        table="ranks",
        spec=_document(data, largest),
        picks="run",
    )


def _document(data: PageData, largest: int) -> Spec:
    is_strip = largest > MANY_RANKS
    bar, mark = _strip() if is_strip else _bars(largest)
    told_apart = {is_number(ms) for ms in data.tables["ranks"]["work_p50_ms"]}
    there = {part: shade for part, shade in PARTS.items() if (part != WHOLE) in told_apart}
    colour = {"field": "part", "type": "nominal", "scale": {"domain": list(there), "range": list(there.values())}, "legend": legend()}
    parts: list[Spec] = [
        {"fold": ["own", "waits", "whole"], "as": ["name", "ms"]},
        {"filter": "isValid(datum.ms)"},
        {"calculate": f"datum.name === 'own' ? 'own work' : datum.name === 'waits' ? 'waiting' : '{WHOLE}'", "as": "part"},
        {"calculate": "indexof(['own', 'waits', 'whole'], datum.name)", "as": "at"},
    ]
    order = {"field": "at", "type": "quantitative"}
    return document(
        **({"height": 240} if is_strip else {"height": {"step": 24 if largest <= 16 else 16}}),
        transform=[*_named(data), *_marked()],
        layer=[
            {"transform": parts, "mark": {"type": "bar"}, "encoding": {**bar, "color": colour, "order": order, "tooltip": _shown()}},
            {"transform": [{"filter": "datum.marked !== ''"}, *_OF_LOWEST], **mark},
        ],
    )


def _named(data: PageData) -> list[Spec]:
    """`straggler`: the rank that the verdict names in this run."""
    runs = [run for run in loose.objects(data.summary, "runs") if run.get("straggler") == "named"]
    values = [{"run": shown(run.get("run")), "straggler": loose.whole(run, "straggler_rank")} for run in runs]
    if not values:
        return [{"calculate": "null", "as": "straggler"}]
    return [{"lookup": "run", "from": {"data": {"values": values}, "key": "run", "fields": ["straggler"]}}]


def _marked() -> list[Spec]:
    is_uneven = f"datum.longest > datum.shortest && datum.longest - datum.shortest >= {EVEN_SHARE} * datum.iter_p50_ms"
    longest = f"datum.work_p50_ms === datum.longest && {is_uneven} ? 'longest own work' : ''"
    return [
        SPELT_WINDOW,
        {"joinaggregate": [{"op": op, "field": "work_p50_ms", "as": name} for op, name in (("max", "longest"), ("min", "shortest"))]},
        {"calculate": f"isValid(datum.straggler) ? (datum.rank === datum.straggler ? 'straggler' : '') : {longest}", "as": "marked"},
        {"calculate": "isValid(datum.work_p50_ms) ? datum.work_p50_ms : null", "as": "own"},
        {"calculate": "isValid(datum.work_p50_ms) ? datum.wait_p50_ms : null", "as": "waits"},
        {"calculate": "isValid(datum.work_p50_ms) ? null : datum.iter_p50_ms", "as": "whole"},
    ]


def _shown() -> list[Spec]:
    return tooltip(
        [word("rank", "rank"), word("host", "host"), word("gpu", "GPU"), word("part", "part"), number("ms", "ms"), word("marked", "remark")]
    )


def _bars(largest: int) -> tuple[Spec, Spec]:
    axis = {"title": "rank", "grid": False, "ticks": False, "domain": False, "labelOverlap": True}
    y = {"field": "rank", "type": "ordinal", "axis": axis}
    text = {"type": "text", "align": "left", "dx": 6, "color": "white", "fontWeight": "bold", "fontSize": 12 if largest <= 16 else 10}
    return (
        {"y": y, "x": quantity("ms", "ms a step (median)")},
        # Written on its own bar, which is long by definition: beside it there may be no room.
        {"mark": text, "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "marked", "type": "nominal"}, "tooltip": _shown()}},
    )


def _strip() -> tuple[Spec, Spec]:
    axis = {"title": "rank", "tickCount": by_width(4, 10), "format": "d", "grid": False, "tickMinStep": 1}
    x = {"field": "rank", "type": "quantitative", "scale": {"nice": False, "zero": False, "padding": 6}, "axis": axis}
    pointed = {"type": "point", "shape": "triangle-down", "filled": True, "size": 90, "color": RED, "opacity": 1}
    return (
        {"x": x, "y": {**quantity("ms", "ms a step (median)"), "stack": "zero"}},
        {"mark": pointed, "encoding": {"x": x, "y": {"value": 6}, "tooltip": _shown()}},
    )
