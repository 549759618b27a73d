"""charts/telemetry.csv: what the machine did from the launch on.

In: the samples of an attempt, and when it was launched. Out: one row a point, each series (a metric of the host or of a GPU) thinned by
itself, so that no peak is lost. A run of many GPUs gets fewer points of each, and where even that is too much, the GPUs whose means stand
out. Of the others there is then a series wherever one of them goes above or below all that are drawn: no extreme of a run is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from seatrial.analyse.charts.cells import cells
from seatrial.analyse.charts.thinning import LEAST_POINTS, Floats, Places, kept_places
from seatrial.analyse.column import column
from seatrial.analyse.hosts import gpu_name, of_hosts
from seatrial.records.charts import DRAWN_GPU, DRAWN_HOST, Columns
from seatrial.records.telemetry import TelemetryTables

WHOLE_SERIES = 24
"""Of the host and two GPUs: so many get all the points that were asked for."""
EXTREMES = 2 * len(DRAWN_GPU)
"""A highest and a lowest of each metric: as many series at most go beyond the GPUs that are drawn."""
MOST_HOSTS = 8
"""As many lines can be told apart in a panel."""
SHORTEST = 4
"""Points of a series: its ends, its lowest and its highest."""


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The table, and of how many GPUs it is."""

    table: Columns = field(default_factory=dict)
    gpus: int = 0
    gpus_drawn: int = 0
    """With every metric."""
    hosts: int = 0
    """Of a run on many; 0 on one."""
    hosts_drawn: int = 0


def telemetry_table(samples: TelemetryTables, origin_t: float | None, most: int) -> Columns:
    """As `telemetry_series`, the table alone."""
    return telemetry_series(samples, origin_t, most).table


def telemetry_series(samples: TelemetryTables, origin_t: float | None, most: int) -> Telemetry:
    """At most `most` points of a series; no table where nothing was sampled or nothing tells when the run was launched."""
    if origin_t is None:
        return Telemetry()
    found = _Series(origin_t)
    gpus = _Gpus() if samples.gpu is None else _choice(samples.gpu, origin_t, most)
    hosts = list(of_hosts(samples.host, samples.hosts))
    drawn = _hosts_drawn(hosts)
    series = len(DRAWN_HOST) * max(len(drawn), 1) + len(DRAWN_GPU) * max(len(gpus.drawn), 1) + len(gpus.beyond)
    most = min(most, max(LEAST_POINTS, most * WHOLE_SERIES // series))
    if samples.gpu is not None:
        for index in gpus.drawn:
            found.add(f"gpu {gpu_name(index, samples.hosts)}", samples.gpu, np.flatnonzero(gpus.of == index), DRAWN_GPU, most)
        for index, metric in gpus.beyond:
            found.add(f"gpu {gpu_name(index, samples.hosts)}", samples.gpu, np.flatnonzero(gpus.of == index), (metric,), most)
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
    """All of a few; of more node 0 and those whose means are farthest from those of the others in some metric."""
    if len(hosts) <= MOST_HOSTS:
        return list(hosts)
    means = np.array([[_mean_of(column(rows, metric)) for metric in DRAWN_HOST] for _, rows in hosts])
    share = _share_apart(means)
    share[0] = np.inf
    return [hosts[at] for at in np.sort(np.argsort(-share, kind="stable")[:MOST_HOSTS])]


def _mean_of(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else 0.0


@dataclass(frozen=True, kw_only=True)
class _Gpus:
    """Which are drawn."""

    of: Floats = field(default_factory=lambda: np.empty(0))
    """By row, its GPU; NaN before the launch."""
    count: int = 0
    drawn: tuple[int, ...] = ()
    """With every metric."""
    beyond: tuple[tuple[int, str], ...] = ()
    """Of the others, what goes beyond all drawn ones."""


class _Series:
    """The rows so far."""

    def __init__(self, origin_t: float) -> None:
        self.columns: Columns = {"source": [], "metric": [], "t_s": [], "value": []}
        self._origin_t = origin_t

    def add(self, source: str, table: pl.DataFrame, rows: Places | None, metrics: tuple[str, ...], most: int) -> None:
        at_s = column(table, "epoch_sec") - self._origin_t
        rows = np.flatnonzero(at_s >= 0) if rows is None else rows[at_s[rows] >= 0]
        # Most often all of them: then nothing need be picked out.
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
        kept = kept_places(values, most)
        self.columns["source"] += [source] * len(kept)
        self.columns["metric"] += [metric] * len(kept)
        self.columns["t_s"] += cells(at_s[kept])
        self.columns["value"] += cells(values[kept])


def _choice(table: pl.DataFrame, origin_t: float, most: int) -> _Gpus:
    """All of them, or those that stand out and what the others have beyond them."""
    # What was sampled before the launch is another run's.
    of = np.where(column(table, "epoch_sec") >= origin_t, column(table, "gpu_index"), np.nan)
    indices = np.unique(of[np.isfinite(of)]).astype(np.int64)
    if len(indices) <= _most_gpus(most, 0):
        return _Gpus(of=of, count=len(indices), drawn=tuple(indices.tolist()))
    drawn = _standing_out(table, of, indices, _most_gpus(most, EXTREMES))
    return _Gpus(of=of, count=len(indices), drawn=tuple(drawn.tolist()), beyond=tuple(_going_beyond(table, of, drawn)))


def _most_gpus(most: int, others: int) -> int:
    """As many as, beside the host and so many other series, are drawn within the points of WHOLE_SERIES."""
    return max(1, (most * WHOLE_SERIES // SHORTEST - len(DRAWN_HOST) - others) // len(DRAWN_GPU))


def _going_beyond(table: pl.DataFrame, gpu: Floats, drawn: Places) -> Iterator[tuple[int, str]]:
    """The GPU and the metric of each highest and lowest value that no drawn GPU has too, once each."""
    is_known, is_drawn = np.isfinite(gpu), np.isin(gpu, drawn)
    for metric in (metric for metric in DRAWN_GPU if metric in table.columns):
        values = column(table, metric)
        rows = np.flatnonzero(is_known & np.isfinite(values))
        shown = values[is_drawn & np.isfinite(values)]
        if len(rows) == 0:
            continue
        ends = (rows[values[rows].argmin()], rows[values[rows].argmax()])
        # Values are compared, not rows: where a drawn one comes as far, nothing is lost.
        for index in sorted({int(gpu[row]) for row in ends if values[row] not in shown}):
            yield index, metric


def _standing_out(table: pl.DataFrame, gpu: Floats, indices: Places, allowed: int) -> Places:
    """The GPUs whose means are farthest from those of the others in some metric."""
    rows = np.flatnonzero(np.isfinite(gpu))
    of = np.searchsorted(indices, gpu[rows])
    means = np.column_stack([_means(column(table, metric)[rows], of, len(indices)) for metric in DRAWN_GPU])
    share = _share_apart(means)
    return np.sort(indices[np.argsort(-share, kind="stable")[:allowed]])


def _share_apart(means: Floats) -> Floats:
    """By row, how far it is from the middle of all, of the farthest, in the metric in which it is most."""
    apart = np.abs(means - np.median(means, axis=0))
    widest = apart.max(axis=0)
    return np.asarray(np.divide(apart, widest, out=np.zeros_like(apart), where=widest > 0).max(axis=1))


def _means(values: Floats, of: Places, count: int) -> Floats:
    """By GPU; 0 where it tells none."""
    known = np.isfinite(values)
    return np.bincount(of[known], values[known], count) / np.maximum(np.bincount(of[known], minlength=count), 1)
