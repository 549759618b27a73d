"""Comparisons, scaling and history rows as lines for a terminal and as JSON values."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seatrial.core.text import count, shortened
from seatrial.records.codec import to_json
from seatrial.records.comparison import ComparedGroup, Comparison, LossVerdict, Scaling, ScalingPoint, group_json
from seatrial.records.measure import Estimate
from seatrial.report.text import NONE, Scale, figure, interval_bar, margin, one_line, ratio, utc_time

NARROWEST = 40
LABEL = 14
INDENT = "  "
RATIO = "ratio"
APART = "   "
"""Between two figures of one line."""
WIDEST_INTERVAL = 61
# The scale extends a little beyond the interval, so that its ends are visible.
REACH = 1.15
NO_BREAK = "\N{NO-BREAK SPACE}"
ONE_FIGURE = re.compile(r"\bp (?:[<=] )?(?=\d)|(?<=\d) %")


def comparison_lines(comparisons: Sequence[Comparison], width: int, note: str = "") -> list[str]:
    """Every comparison, then what the drawings mean and a note."""
    width = max(width, NARROWEST)
    lines = [line for one in comparisons for line in (*_lines(one, width), "")]
    if any(one.ratio for one in comparisons):
        lines += [*textwrap.wrap(f"│ is a ratio of 1, [ ] the margin of {comparisons[0].margin_pct:g} % that does not matter.", width), ""]
    if note:
        lines += [*textwrap.wrap(note, width), ""]
    # Names come from folders and files and may contain control sequences.
    return [one_line(line) for line in lines[:-1]]


def comparison_json(comparisons: Sequence[Comparison], groups: Sequence[ComparedGroup], note: str = "") -> dict[str, Any]:
    """Plain values; each group with its runs, their windows and n, without losses by step."""
    return {
        "comparisons": [to_json(one) for one in comparisons],
        "sides": [_group_json(group) for group in {(group.name, group.campaign): group for group in groups}.values()],
        "note": note,
    }


def _group_json(group: ComparedGroup) -> dict[str, Any]:
    plain = group_json(group)
    for run in plain["runs"]:
        run.pop("loss")
    return plain


def _lines(one: Comparison, width: int) -> Iterator[str]:
    yield f"{one.b} against {one.a}: {relation_text(one)}"
    for label, parts in facts(one):
        yield from _row(label, APART.join(parts), width)
        if label == RATIO and one.ratio is not None:
            yield f"{INDENT}{'':{LABEL}} {drawn(one.ratio, one.margin_pct, min(width - LABEL - 3, WIDEST_INTERVAL))}".rstrip()
    yield from _wrapped(one.reason, width)


def relation_text(one: Comparison) -> str:
    """`FASTER`, with its condition where it is unknown whether that holds."""
    return f"{one.relation.value}, {one.condition}" if one.condition else one.relation.value


def facts(one: Comparison) -> Iterator[tuple[str, Sequence[str]]]:
    """(label, figures or sentences) of each fact behind the relation."""
    yield one.unit, (f"{one.a} {_value(one.value_a)}", f"{one.b} {_value(one.value_b)}")
    if one.ratio is not None:
        yield RATIO, tuple(_ratio_figures(one.ratio, one))
    if one.detectable_pct is not None:
        yield "would show", (f"{_pct(one.detectable_pct)} four times in five ({one.method})",)
    elif one.ratio is not None:
        yield "would show", (f"too few runs to tell ({one.method})",)
    if one.loss is not None:
        shown = one.loss.verdict.value.upper() if one.loss.verdict is LossVerdict.WORSE else one.loss.verdict.value
        yield "loss", (f"{shown}: {one.loss.reason}",)
    if one.differs:
        yield "differs in", (", ".join(one.differs),)
    for caution in one.cautions:
        yield "caution", (caution,)


def _row(label: str, text: str, width: int) -> list[str]:
    first = f"{INDENT}{label:{LABEL}} "
    return _wrapped(text, width, first, " " * len(first))


def _wrapped(text: str, width: int, first: str = "", then: str = "") -> list[str]:
    """Lines of the text, in which figures such as `p < 0.0001` and `3.2 %` are not broken."""
    bound = ONE_FIGURE.sub(lambda found: found[0].replace(" ", NO_BREAK), text)
    lines = textwrap.wrap(bound, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def _value(value: Estimate | None) -> str:
    if value is None:
        return "no counted run"
    return " ".join(filter(None, (figure(value.mean), margin(value), f"({count(value.n, 'run')})")))


def _ratio_figures(estimate: Estimate, one: Comparison) -> Iterator[str]:
    yield ratio(estimate.mean)
    if estimate.low is not None and estimate.high is not None:
        yield f"{one.confidence * 100:.4g} % {ratio(estimate.low)} to {ratio(estimate.high)}"
    if one.bootstrap_low is not None and one.bootstrap_high is not None:
        yield f"bootstrap {ratio(one.bootstrap_low)} to {ratio(one.bootstrap_high)}"
    if one.chance is not None:
        yield f"p {'< 0.0001' if one.chance < 0.0001 else f'{one.chance:.2g}'}"


def drawn(estimate: Estimate, margin_pct: float, columns: int) -> str:
    """The interval on a scale with 1 in its middle: `│` is 1, `[` and `]` are the margin that does not matter."""
    log_margin = math.log1p(margin_pct / 100)
    ends = [abs(math.log(end)) for end in (estimate.mean, estimate.low, estimate.high) if end]
    reach = max(*ends, 2 * log_margin, 1e-6) * REACH
    scale = Scale(low=-reach, high=reach)
    logs = Estimate(
        mean=math.log(estimate.mean),
        low=math.log(estimate.low) if estimate.low else None,
        high=math.log(estimate.high) if estimate.high else None,
        n=estimate.n,
    )
    line = ["·"] * columns
    for mark, value in (("[", -log_margin), ("]", log_margin), ("│", 0.0)):
        line[scale.column(value, columns)] = mark
    return "".join(over if over != " " else under for over, under in zip(interval_bar(logs, scale, columns), line, strict=True))


def _pct(value: float) -> str:
    return f"{value:,.0f} %" if value >= 100 else f"{value:.2g} %"


WIDEST_BAR = 40
LONGEST_NAME = 24
FIRST_TO_GO = ("group", "nodes", "step ms", "95 %", "per GPU", "per rank")
EIGHTHS = " ▏▎▍▌▋▊▉"


def families_lines(found: Sequence[Scaling], width: int) -> list[str]:
    """The text of every family."""
    blocks = [scaling_lines(one, width) for one in found]
    return [line for at, block in enumerate(blocks) for line in ([""] * (at > 0) + block)]


def scaling_lines(found: Scaling, width: int) -> list[str]:
    """Table, bars, fit and projections of one family; no line is wider than `width`, unless it cannot be broken."""
    width = max(width, NARROWEST)
    family = f" ({found.family})" if found.family else ""
    lines = textwrap.wrap(f"{found.unit or found.metric} over {found.worker}s{family}", width)
    if found.points:
        lines += [*_table(found, width), "", *_efficiency_bars(found.points, width), ""]
    if found.compute_ms is not None:
        lines += [*textwrap.wrap(_fit(found), width), ""]
    if found.projections:
        lines += [*_projections(found, width), ""]
    lines += textwrap.wrap(found.reason, width)
    for caution in found.cautions:
        lines += textwrap.wrap(f"Caution: {caution}", width, subsequent_indent="  ")
    # Names come from folders and files and may contain control sequences.
    return [one_line(line) for line in lines]


def families_json(found: Sequence[Scaling]) -> dict[str, Any]:
    """One family as an object, several as a list."""
    plain: list[dict[str, Any]] = to_json(list(found))
    return plain[0] if len(plain) == 1 else {"families": plain}


def _table(found: Scaling, width: int) -> Iterator[str]:
    """Columns as wide as their cells; a narrow terminal shows fewer of them."""
    cells = [_cells(point, found.worker) for point in found.points]
    headings = [name for name in cells[0] if name != "nodes" or any(point.nodes > 1 for point in found.points)]
    widths = {name: max(len(name), *(len(row[name]) for row in cells)) for name in headings}
    for name in FIRST_TO_GO:
        if name in headings and sum(widths[kept] for kept in headings) + 2 * (len(headings) - 1) > width:
            headings.remove(name)
    for row in ({name: name for name in headings}, *cells):
        yield "  ".join(f"{row[name]:{'<' if name == 'group' else '>'}{widths[name]}}" for name in headings).rstrip()


def _cells(point: ScalingPoint, worker: str) -> dict[str, str]:
    """Heading → cell, in the order of the columns."""
    return {
        f"{worker}s": str(point.gpus),
        "nodes": str(point.nodes),
        "total": f"{figure(point.value.mean)} {margin(point.value)}".rstrip(),
        f"per {worker}": figure(point.per_gpu.mean),
        "efficiency": _percent(point.efficiency.mean),
        "95 %": _interval(point.efficiency),
        "step ms": figure(point.step_ms),
        "runs": str(point.runs),
        "group": shortened(point.group, LONGEST_NAME),
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _interval(share: Estimate) -> str:
    return NONE if share.low is None or share.high is None else f"{100 * share.low:.1f} to {100 * share.high:.1f}"


def _efficiency_bars(points: Sequence[ScalingPoint], width: int) -> Iterator[str]:
    """Efficiency as bars; full width is the largest efficiency, at least 100 %."""
    columns = min(width - 20, WIDEST_BAR)
    full = max(1.0, *(point.efficiency.mean for point in points))
    for point in points:
        yield f"{point.gpus:>6} {_bar(point.efficiency.mean / full, columns)} {_percent(point.efficiency.mean)}"


def _bar(share: float, columns: int) -> str:
    eighths = round(max(share, 0.0) * columns * 8)
    return f"{'█' * (eighths // 8)}{EIGHTHS[eighths % 8]}".strip()


def _fit(found: Scaling) -> str:
    work = "" if all(point.weak for point in found.points) else f" for the work of one {found.worker} at the smallest number"
    exchange = f"{figure(found.bandwidth_ms)} ms × (N − 1)/N of exchange (bandwidth"
    parts = [f"{figure(found.compute_ms)} ms of compute{work}"]
    if found.latency_ms is None:
        parts.append(f"{exchange}; or all of it latency, by log2 N: the intervals hold both)")
    else:
        parts += [f"{exchange})", f"{figure(found.latency_ms)} ms × log2 N (latency)"]
    runs, sizes = sum(point.runs for point in found.points), len({point.gpus for point in found.points})
    return f"A step on N {found.worker}s, by {count(runs, 'run')} at {sizes} numbers of {found.worker}s: {' + '.join(parts)}."


def _projections(found: Scaling, width: int) -> Iterator[str]:
    """Projected figures for more GPUs, each with its 95 % interval."""
    for each in found.projections:
        interval = f"95 % {figure(each.low)} to {figure(each.high)}"
        text = f"{figure(each.value)} {found.unit} ({interval}), {_percent(each.efficiency)} efficiency"
        yield from textwrap.wrap(f"{each.gpus:>6} {found.worker}s: {text}, bound by {each.bound_by}", width, subsequent_indent=" " * 13)


HEADS = ("row", "name", "group", "runs", "throughput", "taken")
RIGHT = ("row", "runs")
# Columns that are cut on a narrow terminal, and their least width.
CUT, SHORTEST = ("name", "group"), 8
GAP = "  "


def history_lines(rows: Sequence[Mapping[str, Any]], file: str, width: int = 80, unreadable: int = 0) -> list[str]:
    """The table, or how to add a row."""
    lost = [f"{count(unreadable, 'line')} of {file} cannot be read and are not shown"] if unreadable else []
    if not rows:
        return [
            f"{file} has no rows{' that can be read' if unreadable else ' yet'}; `seatrial history add OUT` keeps a campaign's groups",
            *lost,
        ]
    cells = [HEADS, *(_history_cells(row) for row in rows)]
    widths = _history_widths(cells, width)
    lines = [_history_line(HEADS, widths)]
    for row, line in zip(rows, cells[1:], strict=True):
        indent = " " * (widths[0] + len(GAP))
        lines += [_history_line(line, widths), indent + _cut(_machine_and_folder(row), max(width - len(indent), SHORTEST))]
    return lines + lost


def _history_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    speed = f"{figure(row['throughput'])} {row['unit']}" if row.get("throughput") else NONE
    taken = utc_time(row["taken_t"]) if row["taken_t"] else NONE
    cells = (str(row["row"]), ", ".join(row["names"]) or NONE, row["group"], str(row["runs"]), speed, taken)
    return tuple(one_line(cell) for cell in cells)


def _machine_and_folder(row: Mapping[str, Any]) -> str:
    machine = row["machine"]
    facts = [value for value in (machine.get("host"), machine.get("gpu_name")) if value and value != "none"]
    return one_line(", ".join([*facts, row["campaign"]]))


def _history_widths(cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Widths of the columns; those of names shrink where a line is too long."""
    widths = [max(len(line[at]) for line in cells) for at in range(len(HEADS))]
    while sum(widths) + len(GAP) * (len(HEADS) - 1) > width:
        widest = max((HEADS.index(head) for head in CUT), key=lambda at: widths[at])
        if widths[widest] <= SHORTEST:
            break
        widths[widest] -= 1
    return widths


def _history_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    columns = zip(HEADS, cells, widths, strict=True)
    return GAP.join(f"{_cut(cell, width):{'>' if head in RIGHT else '<'}{width}}" for head, cell, width in columns).rstrip()


def _cut(text: str, width: int) -> str:
    """Shortened in the middle: names and paths differ at their ends."""
    if len(text) <= width:
        return text
    end = width * 2 // 3
    return f"{text[: width - end - 1]}…{text[len(text) - end :]}"
