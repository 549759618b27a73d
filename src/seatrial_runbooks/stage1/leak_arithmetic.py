"""The arithmetic of the leak diagnosis, as the procedure defines it.

In: samples (time in seconds, value) in the order of time, or values alone. Out: slope a minute, drift, tail against head; None where
there is too little. The first fifth is warm-up and is left out: a fifth of the samples, in the order of time, not of the time they span.
Head and tail are the first and the last tenth of what is left, at least one value each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean
from typing import TypeVar

Sample = tuple[float, float]
"""Seconds since the epoch, value."""
T = TypeVar("T")

WARM_UP_PARTS = 5
TAIL_PARTS = 10
LEAST_VALUES = 10
LEAST_SPAN_S = 60.0
S_PER_MIN = 60.0


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How a series of samples grew after its warm-up."""

    slope_per_min: float
    drift: float
    num_samples: int
    span_s: float


@dataclass(frozen=True, kw_only=True)
class MemoryGrowth:
    """Slope and drift after the warm-up, None where there are none, and a note that says from what, or why not."""

    note: str
    slope_mib_per_min: float | None = None
    drift_mib: float | None = None


def after_warm_up(items: Sequence[T]) -> Sequence[T]:
    """Without the first fifth."""
    return items[len(items) // WARM_UP_PARTS :]


def growth(samples: Sequence[Sample]) -> Growth | None:
    """Of what the warm-up leaves; None for fewer than ten samples of it, or less than a minute."""
    left = after_warm_up(sorted(samples))
    if too_little(left):
        return None
    slope = slope_per_min(left)
    if slope is None:
        return None
    return Growth(slope_per_min=slope, drift=drift([value for _, value in left]), num_samples=len(left), span_s=span_s(left))


def too_little(left: Sequence[Sample]) -> str:
    """Why no figure can be made of these samples; empty where one can."""
    if len(left) < LEAST_VALUES:
        return f"{len(left)} samples are left after the warm-up, at least {LEAST_VALUES} are needed"
    if span_s(left) < LEAST_SPAN_S:
        return f"the samples after the warm-up span {span_s(left):.0f} s, at least {LEAST_SPAN_S:.0f} s are needed"
    return ""


def span_s(samples: Sequence[Sample]) -> float:
    """From the first sample to the last."""
    return samples[-1][0] - samples[0][0] if samples else 0.0


def slope_per_min(samples: Sequence[Sample]) -> float | None:
    """The least-squares line through the samples; None where all are of one moment."""
    if not samples:
        return None
    mean_t, mean_value = fmean(t for t, _ in samples), fmean(value for _, value in samples)
    spread = fsum((t - mean_t) ** 2 for t, _ in samples)
    if spread == 0:
        return None
    return fsum((t - mean_t) * (value - mean_value) for t, value in samples) / spread * S_PER_MIN


def drift(values: Sequence[float]) -> float:
    """Mean of the last tenth less that of the first."""
    return tail_mean(values) - head_mean(values)


def tail_over_head_pct(values: Sequence[float]) -> float | None:
    """How much larger the tail is than the head after the warm-up, in percent; None for fewer than ten values or a head of nothing."""
    left = after_warm_up(values)
    if len(left) < LEAST_VALUES or head_mean(left) <= 0:
        return None
    return (tail_mean(left) / head_mean(left) - 1) * 100


def head_mean(values: Sequence[float]) -> float:
    """Of the first tenth."""
    return fmean(values[: _tenth(values)])


def tail_mean(values: Sequence[float]) -> float:
    """Of the last tenth."""
    return fmean(values[-_tenth(values) :])


def _tenth(values: Sequence[float]) -> int:
    return max(1, len(values) // TAIL_PARTS)
