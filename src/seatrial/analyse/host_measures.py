"""What each of many hosts did while a run was measured.

In: the samples of all hosts and the window on the wall clock. Out: one `HostMeasure` for each host that was sampled. Network traffic is
that of the whole host: beside the share of a step that ranks spend where they meet it tells whether hosts exchange much or little, and
which of them sends less; whose link is the slow one it does not tell, since all ranks of an exchange end it together.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from seatrial.analyse.column import column, known_mean
from seatrial.analyse.hosts import of_hosts
from seatrial.analyse.uneven_span import Span
from seatrial.records.measure import HostMeasure
from seatrial.records.telemetry import TelemetryTables
from seatrial.units import KIB_PER_MIB


def host_measures(samples: TelemetryTables, span: Span) -> tuple[HostMeasure, ...]:
    """By node rank; none for a run on one host, whose figures are the run's."""
    if not samples.hosts:
        return ()
    host, gpu = dict(of_hosts(samples.host, samples.hosts)), dict(of_hosts(samples.gpu, samples.hosts))
    return tuple(_measure(name, host.get(name), gpu.get(name), span) for name in samples.hosts if name in host or name in gpu)


def _measure(name: str, host: pl.DataFrame | None, gpu: pl.DataFrame | None, span: Span) -> HostMeasure:
    cards = 0 if gpu is None else len(np.unique(column(gpu, "gpu_index")))
    util = None if gpu is None else known_mean(column(span.rows(gpu), "util_gpu_pct"))
    if host is None:
        return HostMeasure(host=name, gpus=cards, gpu_util_mean_pct=util)
    rows = span.rows(host)
    rss, rx, tx = (column(rows, column_name) for column_name in ("rss_kib", "net_rx_kib_per_s", "net_tx_kib_per_s"))
    return HostMeasure(
        host=name,
        gpus=cards,
        cpu_busy_mean_pct=known_mean(column(rows, "cpu_user_pct") + column(rows, "cpu_system_pct")),
        rss_peak_mib=_mib(float(np.nanmax(rss)) if np.isfinite(rss).any() else None),
        net_rx_mean_mib_per_s=_mib(known_mean(rx)),
        net_tx_mean_mib_per_s=_mib(known_mean(tx)),
        gpu_util_mean_pct=util,
        n=len(rows),
    )


def _mib(kib: float | None) -> float | None:
    return None if kib is None else kib / KIB_PER_MIB
