"""When something held a GPU's clocks back.

In: the samples of the GPUs, and the launch. Out: spans `throttled REASON` by GPU, merged over samples that follow one another and say the
same: each from its first sample to the sample after its last. Clocks that somebody set are no throttling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from seatrial.analyse.charts.thinning import Floats, Places, longest_kept
from seatrial.analyse.column import column
from seatrial.analyse.hosts import gpu_name
from seatrial.analyse.telemetry import SETTINGS

REASONS = "throttle_reasons"
LONGEST_REASON = 100
GAP_INTERVALS = 2.5
"""After a longer silence of the sampler nothing is known of the time in between."""
LEAST_SPANS = 5

Row = tuple[str, str, float, float]


def throttled_spans(gpu: pl.DataFrame, origin_t: float, most: int, hosts: Sequence[str] = ()) -> list[Row]:
    """Source, name, begin and end; at most about `most` of all GPUs together, the longest."""
    if REASONS not in gpu.columns:
        return []
    written = gpu[REASONS].to_list()
    told = {text: _reason(text) for text in set(written) if text}
    reasons = ["", *dict.fromkeys(reason for reason in told.values() if reason)]
    if len(reasons) == 1:
        return []
    code = np.array([reasons.index(told.get(text, "")) for text in written])
    index, at_s = column(gpu, "gpu_index"), column(gpu, "epoch_sec") - origin_t
    indices = np.unique(index[np.isfinite(index)]).astype(np.int64).tolist()
    each = max(LEAST_SPANS, most // len(indices)) if indices else 0
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


def _merged(code: Places, at_s: Floats, most: int) -> Iterator[tuple[int, float, float]]:
    """Samples that say the same, taken together: the longest stretches that say something."""
    since_s = np.diff(at_s)
    interval_s = float(np.median(since_s)) if len(since_s) else 1.0
    is_gap = since_s > GAP_INTERVALS * interval_s
    first = np.concatenate([[0], np.flatnonzero((np.diff(code) != 0) | is_gap) + 1])
    last = np.append(first[1:], len(code)) - 1
    # Each sample holds until the next one; what comes after a gap, or after the last, is not known.
    held_s = np.append(np.where(is_gap, interval_s, since_s), interval_s)
    begin_s, end_s, said = at_s[first], at_s[last] + held_s[last], np.flatnonzero(code[first])
    for at in said[longest_kept((end_s - begin_s)[said], most)].tolist():
        yield int(code[first[at]]), float(begin_s[at]), float(end_s[at])
