"""Times of the window in which nobody looked at the machine.

In: the samples, the samplers' account and the window. Out: cause `telemetry_gaps`. A sampler that comes late was kept from the
processor or waited for the driver, and so, most likely, were the ranks; and what happened meanwhile is not known.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from seatrial.analyse.column import column
from seatrial.analyse.telemetry import samplers
from seatrial.analyse.uneven_span import Floats, Span
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.health import UnevenCause
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount, TelemetryTables

LEAST_INTERVALS = 10
"""In a shorter window one late sample is a large share."""
GAP_INTERVALS = 2.0
"""As the sampler counts them."""
LEAST_LOST = 0.05
"""Of the window: what is not seen for less time moves no figure."""
WEIGHT = 0.25
"""A gap hides what happened; it is weaker evidence than anything seen."""


def gap_causes(samples: TelemetryTables, account: TelemetryAccount, span: Span) -> Iterator[UnevenCause]:
    """Of each sampler, where it missed much of the window; the worse of the two."""
    tables = {"GPU": samples.gpu, "host": samples.host}
    found = [cause for kind, sampler in samplers(account) for cause in _gaps(kind, tables[kind], sampler, span)]
    yield from sorted(found, key=lambda cause: -cause.strength)[:1]


def _gaps(kind: str, table: pl.DataFrame | None, sampler: SamplerAccount, span: Span) -> Iterator[UnevenCause]:
    if table is None or sampler.interval_s <= 0:
        return
    between_s = np.diff(_looked_at(table, span))
    window_s = float(between_s.sum())
    late_s = between_s[between_s > GAP_INTERVALS * sampler.interval_s]
    lost_s = float((late_s - sampler.interval_s).sum())
    if window_s < LEAST_INTERVALS * sampler.interval_s or lost_s < LEAST_LOST * window_s:
        return
    lost, n = lost_s / window_s, len(between_s)
    yield UnevenCause(
        kind="telemetry_gaps",
        text=f"{kind} telemetry has {_count(len(late_s))} in {span.words}, the longest of {late_s.max():.1f} s at an interval of "
        f"{sampler.interval_s:g} s: {lost:.0%} of {window_s:.0f} s were not looked at (n = {n}). The host was too busy or the driver too "
        "slow: look into the kernel's log and at what else runs there.",
        numbers={"gaps": len(late_s), "longest_s": float(late_s.max()), "lost_ratio": lost, "interval_s": sampler.interval_s},
        file=(ATTEMPT_FILES.gpu_telemetry if kind == "GPU" else ATTEMPT_FILES.host_telemetry).name,
        window=span.words,
        n=n,
        strength=WEIGHT * min(1.0, lost),
    )


def _looked_at(table: pl.DataFrame, span: Span) -> Floats:
    """Times of the looks inside the window, with its ends: what lies before the first look or after the last was not seen either."""
    at = column(span.rows(table), "epoch_sec")
    ends = [end for end in (span.first_t, span.last_t) if end is not None]
    return np.sort(np.concatenate((at, ends)))


def _count(gaps: int) -> str:
    return "a gap" if gaps == 1 else f"{gaps} gaps"
