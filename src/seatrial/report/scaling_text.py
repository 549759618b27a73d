"""Scaling for people, and as one JSON value.

In: `Scaling`. Out: lines no wider than the terminal: a table, the efficiency drawn, the fit and what it projects; and a plain value with
the same numbers.

samples/s over GPUs
GPUs  nodes         total  per GPU  efficiency          95 %  step ms  runs  group
   1      1  159.2 ±0.7 %    159.2     100.0 %             –    100.5     3  n1
   2      1  268.9 ±2.9 %    134.4      84.4 %  82.2 to 86.8    119.0     3  n2

     1 ████████████████████████████████████████ 100.0 %
     2 █████████████████████████████████▊ 84.4 %
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.records.codec import to_json
from seatrial.records.comparison import Projection, Scaling, ScalingPoint
from seatrial.records.measure import Estimate
from seatrial.report.markdown import one_line
from seatrial.report.numbers import NONE, count, figure, margin

NARROWEST = 40
WIDEST_BAR = 40
LONGEST_NAME = 24
HEADINGS = ("GPUs", "nodes", "total", "per GPU", "efficiency", "95 %", "step ms", "runs", "group")
FIRST_TO_GO = ("group", "nodes", "step ms", "95 %", "per GPU")
EIGHTHS = " ▏▎▍▌▋▊▉"


def scaling_lines(found: Scaling, width: int) -> list[str]:
    """The whole text; never wider than `width`, but for what cannot be broken."""
    width = max(width, NARROWEST)
    lines = [f"{found.unit or found.metric} over GPUs"]
    if found.points:
        lines += [*_table(found.points, width), "", *_drawing(found.points, width), ""]
    if found.compute_ms is not None:
        lines += [*textwrap.wrap(_fit(found), width), ""]
    if found.projections:
        lines += [*_projections(found.projections, found.unit, width), ""]
    lines += textwrap.wrap(found.reason, width)
    for caution in found.cautions:
        lines += textwrap.wrap(f"Caution: {caution}", width, subsequent_indent="  ")
    # Names are what folders and files say, and those may hold what moves a cursor.
    return [one_line(line) for line in lines]


def scaling_json(found: Scaling) -> dict[str, Any]:
    """The same as plain values."""
    plain: dict[str, Any] = to_json(found)
    return plain


def _table(points: Sequence[ScalingPoint], width: int) -> Iterator[str]:
    """Columns as wide as their words; a narrow terminal loses some of them."""
    rows = [HEADINGS, *(_cells(point) for point in points)]
    kept = list(range(len(HEADINGS)))
    widths = [max(len(row[at]) for row in rows) for at in kept]
    for heading in FIRST_TO_GO:
        if sum(widths[at] for at in kept) + 2 * (len(kept) - 1) > width:
            kept.remove(HEADINGS.index(heading))
    for row in rows:
        cells = (f"{row[at]:<{widths[at]}}" if HEADINGS[at] == "group" else f"{row[at]:>{widths[at]}}" for at in kept)
        yield "  ".join(cells).rstrip()


def _cells(point: ScalingPoint) -> tuple[str, ...]:
    name = point.group if len(point.group) <= LONGEST_NAME else f"{point.group[: LONGEST_NAME - 1]}…"
    return (
        str(point.gpus),
        str(point.nodes),
        f"{figure(point.value.mean)} {margin(point.value)}".rstrip(),
        figure(point.per_gpu.mean),
        _percent(point.efficiency.mean),
        _interval(point.efficiency),
        figure(point.step_ms),
        str(point.runs),
        name,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _interval(share: Estimate) -> str:
    return NONE if share.low is None or share.high is None else f"{100 * share.low:.1f} to {100 * share.high:.1f}"


def _drawing(points: Sequence[ScalingPoint], width: int) -> Iterator[str]:
    """Efficiency as bars, the whole width being the largest there is or 100 %."""
    columns = min(width - 20, WIDEST_BAR)
    full = max(1.0, *(point.efficiency.mean for point in points))
    for point in points:
        yield f"{point.gpus:>6} {_bar(point.efficiency.mean / full, columns)} {_percent(point.efficiency.mean)}"


def _bar(share: float, columns: int) -> str:
    eighths = round(max(share, 0.0) * columns * 8)
    return f"{'█' * (eighths // 8)}{EIGHTHS[eighths % 8]}".strip()


def _fit(found: Scaling) -> str:
    work = "" if all(point.weak for point in found.points) else " for the work of one GPU at the smallest number"
    exchange = f"{figure(found.bandwidth_ms)} ms × (N − 1)/N of exchange (bandwidth"
    parts = [f"{figure(found.compute_ms)} ms of compute{work}"]
    if found.latency_ms is None:
        parts.append(f"{exchange}; or all of it latency, by log2 N: the intervals hold both)")
    else:
        parts += [f"{exchange})", f"{figure(found.latency_ms)} ms × log2 N (latency)"]
    runs, sizes = sum(point.runs for point in found.points), len({point.gpus for point in found.points})
    return f"A step on N GPUs, by {count(runs, 'run')} at {sizes} numbers of GPUs: {' + '.join(parts)}."


def _projections(projections: Sequence[Projection], unit: str, width: int) -> Iterator[str]:
    """What more GPUs would give, each with its 95 % interval."""
    for each in projections:
        words = f"{figure(each.value)} {unit} (95 % {figure(each.low)} to {figure(each.high)}), {_percent(each.efficiency)} efficiency"
        yield from textwrap.wrap(f"{each.gpus:>6} GPUs: {words}, bound by {each.bound_by}", width, subsequent_indent=" " * 13)
