"""GPUs that work in turns, or one for the other.

In: the GPUs' samples, the window and the number of ranks. Out: the causes of analyse.uneven_clocks, then `anti_correlated_gpus` or
`gpu_imbalance`. Ranks that train one model work at the same time; where one GPU is busy while another idles, one waits for the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.column import column
from seatrial.analyse.hosts import gpu_name
from seatrial.analyse.quantile import median
from seatrial.analyse.uneven_clocks import clock_causes
from seatrial.analyse.uneven_span import Floats, Span
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.health import UnevenCause

FILE = ATTEMPT_FILES.gpu_telemetry.name
LEAST_SAMPLES = 20
"""Of fewer a correlation, and a share, is chance."""
LEAST_SWING_PCT = 30.0
"""Between the tenth and the ninetieth percentile of a GPU's utilisation: what moves less is noise about a level."""
MOST_CORRELATION = -0.5
"""Spearman's; weaker than this, other things decide more about the one than the other does."""
LEAST_WIDTHS = 4.0
"""Standard deviations of chance: with 28 pairs of eight GPUs fewer than 1 in 1,000 healthy runs is this far out."""
BUSY_PCT, IDLE_PCT = 90.0, 10.0
"""The seeds' extreme imbalance: one GPU at least, another at most."""
LEAST_EXTREME = 0.2
"""Of the samples: less can come from moments at which a loader or a checkpoint held one rank."""
SAME_LOOK = 0.5
"""Of an interval: samples of two GPUs that are nearer than this are of one look."""
ADVICE = "Look at the links between them (`nvidia-smi topo -m`), the placement of ranks and the host's load before anything is tuned"


@dataclass(frozen=True, kw_only=True)
class _Looks:
    """Utilisation in percent, one row a look, one column a GPU."""

    gpus: list[int | str]
    """Their names."""
    util: Floats

    @property
    def extreme_share(self) -> float:
        return float(((self.util.max(axis=1) >= BUSY_PCT) & (self.util.min(axis=1) <= IDLE_PCT)).mean())

    @property
    def gap_mean_pct(self) -> float:
        return float((self.util.max(axis=1) - self.util.min(axis=1)).mean())


def gpu_causes(table: pl.DataFrame, span: Span, world_size: int, hosts: Sequence[str] = ()) -> Iterator[UnevenCause]:
    """What held the clocks back, and GPUs that do not work together."""
    rows = span.rows(table)
    if rows.is_empty() or "gpu_index" not in rows.columns:
        return
    gpu = column(rows, "gpu_index")
    yield from clock_causes(rows, gpu, span, hosts)
    looks = _looks(gpu, column(rows, "epoch_sec"), column(rows, "util_gpu_pct"), world_size)
    if looks is not None:
        looks = replace(looks, gpus=[gpu_name(int(index), hosts) for index in looks.gpus])
        yield from _in_turns(looks, span) or _imbalance(looks, span)


def _looks(gpu: Floats, at: Floats, util: Floats, world_size: int) -> _Looks | None:
    """The samples of all GPUs laid beside one another; None where there are too few."""
    known = ~np.isnan(gpu + util)
    gpu, at, util = gpu[known], at[known], util[known]
    each = {int(index): gpu == index for index in np.unique(gpu)}
    if world_size < len(each):
        # A GPU that no rank works on idles as it should.
        each = {index: own for index, own in each.items() if util[own].max() > IDLE_PCT}
    if len(each) < 2 or min(int(own.sum()) for own in each.values()) < LEAST_SAMPLES:
        return None
    first_at = at[next(iter(each.values()))]
    near_s = SAME_LOOK * median(np.diff(first_at))
    columns = [_beside(first_at, at[own], util[own], near_s) for own in each.values()]
    table = np.stack(columns, axis=1)
    table = table[~np.isnan(table).any(axis=1)]
    return _Looks(gpus=list(each), util=table) if len(table) >= LEAST_SAMPLES else None


def _beside(wanted: Floats, at: Floats, values: Floats, near_s: float) -> Floats:
    """By wanted time, the value nearest to it; NaN where none is near."""
    after = np.minimum(np.searchsorted(at, wanted), len(at) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(at[before] - wanted) < np.abs(at[after] - wanted), before, after)
    return np.where(np.abs(at[nearest] - wanted) <= near_s, values[nearest], np.nan)


def _in_turns(looks: _Looks, span: Span) -> list[UnevenCause]:
    """The pair whose utilisation is most clearly anti-correlated, if any is."""
    swings = np.flatnonzero(_swing_pct(looks.util) >= LEAST_SWING_PCT)
    if len(swings) < 2:
        return []
    ranks = np.stack([_mean_ranks(looks.util[:, place]) for place in swings])
    correlation: Floats = np.atleast_2d(np.corrcoef(ranks))
    widths = -correlation * np.sqrt(_independent(ranks) - 1)
    clear = (correlation <= MOST_CORRELATION) & (widths >= LEAST_WIDTHS)
    if not clear.any():
        return []
    first, second = np.unravel_index(np.argmin(np.where(clear, correlation, 1.0)), correlation.shape)
    names = [looks.gpus[int(swings[place])] for place in sorted((first, second))]
    return [_turns(names, float(correlation[first, second]), looks, span)]


def _turns(names: list[int | str], correlation: float, looks: _Looks, span: Span) -> UnevenCause:
    n = len(looks.util)
    return UnevenCause(
        kind="anti_correlated_gpus",
        text=f"GPU {names[0]} and GPU {names[1]} work in turns: the rank correlation of their utilisation is {correlation:.2f} (n = {n} "
        f"samples, {span.words}); {_apart(looks)}. {ADVICE}.",
        numbers={
            "gpu_a": names[0],
            "gpu_b": names[1],
            "rank_correlation": correlation,
            "extreme_imbalance_ratio": looks.extreme_share,
            "gpu_util_gap_mean_pct": looks.gap_mean_pct,
        },
        file=FILE,
        window=span.words,
        n=n,
        strength=-correlation,
    )


def _imbalance(looks: _Looks, span: Span) -> list[UnevenCause]:
    share, means, n = looks.extreme_share, looks.util.mean(axis=0), len(looks.util)
    if share < LEAST_EXTREME:
        return []
    busiest, idlest = looks.gpus[int(means.argmax())], looks.gpus[int(means.argmin())]
    return [
        UnevenCause(
            kind="gpu_imbalance",
            text=f"GPU {idlest} was at {means.min():.0f} % in the mean while GPU {busiest} was at {means.max():.0f} % (n = {n} samples, "
            f"{span.words}); {_apart(looks)}. See that every rank has a GPU of its own and as much to do as the others.",
            numbers={
                "gpu_idlest": idlest,
                "gpu_busiest": busiest,
                "extreme_imbalance_ratio": share,
                "gpu_util_gap_mean_pct": looks.gap_mean_pct,
            },
            file=FILE,
            window=span.words,
            n=n,
            strength=share,
        )
    ]


def _apart(looks: _Looks) -> str:
    return (
        f"in {looks.extreme_share:.0%} of them one GPU was at {BUSY_PCT:.0f} % or more while another was at {IDLE_PCT:.0f} % or less, "
        f"and the busiest was {looks.gap_mean_pct:.0f} points above the idlest in the mean"
    )


def _swing_pct(util: Floats) -> Floats:
    """By GPU, from the tenth to the ninetieth percentile."""
    ordered = np.sort(util, axis=0)
    return np.asarray(ordered[int(0.9 * (len(util) - 1))] - ordered[math.ceil(0.1 * (len(util) - 1))], dtype=np.float64)


def _mean_ranks(values: Floats) -> Floats:
    """Ranks from 0, the mean one where values are alike, as most are at 0 and at 100."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts + 1) / 2)[place], dtype=np.float64)


def _independent(ranks: Floats) -> Floats:
    """By pair, how many samples that know nothing of one another these are worth: utilisation lasts longer than an interval."""
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    lasting = (centred[:, 1:] * centred[:, :-1]).sum(axis=1) / (centred**2).sum(axis=1)
    product = np.clip(np.multiply.outer(lasting, lasting), 0.0, None)
    worth: npt.NDArray[np.float64] = np.maximum(2.0, ranks.shape[1] * (1 - product) / (1 + product))
    return worth
