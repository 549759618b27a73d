"""The timeline of a run: charts/spans.csv and charts/telemetry.csv, in seconds since the launch.

In: the step tables, the telemetry and the launch. Out: named spans (the start-up of the rank that was ready last; `train` from the begin of
the first step to the end of the last, cut at pauses; GPUs while throttled) and a row for each telemetry point, each series thinned on its
own so that no peak is lost. When in a step a pause began is not recorded: it is drawn just before the step in which it ended, one after the
last step behind that. A run of many GPUs gets fewer points of each; if even these are too many, only the GPUs whose means are outliers, and
of the others every series that exceeds all drawn ones, so that no extreme is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.charts.thinning import MIN_POINTS, Floats, Indices, Mask, cells, kept_indices, longest_kept
from seatrial.analyse.steady_state import is_inside, is_time
from seatrial.analyse.step_times import CLOCK_SLACK_S
from seatrial.analyse.telemetry_summary import SETTINGS, column, finite_mean, gpu_name, tables_by_host
from seatrial.records.attempt import StartupFacts, StepTables
from seatrial.records.columns import DRAWN_GPU, DRAWN_HOST, Columns, Detail
from seatrial.records.events import SPANS
from seatrial.records.measure import Window
from seatrial.records.telemetry import TelemetryTables

Ints = npt.NDArray[np.int64]
TRAIN = "train"
SHOWN = {"model": "load model", "data": "load data", "checkpoint": "save"}
"""Clearer names for the timeline."""
MAX_PAUSES = 400
MIN_PAUSES = 10
REASONS = "throttle_reasons"
LONGEST_REASON = 100
GAP_INTERVALS = 2.5
"""After a longer silence of the sampler the time in between is unknown."""
MIN_SPANS = 5
Row = tuple[str, str, float, float]
WHOLE_SERIES = 24
"""Up to this many series, those of the host and two GPUs, get all points."""
EXTREMES = 2 * len(DRAWN_GPU)
"""A highest and a lowest of each metric: at most so many series go beyond the GPUs that are drawn."""
MAX_HOSTS = 8
"""So many lines are legible in a panel."""
SHORTEST = 4
"""Fewest points of a series: its ends, its lowest and its highest."""


@dataclass(frozen=True, kw_only=True)
class FirstRank:
    """The first rank's steps by row, as in the step table."""

    rank: int
    step: Ints
    span: Ints
    t_s: Floats
    """Time since the launch; NaN where it is unknown."""
    iter_ms: Floats
    loss: Floats
    has_loss: Mask
    is_paused: Mask
    """Whether a rank reported a pause in that step."""
    origin_t: float | None
    """Wall clock of the launch; None where no time is known."""

    def is_counted(self, window: Window | None) -> Mask:
        """Which rows are in the window and without a pause."""
        if window is None:
            return np.zeros(len(self.step), dtype=np.bool_)
        return counted_rows(self.step, self.span, self.iter_ms, self.is_paused, window)

    @property
    def begins_s(self) -> Floats:
        """When the first step of a row began; NaN where that is unknown."""
        return self.t_s - self.iter_ms * self.span / 1000


class Interval(NamedTuple):
    """An interval in seconds since the launch."""

    begin_s: float
    end_s: float


Named = tuple[str, Interval]


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The table of telemetry, and how many GPUs and hosts it shows."""

    table: Columns = field(default_factory=dict)
    gpus: int = 0
    gpus_drawn: int = 0
    """GPUs drawn with every metric."""
    hosts: int = 0
    """Hosts of a run on several; 0 on one."""
    hosts_drawn: int = 0


@dataclass(frozen=True, kw_only=True)
class _Gpus:
    """Which GPUs are drawn."""

    row_gpu: Floats = field(default_factory=lambda: np.empty(0))
    """The GPU of each row; NaN before the launch."""
    count: int = 0
    drawn: tuple[int, ...] = ()
    """GPUs drawn with every metric."""
    beyond: tuple[tuple[int, str], ...] = ()
    """Metrics of the others that exceed all drawn ones."""


class _Series:
    """The rows of the table so far."""

    def __init__(self, origin_t: float) -> None:
        self.columns: Columns = {"source": [], "metric": [], "t_s": [], "value": []}
        self._origin_t = origin_t

    def add(self, source: str, table: pl.DataFrame, rows: Indices | None, metrics: tuple[str, ...], most: int) -> None:
        at_s = column(table, "epoch_sec") - self._origin_t
        rows = np.flatnonzero(at_s >= 0) if rows is None else rows[at_s[rows] >= 0]
        # Usually all of them: then nothing is selected.
        own_s = at_s if len(rows) == len(at_s) else at_s[rows]
        for metric in (metric for metric in metrics if metric in table.columns):
            values = column(table, metric)
            values = values if len(rows) == len(at_s) else values[rows]
            known = np.isfinite(values)
            if known.all():
                self._add(source, metric, own_s, values, most)
            elif known.any():
                self._add(source, metric, own_s[known], values[known], most)

    def _add(self, source: str, metric: str, at_s: Floats, values: Floats, most: int) -> None:
        kept = kept_indices(values, most)
        self.columns["source"] += [source] * len(kept)
        self.columns["metric"] += [metric] * len(kept)
        self.columns["t_s"] += cells(at_s[kept])
        self.columns["value"] += cells(values[kept])


def counted_rows(step: Ints, span: Ints, iter_ms: Floats, is_paused: Mask, window: Window) -> Mask:
    """Which rows cover only counted steps: wholly in the window, timed and without a pause."""
    return is_inside(step, span, window.first_step, window.last_step) & is_time(iter_ms) & ~is_paused


def paused_rows(step: Ints, tables: StepTables) -> Mask:
    """Rows in which some rank reported a pause."""
    paused = tables.pauses["step"].to_numpy()
    return np.isin(step, paused) if len(paused) else np.zeros(len(step), dtype=np.bool_)


def first_rank(tables: StepTables, launched_t: float | None, *, jumped: bool) -> FirstRank | None:
    """The lowest rank's rows; None where there are no steps. `jumped` is whether the wall clock was set meanwhile."""
    if tables.steps.is_empty():
        return None
    rank = tables.steps["rank"].to_numpy()
    # The table is sorted by rank.
    rows = tables.steps.head(int(np.searchsorted(rank, rank[0], side="right")))
    step, span, t, m, iter_ms, loss = (rows[name].to_numpy() for name in ("step", "span", "t", "m", "iter_ms", "loss"))
    origin_t = _origin_t(tables, t, iter_ms, launched_t)
    return FirstRank(
        rank=int(rank[0]),
        step=step,
        span=span,
        t_s=np.full(len(t), np.nan) if origin_t is None else (_steady(t, m) if jumped else t) - origin_t,
        iter_ms=iter_ms,
        loss=loss,
        has_loss=rows["loss"].is_not_null().to_numpy() if rows["loss"].null_count() else np.ones(len(loss), dtype=np.bool_),
        is_paused=paused_rows(step, tables),
        origin_t=origin_t,
    )


def _steady(t: Floats, m: Floats) -> Floats:
    """The wall clock without changes after the first step."""
    known = np.flatnonzero(np.isfinite(t) & np.isfinite(m))
    return t if len(known) == 0 else np.asarray(t[known[0]] + m - m[known[0]])


def _origin_t(tables: StepTables, t: Floats, iter_ms: Floats, launched_t: float | None) -> float | None:
    """The launch; the first known time where it is unknown, or later than the first step because the clock was set back."""
    known = np.flatnonzero(np.isfinite(t))
    first_t = float(t[known[0]]) if len(known) else None
    if launched_t is not None and (first_t is None or launched_t <= first_t + CLOCK_SLACK_S):
        return launched_t
    if first_t is None:
        return None
    took_ms = float(iter_ms[known[0]])
    begin_t = first_t - (took_ms / 1000 if np.isfinite(took_ms) else 0.0)
    facts = tables.startup
    times = [begin_t, *([facts.start_t, facts.process_t] if facts is not None else [])]
    return min(value for value in times if value is not None)


def span_table(
    tables: StepTables,
    first: FirstRank | None,
    gpu: pl.DataFrame | None,
    origin_t: float | None,
    detail: Detail,
    hosts: Sequence[str] = (),
) -> Columns:
    """A row for each span, by source and begin; {} where the launch is unknown."""
    if origin_t is None:
        return {}
    # All runs share them, like the samples below.
    most = min(MAX_PAUSES, max(MIN_PAUSES, detail.telemetry))
    rows: list[tuple[str, str, float, float]] = []
    facts = tables.startup
    startup = list(_startup(facts, tables.steps, origin_t)) if facts is not None else []
    if facts is not None:
        rows += [(f"rank {facts.rank}", name, *interval) for name, interval in startup]
    if first is not None:
        own = [interval for _, interval in startup] if facts is not None and facts.rank == first.rank else []
        rows += [(f"rank {first.rank}", name, *interval) for name, interval in _training(tables, first, own, most)]
    if gpu is not None:
        rows += throttled_spans(gpu, origin_t, most, hosts)
    return _columns(rows)


def _columns(rows: Sequence[tuple[str, str, float, float]]) -> Columns:
    kept = [(source, name, max(begin_s, 0.0), end_s) for source, name, begin_s, end_s in rows if end_s > max(begin_s, 0.0)]
    kept.sort(key=lambda row: (row[0], row[2]))
    return {name: [row[at] for row in kept] for at, name in enumerate(("source", "span", "begin_s", "end_s"))} if kept else {}


def _startup(facts: StartupFacts, steps: pl.DataFrame, origin_t: float) -> Iterator[Named]:
    """Launch to process, process to probe, and the parts that the workload named."""
    if facts.process_t is not None:
        yield "launch", Interval(0.0, facts.process_t - origin_t)
        yield "import", Interval(facts.process_t - origin_t, facts.start_t - origin_t)
    ahead_s = _ahead_s(facts, steps)
    if ahead_s is None:
        return
    before: list[tuple[float, Interval]] = []
    for name, span_s, end_m in facts.spans:
        end_s = end_m + ahead_s - origin_t
        interval, holes = _with_nested(Interval(end_s - span_s, end_s), before)
        before.append((span_s, interval))
        for piece in pieces(interval, holes):
            yield SHOWN.get(name, name), piece


def _ahead_s(facts: StartupFacts, steps: pl.DataFrame) -> float | None:
    """The rank's wall clock minus its monotonic one; None where no moment is known on both."""
    if facts.start_m is not None:
        return facts.start_t - facts.start_m
    rows = np.flatnonzero(steps["rank"].to_numpy() == facts.rank)
    t, m = (steps["t"][int(rows[0])], steps["m"][int(rows[0])]) if len(rows) else (None, None)
    return None if t is None or m is None else float(t - m)


def _with_nested(interval: Interval, before: Sequence[tuple[float, Interval]]) -> tuple[Interval, list[Interval]]:
    """The interval with the nested ones: a part is reported without those in it, so it began earlier by their length and is cut there."""
    begin_s, holes = interval.begin_s, []
    for own_s, inside in reversed(before):
        if inside.end_s <= begin_s:
            break
        begin_s -= own_s
        holes.append(inside)
    return Interval(begin_s, interval.end_s), holes


def pieces(whole: Interval, holes: Sequence[Interval]) -> Iterator[Interval]:
    """What is left of an interval between the holes."""
    begin_s = whole.begin_s
    for hole in sorted(holes):
        if hole.end_s <= begin_s:
            continue
        if hole.begin_s >= whole.end_s:
            break
        if hole.begin_s > begin_s:
            yield Interval(begin_s, hole.begin_s)
        begin_s = hole.end_s
    if begin_s < whole.end_s:
        yield Interval(begin_s, whole.end_s)


def _training(tables: StepTables, first: FirstRank, startup: Sequence[Interval], most: int) -> Iterator[Named]:
    """Training, and the pauses that cut it; the start-up's parts cut it too, where a compiler runs in the first step."""
    known = np.flatnonzero(np.isfinite(first.t_s))
    if len(known) == 0:
        return
    begins_s = np.where(np.isfinite(first.iter_ms), first.begins_s, first.t_s)
    paused = list(_pauses(tables.pauses, first, begins_s, known, most))
    whole = Interval(float(begins_s[known[0]]), float(first.t_s[known[-1]]))
    yield from ((TRAIN, piece) for piece in pieces(whole, [*startup, *(interval for _, interval in paused)]))
    yield from paused


def _pauses(pauses: pl.DataFrame, first: FirstRank, begins_s: Floats, known: Indices, most: int) -> Iterator[Named]:
    if pauses.is_empty():
        return
    own = _drawn(pauses, first)
    step, pause_s = pauses["step"].to_numpy()[own], pauses["pause_ms"].to_numpy()[own] / 1000
    if len(step) == 0:
        return
    row = np.searchsorted(first.step[known], step)
    is_after = row == len(known)
    # Several that ended in one step follow one another, the last of them right before it.
    after_s = _sums_after(row, pause_s)
    last_s = float(first.t_s[known[-1]])
    ends_s = np.where(is_after, last_s + pause_s[is_after].sum(), begins_s[known[np.minimum(row, len(known) - 1)]]) - after_s
    names = pauses["name"].filter(own).to_list()
    for at in longest_kept(pause_s, most).tolist():
        name = names[at] or "pause"
        yield SHOWN.get(name, name), Interval(float(ends_s[at] - pause_s[at]), float(ends_s[at]))


def _drawn(pauses: pl.DataFrame, first: FirstRank) -> Mask:
    """This rank's pauses of known length, except those that are drawn as parts of the start-up."""
    rank, step, pause_ms = (pauses[name].to_numpy() for name in ("rank", "step", "pause_ms"))
    own = np.asarray((rank == first.rank) & (pause_ms > 0))
    at_start = own & (step <= first.step[0])
    return own & ~(at_start & pauses["name"].is_in(SPANS).fill_null(value=False).to_numpy()) if at_start.any() else own


def _sums_after(row: Indices, pause_s: Floats) -> Floats:
    """For each pause, the length of later pauses that ended in the same row."""
    sums = np.cumsum(pause_s)
    last_of_row = np.searchsorted(row, row, side="right") - 1
    return np.asarray(sums[last_of_row] - sums)


def throttled_spans(gpu: pl.DataFrame, origin_t: float, most: int, hosts: Sequence[str] = ()) -> list[Row]:
    """Source, name, begin and end; at most about `most` of all GPUs together, the longest."""
    if REASONS not in gpu.columns:
        return []
    written = gpu[REASONS].to_list()
    known = {text: _reason(text) for text in set(written) if text}
    reasons = ["", *dict.fromkeys(reason for reason in known.values() if reason)]
    if len(reasons) == 1:
        return []
    code = np.array([reasons.index(known.get(text, "")) for text in written])
    index, at_s = column(gpu, "gpu_index"), column(gpu, "epoch_sec") - origin_t
    indices = np.unique(index[np.isfinite(index)]).astype(np.int64).tolist()
    each = max(MIN_SPANS, most // len(indices)) if indices else 0
    rows: list[Row] = []
    for one in indices:
        own = np.flatnonzero(index == one)
        rows += [
            (f"gpu {gpu_name(one, hosts)}", f"throttled {reasons[at]}", begin_s, end_s)
            for at, begin_s, end_s in _merged(code[own], at_s[own], each)
        ]
    return rows


def _reason(text: str) -> str:
    return "+".join(word for word in text.split("+") if word and word not in SETTINGS)[:LONGEST_REASON]


def _merged(code: Indices, at_s: Floats, most: int) -> Iterator[tuple[int, float, float]]:
    """The longest throttled intervals, merged from consecutive samples with the same reasons."""
    since_s = np.diff(at_s)
    interval_s = float(np.median(since_s)) if len(since_s) else 1.0
    is_gap = since_s > GAP_INTERVALS * interval_s
    first = np.concatenate([[0], np.flatnonzero((np.diff(code) != 0) | is_gap) + 1])
    last = np.append(first[1:], len(code)) - 1
    # Each sample holds until the next one, but not across a gap.
    held_s = np.append(np.where(is_gap, interval_s, since_s), interval_s)
    begin_s, end_s, throttled = at_s[first], at_s[last] + held_s[last], np.flatnonzero(code[first])
    for at in throttled[longest_kept((end_s - begin_s)[throttled], most)].tolist():
        yield int(code[first[at]]), float(begin_s[at]), float(end_s[at])


def telemetry_series(samples: TelemetryTables, origin_t: float | None, most: int) -> Telemetry:
    """At most `most` points of a series; no table where nothing was sampled or the launch is unknown."""
    if origin_t is None:
        return Telemetry()
    found = _Series(origin_t)
    gpus = _Gpus() if samples.gpu is None else _choice(samples.gpu, origin_t, most)
    hosts = list(tables_by_host(samples.host, samples.hosts))
    drawn = _hosts_drawn(hosts)
    series = len(DRAWN_HOST) * max(len(drawn), 1) + len(DRAWN_GPU) * max(len(gpus.drawn), 1) + len(gpus.beyond)
    most = min(most, max(MIN_POINTS, most * WHOLE_SERIES // series))
    if samples.gpu is not None:
        for index in gpus.drawn:
            found.add(f"gpu {gpu_name(index, samples.hosts)}", samples.gpu, np.flatnonzero(gpus.row_gpu == index), DRAWN_GPU, most)
        for index, metric in gpus.beyond:
            found.add(f"gpu {gpu_name(index, samples.hosts)}", samples.gpu, np.flatnonzero(gpus.row_gpu == index), (metric,), most)
    for name, rows in drawn:
        found.add(f"host {name}".rstrip(), rows, None, DRAWN_HOST, most)
    return Telemetry(
        table=found.columns if found.columns["source"] else {},
        gpus=gpus.count,
        gpus_drawn=len(gpus.drawn),
        hosts=len(hosts) if samples.hosts else 0,
        hosts_drawn=len(drawn) if samples.hosts else 0,
    )


def _hosts_drawn(hosts: Sequence[tuple[str, pl.DataFrame]]) -> list[tuple[str, pl.DataFrame]]:
    """All hosts, or of many node 0 and those whose means are farthest from those of the others in some metric."""
    if len(hosts) <= MAX_HOSTS:
        return list(hosts)
    means = np.array([[finite_mean(column(rows, metric)) or 0.0 for metric in DRAWN_HOST] for _, rows in hosts])
    share = _share_apart(means)
    share[0] = np.inf
    return [hosts[at] for at in np.sort(np.argsort(-share, kind="stable")[:MAX_HOSTS])]


def _choice(table: pl.DataFrame, origin_t: float, most: int) -> _Gpus:
    """All GPUs, or the outliers and what the others have beyond their range."""
    # Samples from before the launch are another run's.
    gpu = np.where(column(table, "epoch_sec") >= origin_t, column(table, "gpu_index"), np.nan)
    indices = np.unique(gpu[np.isfinite(gpu)]).astype(np.int64)
    if len(indices) <= _most_gpus(most, 0):
        return _Gpus(row_gpu=gpu, count=len(indices), drawn=tuple(indices.tolist()))
    drawn = _outliers(table, gpu, indices, _most_gpus(most, EXTREMES))
    return _Gpus(row_gpu=gpu, count=len(indices), drawn=tuple(drawn.tolist()), beyond=tuple(_outside_range(table, gpu, drawn)))


def _most_gpus(most: int, others: int) -> int:
    """How many GPUs fit within the points of WHOLE_SERIES, with the host and `others` more series."""
    return max(1, (most * WHOLE_SERIES // SHORTEST - len(DRAWN_HOST) - others) // len(DRAWN_GPU))


def _outside_range(table: pl.DataFrame, gpu: Floats, drawn: Indices) -> Iterator[tuple[int, str]]:
    """The GPU and the metric of each highest and lowest value that no drawn GPU has, once each."""
    is_known, is_drawn = np.isfinite(gpu), np.isin(gpu, drawn)
    for metric in (metric for metric in DRAWN_GPU if metric in table.columns):
        values = column(table, metric)
        rows = np.flatnonzero(is_known & np.isfinite(values))
        shown = values[is_drawn & np.isfinite(values)]
        if len(rows) == 0:
            continue
        ends = (rows[values[rows].argmin()], rows[values[rows].argmax()])
        # Values are compared, not rows: where a drawn GPU has the same value, nothing is lost.
        for index in sorted({int(gpu[row]) for row in ends if values[row] not in shown}):
            yield index, metric


def _outliers(table: pl.DataFrame, gpu: Floats, indices: Indices, allowed: int) -> Indices:
    """The GPUs whose means are farthest from those of the others in some metric."""
    rows = np.flatnonzero(np.isfinite(gpu))
    of = np.searchsorted(indices, gpu[rows])
    means = np.column_stack([_means(column(table, metric)[rows], of, len(indices)) for metric in DRAWN_GPU])
    share = _share_apart(means)
    return np.sort(indices[np.argsort(-share, kind="stable")[:allowed]])


def _share_apart(means: Floats) -> Floats:
    """The distance of each row from the median relative to the farthest, in the metric where that is largest."""
    distance = np.abs(means - np.median(means, axis=0))
    widest = distance.max(axis=0)
    return np.asarray(np.divide(distance, widest, out=np.zeros_like(distance), where=widest > 0).max(axis=1))


def _means(values: Floats, of: Indices, count: int) -> Floats:
    """The mean of each GPU; 0 where it has no value."""
    known = np.isfinite(values)
    return np.bincount(of[known], values[known], count) / np.maximum(np.bincount(of[known], minlength=count), 1)
