"""GPUs that were throttled by power, heat or something else, and GPUs that do not work at the same time.

In: the GPUs' samples, the window and the number of ranks. Out: causes `thermal`, `power_cap` and `throttling`, each for the GPU most
affected; then `anti_correlated_gpus` or `gpu_imbalance`. A sample with a thermal reason counts as thermal, else one with a power reason as
power: the driver sets general flags along with the specific one. Ranks that train one model work at the same time; where one GPU is busy
while another idles, one waits for the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.statistics import median, mid_ranks
from seatrial.analyse.telemetry_summary import SETTINGS, Floats, WindowSpan, column, finite_mean, gpu_name
from seatrial.core.paths import ATTEMPT_FILES
from seatrial.records.measure import (
    ANTI_CORRELATED_GPUS,
    ANTI_CORRELATION_MAX_COEFFICIENT,
    ANTI_CORRELATION_MIN_SAMPLES,
    ANTI_CORRELATION_MIN_SIGMAS,
    ANTI_CORRELATION_MIN_SWING_PCT,
    IDLE_PCT,
    JitterCause,
)

MIN_CLOCK_SAMPLES = 10
"""Samples of one GPU; with fewer, a single throttled sample would be a large share."""
THERMAL = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
POWER = frozenset({"sw_power_cap", "hw_power_brake_slowdown"})
FREE = -1
KINDS = ("thermal", "power_cap", "throttling")
MIN_SHARE = {"thermal": 0.05, "power_cap": 0.2, "throttling": 0.05}
"""Share of a GPU's samples. A healthy GPU under load touches its power limit now and then, but is never too hot."""
WEIGHT = {"thermal": 1.0, "power_cap": 0.5, "throttling": 1.0}
"""A GPU at its power limit may be as steady as any other, so it is weaker evidence than heat."""
AT_LIMIT = 0.9
"""Share of the GPU's own limit: below it, another limit throttles the GPU."""
CLOCK_ADVICE = {
    "thermal": "Check its cooling (fans, air flow, inlet temperature) and run again",
    "throttling": "`nvidia-smi -q -d PERFORMANCE` shows more; compare only with runs throttled the same way",
}
FILE = ATTEMPT_FILES.gpu_telemetry.name
BUSY_PCT = 90.0
"""Stage 1's extreme imbalance: one GPU at or above this, another at or below IDLE_PCT."""
MIN_EXTREME = 0.2
"""Share of the samples: less can be moments at which a loader or a checkpoint delayed one rank."""
SIMULTANEOUS = 0.5
"""Share of an interval: samples of two GPUs closer than this are simultaneous."""
ANTI_CORRELATION_ADVICE = "Check the links between them (`nvidia-smi topo -m`), the placement of ranks and the host's load before tuning"


@dataclass(frozen=True, kw_only=True)
class _Throttled:
    """The GPU that a kind of reason throttles most."""

    kind: str
    gpu: int
    others: int
    """The number of other GPUs that are throttled too."""
    reasons: str
    """The driver's reasons for all GPUs."""
    own: npt.NDArray[np.bool_]
    """Which samples are its own."""
    throttled: npt.NDArray[np.bool_]
    """Which of these were throttled."""

    @property
    def share(self) -> float:
        return float(self.throttled.sum() / self.own.sum())


@dataclass(frozen=True, kw_only=True)
class _Utilisation:
    """Utilisation in percent: a row for each time, a column for each GPU."""

    gpus: list[int | str]
    """Their names."""
    util: Floats

    @property
    def extreme_share(self) -> float:
        return float(((self.util.max(axis=1) >= BUSY_PCT) & (self.util.min(axis=1) <= IDLE_PCT)).mean())

    @property
    def gap_mean_pct(self) -> float:
        return float((self.util.max(axis=1) - self.util.min(axis=1)).mean())


def clock_causes(rows: pl.DataFrame, gpu: Floats, span: WindowSpan, hosts: Sequence[str] = ()) -> Iterator[JitterCause]:
    """At most one cause of each kind."""
    for found in _throttled(rows, gpu):
        yield _cause(found, rows, span, gpu_name(found.gpu, hosts))


def _throttled(rows: pl.DataFrame, gpu: Floats) -> Iterator[_Throttled]:
    reasons: pl.Series | None = rows.get_column("throttle_reasons", default=None)
    if reasons is None or np.isnan(gpu).any():
        return
    texts = reasons.to_list()
    kinds = {text: _kind(text) for text in set(texts)}
    if set(kinds.values()) == {FREE}:
        return
    sample_kind = np.array([kinds[text] for text in texts])
    gpus, index, samples = np.unique(gpu, return_inverse=True, return_counts=True)
    for number, kind in enumerate(KINDS):
        count = np.bincount(index[sample_kind == number], minlength=len(gpus))
        share = np.where(samples >= MIN_CLOCK_SAMPLES, count / samples, 0.0)
        worst = int(share.argmax())
        if share[worst] >= MIN_SHARE[kind]:
            yield _Throttled(
                kind=kind,
                gpu=int(gpus[worst]),
                others=int((share >= MIN_SHARE[kind]).sum()) - 1,
                reasons="+".join(sorted({word for text, own in kinds.items() if own == number for word in _reasons(text)})),
                own=index == worst,
                throttled=(index == worst) & (sample_kind == number),
            )


def _kind(text: str | None) -> int:
    reasons = _reasons(text)
    if not reasons:
        return FREE
    return 0 if reasons & THERMAL else 1 if reasons & POWER else 2


def _reasons(text: str | None) -> set[str]:
    return {word for word in (text or "").split("+") if word and word not in SETTINGS}


def _cause(found: _Throttled, rows: pl.DataFrame, span: WindowSpan, gpu: int | str) -> JitterCause:
    n = int(found.own.sum())
    power_w, limit_w, temp_c, clock_mhz = (
        finite_mean(column(rows, name)[found.throttled]) for name in ("power_w", "power_limit_w", "temp_c", "sm_clock_mhz")
    )
    free_mhz = finite_mean(column(rows, "sm_clock_mhz")[found.own & ~found.throttled])
    limit = f" of {limit_w:.0f} W" if limit_w is not None else ""
    otherwise = f" ({free_mhz:.0f} MHz otherwise)" if free_mhz is not None else ""
    seen = [
        f"{temp_c:.0f} °C" if temp_c is not None else "",
        f"{power_w:.0f} W{limit}" if power_w is not None else "",
        f"{clock_mhz:.0f} MHz{otherwise}" if clock_mhz is not None else "",
    ]
    also = f", and so {'was' if found.others == 1 else 'were'} {found.others} more" if found.others else ""
    means = ", ".join(filter(None, seen))
    meanwhile = f"; then on average {means}" if means else ""
    return JitterCause(
        kind=found.kind,
        text=f"GPU {gpu} was throttled ({found.reasons}) in {found.share:.0%} of {n} samples ({span.text}){also}{meanwhile}. "
        f"{CLOCK_ADVICE.get(found.kind) or _power_advice(power_w, limit_w)}.",
        numbers={
            "gpu": gpu,
            "held_ratio": found.share,
            "gpus": found.others + 1,
            "temp_c": temp_c,
            "power_w": power_w,
            "power_limit_w": limit_w,
            "sm_clock_mhz": clock_mhz,
            "sm_clock_free_mhz": free_mhz,
            "reasons": found.reasons,
        },
        file=FILE,
        window=span.text,
        n=n,
        strength=WEIGHT[found.kind] * found.share,
    )


def _power_advice(power_w: float | None, limit_w: float | None) -> str:
    if power_w is not None and limit_w is not None and power_w < AT_LIMIT * limit_w:
        return "It is below its own limit, so the node or the rack limits it: check the power supply and caps set above the GPU"
    return "Raise the limit where it is below the GPU's default (`nvidia-smi -q -d POWER`); compare only with runs under the same limit"


def gpu_causes(table: pl.DataFrame, span: WindowSpan, world_size: int, hosts: Sequence[str] = ()) -> Iterator[JitterCause]:
    rows = span.rows(table)
    if rows.is_empty() or "gpu_index" not in rows.columns:
        return
    gpu = column(rows, "gpu_index")
    yield from clock_causes(rows, gpu, span, hosts)
    samples = _simultaneous(gpu, column(rows, "epoch_sec"), column(rows, "util_gpu_pct"), world_size)
    if samples is not None:
        samples = replace(samples, gpus=[gpu_name(int(index), hosts) for index in samples.gpus])
        yield from _anti_correlated(samples, span) or _imbalance(samples, span)


def _simultaneous(gpu: Floats, at: Floats, util: Floats, world_size: int) -> _Utilisation | None:
    """The samples of all GPUs aligned in time; None where there are too few."""
    known = ~np.isnan(gpu + util)
    gpu, at, util = gpu[known], at[known], util[known]
    each = {int(index): gpu == index for index in np.unique(gpu)}
    if world_size < len(each):
        # A GPU without a rank idles as it should.
        each = {index: own for index, own in each.items() if util[own].max() > IDLE_PCT}
    if len(each) < 2 or min(int(own.sum()) for own in each.values()) < ANTI_CORRELATION_MIN_SAMPLES:
        return None
    first_at = at[next(iter(each.values()))]
    near_s = SIMULTANEOUS * median(np.diff(first_at))
    columns = [_nearest(first_at, at[own], util[own], near_s) for own in each.values()]
    table = np.stack(columns, axis=1)
    table = table[~np.isnan(table).any(axis=1)]
    return _Utilisation(gpus=list(each), util=table) if len(table) >= ANTI_CORRELATION_MIN_SAMPLES else None


def _nearest(wanted: Floats, at: Floats, values: Floats, near_s: float) -> Floats:
    """The value nearest to each wanted time; NaN where none is near."""
    after = np.minimum(np.searchsorted(at, wanted), len(at) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(at[before] - wanted) < np.abs(at[after] - wanted), before, after)
    return np.where(np.abs(at[nearest] - wanted) <= near_s, values[nearest], np.nan)


def _anti_correlated(samples: _Utilisation, span: WindowSpan) -> list[JitterCause]:
    """The most clearly anti-correlated pair, if there is one."""
    ordered, last = np.sort(samples.util, axis=0), len(samples.util) - 1
    swings = np.flatnonzero(ordered[int(0.9 * last)] - ordered[math.ceil(0.1 * last)] >= ANTI_CORRELATION_MIN_SWING_PCT)
    if len(swings) < 2:
        return []
    ranks = np.stack([mid_ranks(samples.util[:, at])[0] - 1 for at in swings])
    correlation: Floats = np.atleast_2d(np.corrcoef(ranks))
    widths = -correlation * np.sqrt(_effective_samples(ranks) - 1)
    clear = (correlation <= ANTI_CORRELATION_MAX_COEFFICIENT) & (widths >= ANTI_CORRELATION_MIN_SIGMAS)
    if not clear.any():
        return []
    first, second = np.unravel_index(np.argmin(np.where(clear, correlation, 1.0)), correlation.shape)
    names = [samples.gpus[int(swings[at])] for at in sorted((first, second))]
    return [_anti_correlation_cause(names, float(correlation[first, second]), samples, span)]


def _anti_correlation_cause(names: list[int | str], correlation: float, samples: _Utilisation, span: WindowSpan) -> JitterCause:
    n = len(samples.util)
    return JitterCause(
        kind=ANTI_CORRELATED_GPUS,
        text=f"GPU {names[0]} and GPU {names[1]} have anti-correlated utilisation: rank correlation {correlation:.2f} (n = {n} "
        f"samples, {span.text}); {_imbalance_text(samples)}. {ANTI_CORRELATION_ADVICE}.",
        numbers={
            "gpu_a": names[0],
            "gpu_b": names[1],
            "rank_correlation": correlation,
            "extreme_imbalance_ratio": samples.extreme_share,
            "gpu_util_gap_mean_pct": samples.gap_mean_pct,
        },
        file=FILE,
        window=span.text,
        n=n,
        strength=-correlation,
    )


def _imbalance(samples: _Utilisation, span: WindowSpan) -> list[JitterCause]:
    share, means, n = samples.extreme_share, samples.util.mean(axis=0), len(samples.util)
    if share < MIN_EXTREME:
        return []
    busiest, idlest = samples.gpus[int(means.argmax())], samples.gpus[int(means.argmin())]
    return [
        JitterCause(
            kind="gpu_imbalance",
            text=f"GPU {idlest} was {means.min():.0f} % busy on average while GPU {busiest} was {means.max():.0f} % busy (n = {n} samples, "
            f"{span.text}); {_imbalance_text(samples)}. Check that every rank has its own GPU and as much work as the others.",
            numbers={
                "gpu_idlest": idlest,
                "gpu_busiest": busiest,
                "extreme_imbalance_ratio": share,
                "gpu_util_gap_mean_pct": samples.gap_mean_pct,
            },
            file=FILE,
            window=span.text,
            n=n,
            strength=share,
        )
    ]


def _imbalance_text(samples: _Utilisation) -> str:
    return (
        f"in {samples.extreme_share:.0%} of them one GPU was at {BUSY_PCT:.0f} % or more while another was at {IDLE_PCT:.0f} % or less, "
        f"and the busiest was {samples.gap_mean_pct:.0f} points above the idlest on average"
    )


def _effective_samples(ranks: Floats) -> Floats:
    """The number of independent samples of each pair: utilisation is autocorrelated."""
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    autocorrelation = (centred[:, 1:] * centred[:, :-1]).sum(axis=1) / (centred**2).sum(axis=1)
    product = np.clip(np.multiply.outer(autocorrelation, autocorrelation), 0.0, None)
    return np.asarray(np.maximum(2.0, ranks.shape[1] * (1 - product) / (1 + product)))
