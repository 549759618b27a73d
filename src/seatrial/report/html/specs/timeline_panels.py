"""The panels of the timeline: strips of spans, step time, and a small one for each thing that the machine tells.

In: the page's data. Out: Vega-Lite views that share `t_s` along x. Their heading stands above them, since there is no room beside them.
Window and n of a tooltip are those of what it shows: of a step its run's window, of spans and samples the seconds they are of.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.records.charts import Columns
from seatrial.report.html.page_data import PageData
from seatrial.report.html.shown_text import plain
from seatrial.report.html.specs.palette import BLUE, DASHES, RED, colour
from seatrial.report.html.specs.placed import is_number
from seatrial.report.html.specs.series import BINS, OF_ONE_STEP, binned, in_view
from seatrial.report.html.specs.steps import is_logarithmic, step_time_y
from seatrial.report.html.specs.theme import GRID, NUMBER, Spec, by_width
from seatrial.report.html.specs.timeline_metrics import PANELS, RATES, Panel, in_fitting_unit
from seatrial.report.html.specs.tooltip import nearest_tooltip, number, spelt_seconds, tooltip, word

WIDTH = 640
HEIGHT = 72
Y_EXTENT = 84
SINCE = number("t_s", "s since launch")
ANSWERS = "at_"
"""How the names of layers begin that tell where the pointer is; others with a name can be zoomed in."""
DOT: Spec = {"type": "point", "filled": True, "size": 60, "opacity": 1, "clip": True}
TRAIN = "train"
"""The span that is cut at pauses; all others of the run are outside its steps."""
OF_GPU = "substring(datum.source, 0, 3) === 'gpu'"


def panels(data: PageData) -> list[Spec]:
    """From the top down; the last one has the labels of the time."""
    drawn = [*_span_strips(data), *_step_panel(data), *_telemetry_panels(data)]
    for at, panel in enumerate(drawn):
        for layer in panel["layer"]:
            if "field" in layer["encoding"].get("x", {}):
                layer["encoding"]["x"]["axis"] = _time_axis(is_last=at == len(drawn) - 1)
    return drawn


def _time_axis(*, is_last: bool) -> Spec:
    labels: Spec = {"title": "seconds since launch", "format": NUMBER} if is_last else {"title": None, "labels": False, "ticks": False}
    return {"grid": True, "tickCount": by_width(4, 10), **labels}


def _x() -> Spec:
    """From the launch on, also where a run told nothing for long."""
    return {"field": "t_s", "type": "quantitative", "scale": {"domainMin": 0, "nice": False}}


def _panel(title: str, height: int | Spec, layers: list[Spec]) -> Spec:
    return {"title": {"text": title, "offset": 2}, "width": WIDTH, "height": height, "layer": [_shade(), *layers, _pointer()]}


def _shade() -> Spec:
    """The time from the begin of the first step that counts to the end of the last; a row stands at the end of its steps."""
    ends = [{"op": "min", "field": "first_s", "as": "from_s"}, {"op": "max", "field": "t_s", "as": "to_s"}]
    begin = {"calculate": "isValid(datum.begin_s) ? datum.begin_s : datum.t_s", "as": "first_s"}
    return {
        "transform": [{"filter": "datum.kind === 'step' && datum.counted"}, begin, {"aggregate": ends}],
        "mark": {"type": "rect", "color": GRID, "opacity": 0.12, "clip": True, "tooltip": None},
        "encoding": {"x": {**_x(), "field": "from_s"}, "x2": {"field": "to_s"}},
    }


def _pointer() -> Spec:
    """Where the pointer is in whichever panel: a place on the screen, so that it does not widen the scale."""
    at = "isValid(hover.t_s) ? scale('x', hover.t_s[0]) : 0"
    return {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "opacity": {"expr": "isValid(hover.t_s) ? 0.5 : 0"}, "clip": True, "tooltip": None},
        "encoding": {"x": {"value": {"expr": at}}},
    }


def _span_strips(data: PageData) -> Iterator[Spec]:
    """What the run did, and, apart from it, what held its GPUs' clocks back."""
    sources = [str(source) for source in data.tables.get("spans", {}).get("source", [])]
    names = [str(name) for name in data.tables.get("spans", {}).get("span", [])]
    is_gpu = [source.startswith("gpu") for source in sources]
    done = dict.fromkeys(name for name, gpu in zip(names, is_gpu, strict=True) if not gpu)
    if done:
        yield _strip("What the run did", "span", f"!({OF_GPU})", len(done), BLUE)
    throttled = dict.fromkeys(source for source, gpu in zip(sources, is_gpu, strict=True) if gpu)
    if throttled:
        yield _strip("Clocks held back", "source", OF_GPU, len(throttled), RED)


def _strip(title: str, row: str, which: str, num_rows: int, shade: str) -> Spec:
    where = f"datum.kind === 'span' && {which}"
    y = {
        "field": row,
        "type": "nominal",
        "title": None,
        "sort": {"field": "begin_s", "op": "min"},
        "axis": {"grid": False, "ticks": False, "labelFontSize": 11},
    }
    shown = [word("source", "source"), word("span", "span"), number("begin_s", "begins, s"), number("end_s", "ends, s")]
    # The outline keeps a span seen that is shorter than a pixel.
    mark = {"type": "bar", "color": shade, "stroke": shade, "strokeWidth": 1, "height": {"band": 0.6}, "clip": True}
    bar = {
        "name": f"spans_by_{row}",
        "transform": [{"filter": where}, spelt_seconds("begin_s", "end_s"), {"calculate": "1", "as": "n"}],
        "mark": mark,
        "encoding": {"x": _x(), "x2": {"field": "end_s"}, "y": y, "tooltip": tooltip(shown)},
    }
    return _panel(title, {"step": 16 if num_rows <= 8 else 11}, [bar])


def _step_panel(data: PageData) -> Iterator[Spec]:
    if not any(is_number(ms) for ms in data.tables.get("steps", {}).get("iter_ms", [])):
        return
    y = step_time_y(data)
    y["axis"] = {"title": None, "tickCount": 3, "format": NUMBER}
    line = {"type": "line", "color": BLUE, "clip": True, "invalid": "break-paths-show-path-domains"}
    kept: list[Spec] = [{"filter": "datum.kind === 'step' && isValid(datum.iter_ms)"}, *OF_ONE_STEP]
    shown = tooltip([word("step", "step"), number("iter_ms", "ms"), SINCE])
    layers: list[Spec] = [
        _step_line({**line, "strokeWidth": 1, "opacity": 0.4}, y, "true"),
        _step_line({**line, "strokeWidth": 1.5}, y, "datum.counted"),
        {"transform": [*kept, *_alone("run")], "mark": {**DOT, "color": BLUE}, "encoding": {"x": _x(), "y": y}},
        {"name": f"{ANSWERS}steps", "transform": [*kept, *in_view("t_s", "iter_ms", "run")], **_points(shown)},
    ]
    yield _panel("Step time, ms (log scale)" if is_logarithmic(y) else "Step time, ms", HEIGHT, layers)


def _step_line(mark: Spec, y: Spec, which: str) -> Spec:
    """The steps of `which`. A row without a time in the middle of every pause breaks the line, which would say that steps went on."""
    is_pause = f"datum.kind === 'span' && !({OF_GPU}) && datum.span !== '{TRAIN}'"
    rows: list[Spec] = [
        {"filter": f"datum.kind === 'step' ? isValid(datum.iter_ms) : {is_pause}"},
        {"calculate": f"datum.kind === 'step' && {which} ? datum.iter_ms : null", "as": "drawn_ms"},
        {"calculate": "datum.kind === 'step' ? datum.t_s : (datum.begin_s + datum.end_s) / 2", "as": "t_s"},
    ]
    return {"transform": rows, "mark": mark, "encoding": {"x": _x(), "y": {**y, "field": "drawn_ms"}}}


def _alone(*by: str) -> list[Spec]:
    """Transforms that leave the rows that no line is drawn of, since there is but one."""
    return [{"joinaggregate": [_op("count", "t_s", "samples")], "groupby": list(by)}, {"filter": "datum.samples === 1"}]


def _points(shown: list[Spec]) -> Spec:
    """What answers the pointer: the place in time, wherever it is in height."""
    return {"mark": {"type": "rule", "opacity": 0, "clip": True}, "encoding": {"x": _x(), "tooltip": nearest_tooltip(shown)}}


def _telemetry_panels(data: PageData) -> Iterator[Spec]:
    largest = _largest(data.tables.get("telemetry", {}))
    explained: set[tuple[str, ...]] = set()
    for panel in PANELS:
        own = [(source, most) for (metric, source), most in largest.items() if metric in panel.metrics]
        sources = tuple(sorted({source for source, _ in own}, key=_in_order))
        if sources:
            drawn = in_fitting_unit(panel, max(most for _, most in own))
            yield _telemetry_panel(drawn, sources, has_legend=len(sources) > 1 and sources not in explained)
            explained.add(sources)


def _largest(table: Columns) -> dict[tuple[str, str], float]:
    """By metric and source."""
    found: dict[tuple[str, str], float] = {}
    for metric, source, value in zip(*(table.get(name, []) for name in ("metric", "source", "value")), strict=True):
        if isinstance(value, int | float) and is_number(value):
            key = str(metric), str(source)
            found[key] = max(found.get(key, value), value)
    return {(metric, plain(source)): most for (metric, source), most in found.items()}


def _in_order(source: str) -> tuple[str, int]:
    """gpu 10 comes after gpu 9."""
    name, _, index = source.rpartition(" ")
    return (name, int(index)) if index.isdecimal() else (source, 0)


def _telemetry_panel(panel: Panel, sources: tuple[str, ...], *, has_legend: bool) -> Spec:
    words = list(panel.metrics.values())
    named = f"{panel.title}, {panel.unit}" + (f" ({words[0]} ——, {words[1]} - - -)" if len(words) > 1 else "")
    kept: list[Spec] = [
        {"filter": {"and": ["datum.kind === 'telemetry'", {"field": "metric", "oneOf": list(panel.metrics)}]}},
        {"calculate": f"datum.value / {panel.per_unit}", "as": "amount"},
    ]
    y = {"field": "amount", "type": "quantitative", "axis": {"title": None, "tickCount": 3, "format": NUMBER}, "scale": {"zero": True}}
    explained = {"title": None, "orient": "top", "columns": by_width(4, 8), "offset": 2} if has_legend else None
    shade = {
        "field": "source",
        "type": "nominal",
        "scale": {"domain": list(sources), "range": [colour(at) for at in range(len(sources))]},
        "legend": explained,
    }
    dashes = {"domain": list(panel.metrics), "range": list(DASHES[: len(panel.metrics)])}
    stroke = {"field": "metric", "type": "nominal", "scale": dashes, "legend": None}
    mark = {"type": "line", "strokeWidth": 1.5, "clip": True}
    return _panel(
        named,
        HEIGHT,
        [
            {"transform": kept, "mark": mark, "encoding": {"x": _x(), "y": y, "color": shade, "strokeDash": stroke}},
            {"transform": [*kept, *_alone("source", "metric")], "mark": DOT, "encoding": {"x": _x(), "y": y, "color": shade}},
            {"name": f"{ANSWERS}{panel.id}", "transform": [*kept, *_by_time(panel, sources)], **_points(_shown_sources(panel, sources))},
        ],
    )


def _by_time(panel: Panel, sources: tuple[str, ...]) -> list[Spec]:
    """One row a part of the time on view, with a field for each source and metric: `s0m1` is the second metric of the first source. It
    tells the least and the most of the samples, which are those that thinning kept for being so."""
    keys = [{"source": source, "key": f"s{at}"} for at, source in enumerate(sources)]
    order = ", ".join(f"'{metric}'" for metric in panel.metrics)
    return [
        {"lookup": "source", "from": {"data": {"values": keys}, "key": "source", "fields": ["key"]}},
        {"calculate": f"datum.key + 'm' + indexof([{order}], datum.metric)", "as": "key"},
        *binned("t_s"),
        {"joinaggregate": [_op("min", "amount", "least"), _op("max", "amount", "most")], "groupby": ["bin", "key"]},
        {"joinaggregate": [_op("min", "t_s", "begin"), _op("max", "t_s", "end"), _op("distinct", "t_s", "n")], "groupby": ["bin"]},
        {"calculate": _told("least", panel), "as": "least_told"},
        {"calculate": _told("most", panel), "as": "most_told"},
        {"calculate": "datum.least_told + (datum.least_told === datum.most_told ? '' : ' to ' + datum.most_told)", "as": "told"},
        spelt_seconds("begin", "end"),
        {"calculate": f"datum.from_x + (datum.bin + 0.5) / {BINS} * (datum.to_x - datum.from_x)", "as": "t_s"},
        # All rows of a key have one text: which of them is taken is all the same.
        {"pivot": "key", "value": "told", "op": "max", "groupby": ["t_s", "window", "n"]},
    ]


def _op(op: str, field: str, name: str) -> Spec:
    return {"op": op, "field": field, "as": name}


def _told(field: str, panel: Panel) -> str:
    """A figure as text; a rate in the unit that fits it, for the panel's own is that of the largest of all runs."""
    if panel.unit not in RATES:
        return f"format(datum.{field}, '{NUMBER}')"
    amount = f"datum.{field} * {panel.per_unit}"
    fitted = [(f"{amount} >= {size}", f"format({amount} / {size}, '{NUMBER}') + ' {unit}'") for unit, size in reversed(RATES.items())]
    *larger, (_, least) = fitted
    return "".join(f"{test} ? {text} : " for test, text in larger) + least


def _shown_sources(panel: Panel, sources: tuple[str, ...]) -> list[Spec]:
    unit = "" if panel.unit in RATES else f" {panel.unit}"
    figures = [
        word(f"s{at}m{which}", f"{source}, {name}{unit}")
        for at, source in enumerate(sources)
        for which, name in enumerate(panel.metrics.values())
    ]
    return tooltip(figures)
