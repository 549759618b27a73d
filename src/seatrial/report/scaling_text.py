"""Scaling for people, and as one JSON value.

In: `Scaling`, of one family of sides or of several. Out: lines no wider than the terminal: a table, the efficiency drawn, the fit and
what it projects; and a plain value with the same numbers. Nodes are shown where there is more than one.

samples/s over GPUs
GPUs         total  per GPU  efficiency          95 %  step ms  runs  group
   1  159.2 ±0.7 %    159.2     100.0 %             –    100.5     3  n1
   2  268.9 ±2.9 %    134.4      84.4 %  82.2 to 86.8    119.0     3  n2

     1 ████████████████████████████████████████ 100.0 %
     2 █████████████████████████████████▊ 84.4 %
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.records.codec import to_json
from seatrial.records.comparison import Scaling, ScalingPoint
from seatrial.records.measure import Estimate
from seatrial.report.numbers import NONE, figure, margin
from seatrial.report.one_line import one_line
from seatrial.wording import count

NARROWEST = 40
WIDEST_BAR = 40
LONGEST_NAME = 24
FIRST_TO_GO = ("group", "nodes", "step ms", "95 %", "per GPU", "per rank")
EIGHTHS = " ▏▎▍▌▋▊▉"


def families_lines(found: Sequence[Scaling], width: int) -> list[str]:
    """Every family's text, one below the other."""
    blocks = [scaling_lines(one, width) for one in found]
    return [line for at, block in enumerate(blocks) for line in ([""] * (at > 0) + block)]


def scaling_lines(found: Scaling, width: int) -> list[str]:
    """The whole text; never wider than `width`, but for what cannot be broken."""
    width = max(width, NARROWEST)
    of = f" ({found.family})" if found.family else ""
    lines = textwrap.wrap(f"{found.unit or found.metric} over {found.worker}s{of}", width)
    if found.points:
        lines += [*_table(found, width), "", *_drawing(found.points, width), ""]
    if found.compute_ms is not None:
        lines += [*textwrap.wrap(_fit(found), width), ""]
    if found.projections:
        lines += [*_projections(found, width), ""]
    lines += textwrap.wrap(found.reason, width)
    for caution in found.cautions:
        lines += textwrap.wrap(f"Caution: {caution}", width, subsequent_indent="  ")
    # Names are what folders and files say, and those may hold what moves a cursor.
    return [one_line(line) for line in lines]


def families_json(found: Sequence[Scaling]) -> dict[str, Any]:
    """Of one family as it is; of several as a list of them."""
    return scaling_json(found[0]) if len(found) == 1 else {"families": [scaling_json(one) for one in found]}


def scaling_json(found: Scaling) -> dict[str, Any]:
    """The same as plain values."""
    plain: dict[str, Any] = to_json(found)
    return plain


def _table(found: Scaling, width: int) -> Iterator[str]:
    """Columns as wide as their words; a narrow terminal loses some of them."""
    cells = [_cells(point, found.worker) for point in found.points]
    headings = [name for name in cells[0] if name != "nodes" or any(point.nodes > 1 for point in found.points)]
    widths = {name: max(len(name), *(len(row[name]) for row in cells)) for name in headings}
    for name in FIRST_TO_GO:
        if name in headings and sum(widths[kept] for kept in headings) + 2 * (len(headings) - 1) > width:
            headings.remove(name)
    for row in ({name: name for name in headings}, *cells):
        yield "  ".join(f"{row[name]:{'<' if name == 'group' else '>'}{widths[name]}}" for name in headings).rstrip()


def _cells(point: ScalingPoint, worker: str) -> dict[str, str]:
    """By heading, in the order of the columns."""
    return {
        f"{worker}s": str(point.gpus),
        "nodes": str(point.nodes),
        "total": f"{figure(point.value.mean)} {margin(point.value)}".rstrip(),
        f"per {worker}": figure(point.per_gpu.mean),
        "efficiency": _percent(point.efficiency.mean),
        "95 %": _interval(point.efficiency),
        "step ms": figure(point.step_ms),
        "runs": str(point.runs),
        "group": point.group if len(point.group) <= LONGEST_NAME else f"{point.group[: LONGEST_NAME - 1]}…",
    }


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
    """What more GPUs would give, each with its 95 % interval."""
    for each in found.projections:
        interval = f"95 % {figure(each.low)} to {figure(each.high)}"
        words = f"{figure(each.value)} {found.unit} ({interval}), {_percent(each.efficiency)} efficiency"
        yield from textwrap.wrap(f"{each.gpus:>6} {found.worker}s: {words}, bound by {each.bound_by}", width, subsequent_indent=" " * 13)
