"""One rank against the others, and the rank that drives them all.

In: the work of all ranks and the phase in which they meet. Out: `Late`: how much longer than the others a rank is at work before it
begins to wait, and in which phases that shows; or the rank whose chance delays become everybody's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from seatrial.analyse.quantile import MAD_TO_SIGMA, MEDIAN_TO_MEAN_ERROR, median, row_medians
from seatrial.analyse.straggler_work import Floats, Mask, RankWork

EXPLAINED = 0.5
"""Share of what a rank waits less that must be found as work of its own."""
CONSISTENT = 0.8
"""Share of the steps in which a rank must wait less than the others: a slow rank is slow nearly always."""
DRIVES = 0.6
"""Share of a rank's chance delays that become everybody's: 1 for the one that is always last, about 0 where all are alike."""
DRIVES_T = 4.0
"""So many standard errors, as the largest of many ranks is looked at."""
MOST_ALIKE = 0.99
GREAT = 4.5
"""Times the median: three standard deviations."""
FEW_RANKS = 64
SEEN_NOISE = 0.003
"""Chance delays below this share of a step are no ground to say who is last: nor would it matter who is."""


@dataclass(frozen=True, kw_only=True)
class Late:
    """One rank against the others; times in ms, medians over the steps."""

    at: int
    """Its row in the tables."""
    extra_ms: float
    """By how much longer than the others it is at work before it begins to wait."""
    share: float
    """Of the steps, those in which it is."""
    errors: float
    """How many standard errors the extra is from none."""
    own_ms: float
    """What the others work in a step."""
    rest_ms: float
    """Of the extra, what its other phases show."""
    outside_ms: float | None
    """And what lies outside of all phases; None where that is not known."""
    longer: dict[str, float]
    """By phase, how much longer it takes there."""

    @property
    def score(self) -> float:
        return self.extra_ms / self.own_ms if self.own_ms > 0 else 0.0

    @property
    def is_in_phases(self) -> bool:
        return bool(self.longer) and self.rest_ms >= EXPLAINED * self.extra_ms

    @property
    def phase(self) -> str:
        """Where most of it goes; empty where it is outside of all phases."""
        return max(self.longer, key=lambda name: self.longer[name]) if self.is_in_phases else ""


def latest(work: RankWork, phase: str) -> Late:
    """The rank that waits least, against the others."""
    waits = work.phases[phase]
    return _against_others(work, phase, int(row_medians(_medians(waits) - waits).argmax()))


def slow_ranks(waits: Floats, least_ms: float) -> Mask:
    """Every rank that waits less than the ranks do in the median, by so much and in nearly all steps."""
    before_ms = _medians(waits) - waits
    return np.asarray((row_medians(before_ms) >= least_ms) & ((before_ms > 0).mean(axis=1) >= CONSISTENT))


def _against_others(work: RankWork, phase: str, at: int) -> Late:
    waits, sums = work.phases[phase], work.sum_ms
    others = _others(waits, at)
    before_ms = _medians(others) - waits[at]
    # Against each of the others; of an even number the lower median, so that one odd rank among two moves nothing.
    against = np.sort(row_medians(others - waits[at]))
    own_ms = _medians(_others(work.total_ms, at)) - _medians(others) + waits.min(axis=0)
    return Late(
        at=at,
        extra_ms=float(against[(len(against) - 1) // 2]),
        share=float((before_ms > 0).mean()),
        errors=_errors(before_ms),
        own_ms=median(own_ms),
        rest_ms=_longer(sums - waits, at),
        outside_ms=None if work.iter_ms is None else _longer(work.iter_ms - sums, at),
        longer={name: _longer(values, at) for name, values in work.phases.items() if name != phase},
    )


def _errors(values: Floats) -> float:
    """The median in its standard errors. Values that stay high or low for many steps count as fewer than they are."""
    middle = median(values)
    apart = values - middle
    power = float(apart @ apart)
    alike = min(max(float(apart[1:] @ apart[:-1]) / power, 0.0), MOST_ALIKE) if power else 0.0
    spread = MAD_TO_SIGMA * median(np.abs(apart)) * MEDIAN_TO_MEAN_ERROR
    error = spread / math.sqrt(len(values) * (1 - alike) / (1 + alike))
    return middle / error if error > 0 else math.copysign(math.inf, middle)


def _others(values: Floats, at: int) -> Floats:
    """All rows but one; of two rows a view."""
    return values[1 - at : 2 - at] if len(values) == 2 else np.delete(values, at, axis=0)


def _medians(values: Floats) -> Floats:
    """By step, over the ranks."""
    if len(values) <= 2:
        return values[0] if len(values) == 1 else np.asarray((values[0] + values[1]) / 2)
    # Sorting short rows is quicker than what numpy does to prepare, and sorting long ones is not.
    return row_medians(values.T) if len(values) <= FEW_RANKS else np.asarray(np.median(values, axis=0))


def _longer(values: Floats, at: int) -> float:
    return median(values[at] - _medians(_others(values, at)))


def driving_rank(work: RankWork, phase: str, own_ms: float) -> int | None:
    """The row of the rank whose chance delays become everybody's although it is not seen to work longest; None where there is none."""
    waits = work.phases[phase]
    delay = waits.mean(axis=0) - waits
    delay -= delay.mean(axis=1, keepdims=True)
    common = _between_meetings(work, phase)
    common -= common.mean()
    power = np.square(delay).sum(axis=1)
    if not (power > 0).all() or own_ms <= 0:
        return None
    at = int((delay @ common / power).argmax())
    is_longest = float((waits.argmin(axis=0) == at).mean()) >= CONSISTENT
    return at if not is_longest and _drives(delay[at], common, own_ms) else None


def _drives(delay: Floats, common: Floats, own_ms: float) -> bool:
    """Whether a rank's chance delays become everybody's; great ones, as when it waits for data now and then, do so for any rank."""
    off = np.abs(delay - median(delay))
    usual = off <= GREAT * median(off)
    delay, common = delay[usual] - delay[usual].mean(), common[usual] - common[usual].mean()
    power = float(delay @ delay)
    if math.sqrt(power / len(delay)) < SEEN_NOISE * own_ms:
        return False
    slope = float(delay @ common) / power
    left = common - slope * delay
    error = math.sqrt(float(left @ left) / max(len(left) - 2, 1) / power)
    return slope >= max(DRIVES, DRIVES_T * error)


def _between_meetings(work: RankWork, phase: str) -> Floats:
    """By step, the time since the ranks last met; where the step before is not known, the step's own."""
    names = list(work.phases)
    later = names[names.index(phase) + 1 :]
    time_ms = work.sum_ms.mean(axis=0)
    if later:
        after = sum((work.phases[name].mean(axis=0) for name in later), start=np.zeros(()))
        follows = np.flatnonzero(np.diff(work.steps) == 1) + 1
        time_ms[follows] += after[follows - 1] - after[follows]
    return np.asarray(time_ms)
