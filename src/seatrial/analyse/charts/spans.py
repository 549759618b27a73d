"""charts/spans.csv: what went on when, from the launch on.

In: the step tables, the rank that is drawn, the samples of the GPUs and the launch. Out: named spans. The start-up is that of the rank
that was ready last, as the probe told it; `train` goes from the begin of the first step to the end of the last, cut at pauses; GPUs have
spans where something held their clocks back (analyse.charts.throttled).

Where in a step a pause lay is not told: it is drawn just before the step that it ended in, and one after the last step behind that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from seatrial.analyse.charts.first_rank import FirstRank
from seatrial.analyse.charts.thinning import Floats, Mask, Places, longest_kept
from seatrial.analyse.charts.throttled import throttled_spans
from seatrial.records.charts import Columns, Detail
from seatrial.records.events import SPANS
from seatrial.records.steps import StartupFacts, StepTables

TRAIN = "train"
SHOWN = {"model": "load model", "data": "load data", "checkpoint": "save"}
"""Names that a reader of a timeline does not expect."""
MOST_PAUSES = 400
LEAST_PAUSES = 10


class Stretch(NamedTuple):
    """Seconds since the launch."""

    begin_s: float
    end_s: float


Named = tuple[str, Stretch]


def span_table(
    tables: StepTables,
    first: FirstRank | None,
    gpu: pl.DataFrame | None,
    origin_t: float | None,
    detail: Detail,
    hosts: Sequence[str] = (),
) -> Columns:
    """One row a span, by source and begin; {} where nothing tells when the run was launched."""
    if origin_t is None:
        return {}
    # As the samples that they are drawn above: all runs together share them.
    most = min(MOST_PAUSES, max(LEAST_PAUSES, detail.telemetry))
    rows: list[tuple[str, str, float, float]] = []
    facts = tables.startup
    startup = list(_startup(facts, tables.steps, origin_t)) if facts is not None else []
    if facts is not None:
        rows += [(f"rank {facts.rank}", name, *stretch) for name, stretch in startup]
    if first is not None:
        own = [stretch for _, stretch in startup] if facts is not None and facts.rank == first.rank else []
        rows += [(f"rank {first.rank}", name, *stretch) for name, stretch in _training(tables, first, own, most)]
    if gpu is not None:
        rows += throttled_spans(gpu, origin_t, most, hosts)
    return _columns(rows)


def _columns(rows: Sequence[tuple[str, str, float, float]]) -> Columns:
    kept = sorted(
        ((source, name, max(begin_s, 0.0), end_s) for source, name, begin_s, end_s in rows if end_s > max(begin_s, 0.0)), key=_place
    )
    if not kept:
        return {}
    return {name: [row[at] for row in kept] for at, name in enumerate(("source", "span", "begin_s", "end_s"))}


def _place(row: tuple[str, str, float, float]) -> tuple[str, float]:
    return row[0], row[2]


def _startup(facts: StartupFacts, steps: pl.DataFrame, origin_t: float) -> Iterator[Named]:
    """Launch to process, process to probe, and the parts that the workload named."""
    if facts.process_t is not None:
        yield "launch", Stretch(0.0, facts.process_t - origin_t)
        yield "import", Stretch(facts.process_t - origin_t, facts.start_t - origin_t)
    ahead_s = _ahead_s(facts, steps)
    if ahead_s is None:
        return
    before: list[tuple[float, Stretch]] = []
    for name, span_s, end_m in facts.spans:
        end_s = end_m + ahead_s - origin_t
        stretch, holes = _with_what_lies_inside(Stretch(end_s - span_s, end_s), before)
        before.append((span_s, stretch))
        for piece in pieces(stretch, holes):
            yield SHOWN.get(name, name), piece


def _ahead_s(facts: StartupFacts, steps: pl.DataFrame) -> float | None:
    """By how much the rank's wall clock is ahead of its monotonic one; None where it told no moment by both."""
    if facts.start_m is not None:
        return facts.start_t - facts.start_m
    rows = np.flatnonzero(steps["rank"].to_numpy() == facts.rank)
    t, m = (steps["t"][int(rows[0])], steps["m"][int(rows[0])]) if len(rows) else (None, None)
    return None if t is None or m is None else float(t - m)


def _with_what_lies_inside(stretch: Stretch, before: Sequence[tuple[float, Stretch]]) -> tuple[Stretch, list[Stretch]]:
    """A part is told without the parts inside it: it began earlier by as much, and is cut where they lie."""
    begin_s, holes = stretch.begin_s, []
    for own_s, inside in reversed(before):
        if inside.end_s <= begin_s:
            break
        begin_s -= own_s
        holes.append(inside)
    return Stretch(begin_s, stretch.end_s), holes


def pieces(whole: Stretch, holes: Sequence[Stretch]) -> Iterator[Stretch]:
    """What is left of a stretch between the holes."""
    begin_s = whole.begin_s
    for hole in sorted(holes):
        if hole.end_s <= begin_s:
            continue
        if hole.begin_s >= whole.end_s:
            break
        if hole.begin_s > begin_s:
            yield Stretch(begin_s, hole.begin_s)
        begin_s = hole.end_s
    if begin_s < whole.end_s:
        yield Stretch(begin_s, whole.end_s)


def _training(tables: StepTables, first: FirstRank, startup: Sequence[Stretch], most: int) -> Iterator[Named]:
    """Training, and the pauses that cut it; the start-up's parts cut it too, where a compiler runs in the first step."""
    known = np.flatnonzero(np.isfinite(first.t_s))
    if len(known) == 0:
        return
    begins_s = np.where(np.isfinite(first.iter_ms), first.begins_s, first.t_s)
    paused = list(_pauses(tables.pauses, first, begins_s, known, most))
    whole = Stretch(float(begins_s[known[0]]), float(first.t_s[known[-1]]))
    yield from ((TRAIN, piece) for piece in pieces(whole, [*startup, *(stretch for _, stretch in paused)]))
    yield from paused


def _pauses(pauses: pl.DataFrame, first: FirstRank, begins_s: Floats, known: Places, most: int) -> Iterator[Named]:
    if pauses.is_empty():
        return
    own = _drawn(pauses, first)
    step, pause_s = pauses["step"].to_numpy()[own], pauses["pause_ms"].to_numpy()[own] / 1000
    if len(step) == 0:
        return
    row = np.searchsorted(first.step[known], step)
    is_after = row == len(known)
    # Several that ended in one step lie one after another, the last of them right before it.
    after_s = _sums_after(row, pause_s)
    last_s = float(first.t_s[known[-1]])
    ends_s = np.where(is_after, last_s + pause_s[is_after].sum(), begins_s[known[np.minimum(row, len(known) - 1)]]) - after_s
    names = pauses["name"].filter(own).to_list()
    for at in longest_kept(pause_s, most).tolist():
        name = names[at] or "pause"
        yield SHOWN.get(name, name), Stretch(float(ends_s[at] - pause_s[at]), float(ends_s[at]))


def _drawn(pauses: pl.DataFrame, first: FirstRank) -> Mask:
    """This rank's pauses whose length is known, less those that are parts of the start-up and drawn as such."""
    rank, step, pause_ms = (pauses[name].to_numpy() for name in ("rank", "step", "pause_ms"))
    own = np.asarray((rank == first.rank) & (pause_ms > 0))
    at_start = own & (step <= first.step[0])
    return own & ~(at_start & pauses["name"].is_in(SPANS).fill_null(value=False).to_numpy()) if at_start.any() else own


def _sums_after(row: Places, pause_s: Floats) -> Floats:
    """By pause, the pauses after it that ended in the same row."""
    sums = np.cumsum(pause_s)
    last_of_row = np.searchsorted(row, row, side="right") - 1
    return np.asarray(sums[last_of_row] - sums)
