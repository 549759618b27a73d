"""charts/telemetry.csv: what the machine did from the launch on.

In: the samples of an attempt, and when it was launched. Out: one row a point, each series (a metric of the host or of a GPU) thinned by
itself, so that no peak is lost. A run of many GPUs gets fewer points of each, and where even that is too much, the GPUs that stand out.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from seatrial.analyse.charts.cells import cells
from seatrial.analyse.charts.thinning import LEAST_POINTS, Floats, Places, kept_places
from seatrial.analyse.column import column
from seatrial.records.charts import DRAWN_GPU, DRAWN_HOST, Columns
from seatrial.records.telemetry import TelemetryTables

WHOLE_SERIES = 24
"""Of the host and two GPUs: so many get all the points that were asked for."""


def telemetry_table(samples: TelemetryTables, origin_t: float | None, most: int) -> Columns:
    """At most `most` points of a series; {} where nothing was sampled or nothing tells when the run was launched."""
    if origin_t is None:
        return {}
    found = _Series(origin_t)
    each = {} if samples.gpu is None else _by_gpu(samples.gpu, most)
    most = min(most, max(LEAST_POINTS, most * WHOLE_SERIES // (len(DRAWN_HOST) + len(DRAWN_GPU) * max(len(each), 1))))
    for index, rows in each.items():
        assert samples.gpu is not None
        found.add(f"gpu {index}", samples.gpu, rows, DRAWN_GPU, most)
    if samples.host is not None:
        found.add("host", samples.host, None, DRAWN_HOST, most)
    return found.columns if found.columns["source"] else {}


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


def _by_gpu(table: pl.DataFrame, most: int) -> dict[int, Places]:
    """The rows of each GPU that is drawn, by its index."""
    gpu = column(table, "gpu_index")
    indices = np.unique(gpu[np.isfinite(gpu)]).astype(np.int64)
    if len(indices) > (allowed := _most_gpus(most)):
        indices = _standing_out(table, gpu, indices, allowed)
    return {int(index): np.flatnonzero(gpu == index) for index in indices}


def _most_gpus(most: int) -> int:
    """As many as have LEAST_POINTS of each metric within the points of WHOLE_SERIES."""
    return max(2, (most * WHOLE_SERIES // LEAST_POINTS - len(DRAWN_HOST)) // len(DRAWN_GPU))


def _standing_out(table: pl.DataFrame, gpu: Floats, indices: Places, allowed: int) -> Places:
    """The GPUs whose means are farthest from those of the others in some metric."""
    of = np.searchsorted(indices, np.where(np.isfinite(gpu), gpu, indices[0]))
    means = np.column_stack([_means(column(table, metric), of, len(indices)) for metric in DRAWN_GPU])
    apart = np.abs(means - np.median(means, axis=0))
    widest = apart.max(axis=0)
    share = np.divide(apart, widest, out=np.zeros_like(apart), where=widest > 0).max(axis=1)
    return np.sort(indices[np.argsort(-share, kind="stable")[:allowed]])


def _means(values: Floats, of: Places, count: int) -> Floats:
    """By GPU; 0 where it tells none."""
    known = np.isfinite(values)
    return np.bincount(of[known], values[known], count) / np.maximum(np.bincount(of[known], minlength=count), 1)
