"""Whether memory grows steadily, grows and stops, or does neither.

In: one course of memory, MiB by minutes. Out: `Growth`: its shape, its slope with interval, and the part of the course that counts.

A training run's memory grows for many reasons that are no leak: a cache fills (ever more slowly), a second stage allocates (at once),
a ramp ends, garbage is collected late (a saw-tooth). A leak goes on and on at one pace. So a course is steady growth only where:

1. Blocks. It is cut into two dozen blocks of equal time, fewer where it is a saw-tooth: then a block is longer than a tooth. A block's
   level is its low or its median, whichever scatters less about a smooth curve: teeth have a firm floor, short dips a firm middle.
2. Slope. The interval of the Theil-Sen slope over the blocks' levels lies above 0, and the growth is well above their scatter.
3. Pace. The second half grows at least 0.6 times as fast as the first: the lower bound of a fitted parabola says so, not its middle.
   A cache that fills with a time constant of a third of the run falls below 0.45.
4. Parts. In each of six parts the level rises by a third of a fair share at least, and by two and a half at most: a few steps
   do otherwise, and so does a ramp that ended.

Warm-up is what has to be left out in front for that: nothing, a tenth, up to four tenths. If no such part will do there is no steady
growth. A course that cannot have grown by more than a little is flat; one that grew but whose last part is flat has stopped.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from seatrial.analyse.quantile import median, percentiles, row_medians
from seatrial.analyse.theil_sen import Slope, batched, theil_sen

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

MOST_POINTS = 1500
"""A longer course is made medians of batches: days of samples then cost as much as an hour's."""
WARMUP_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4)
"""More is not cut: what has not settled by then is to be run longer."""
MOST_BLOCKS = 24
LEAST_BLOCKS = 8
"""Below, neither a pace nor six parts can be told."""
LEAST_IN_BLOCK = 3
TEETH_PER_BLOCK = 1.2
TOOTH_SHARE = 0.5
BEGINNING_SHARE = 0.05
"""A fall so early is a job that gives back what it was loaded with."""
LEAST_TEETH = 3
"""Fewer swings are no saw-tooth but a course that bends."""
SMOOTHED_SAMPLES = 5
"""A median over this many takes out single samples that caught a process at its start or end."""
LEAST_GROWTH_MIB = 8.0
"""Less is what an allocator's own books and code loaded late take."""
LEAST_GROWTH_WIDTHS = 8.0
"""And growth below this many times the scatter of levels is not told from it."""
LEAST_PACE = 0.6
MOST_FACTOR = 1.6
PARTS = 6
LEAST_PART_SHARE = 0.35
MOST_PART_SHARE = 2.5
FLAT_GROWTH_MIB = 16.0
FLAT_GROWTH_SHARE = 0.02
"""A course is flat when the upper end of its slope comes to less than either of these, MiB or share of its level, in what counts."""
STOPPED_PACE = 0.5
"""Growth has stopped when even the upper end of the last third's slope is below this share of the slope of all."""
SURE = 0.975
MOST_AUTOCORRELATION = 0.9


class Shape(str, enum.Enum):
    """What a course does after warm-up."""

    STEADY = "steady"
    FLAT = "flat"
    STOPPED = "stopped"
    SLOWING = "slowing"
    UNEVEN = "uneven"


@dataclass(frozen=True, kw_only=True)
class Growth:
    """One course of memory, judged."""

    shape: Shape
    slope: Slope
    """MiB per minute over the levels of blocks."""
    first_min: float
    """The time from which samples count."""
    over_noise: float
    """The growth over the scatter of levels; inf where they do not scatter."""


@dataclass(frozen=True, kw_only=True)
class _Look:
    """The course without its first part. What costs time is made when it is asked for."""

    first_min: float
    at: Floats
    levels: Floats
    """Middle and level of each block."""
    fit: _Fit
    before: Floats
    inside: Floats
    """The course before and after the cut."""

    @cached_property
    def slope(self) -> Slope:
        return theil_sen(self.at, self.levels) or Slope(value=0.0, n=len(self.at))

    @property
    def span_min(self) -> float:
        return float(self.at[-1] - self.at[0])

    @property
    def growth_mib(self) -> float:
        return self.slope.value * self.span_min

    @property
    def over_noise(self) -> float:
        return self.growth_mib / self.fit.scatter if self.fit.scatter > 0 else math.inf


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """A parabola through the levels."""

    scatter: float
    """Standard deviation of what it leaves over."""
    pace: float
    """What the second half grows beyond LEAST_PACE times the first; below 0 where it slows down more than that."""
    pace_error: float
    """Half of its interval."""


def find_growth(at_min: Floats, mib: Floats) -> Growth | None:
    """The course's shape; None where there are too few samples for it."""
    at, values = batched(at_min, mib, MOST_POINTS)
    values = _smoothed(values)
    looks = list(_looks(at, values))
    if not looks:
        return None
    shape, look = _judged(looks)
    return Growth(shape=shape, slope=look.slope, first_min=look.first_min, over_noise=look.over_noise)


def _judged(looks: list[_Look]) -> tuple[Shape, _Look]:
    """The shape, and the longest part of the course that shows it."""
    for shape, shown in ((Shape.STEADY, _is_steady), (Shape.FLAT, _is_flat)):
        for look in looks:
            if shown(look):
                return shape, look
    last = looks[-1]
    if _has_stopped(last):
        return Shape.STOPPED, last
    slows = (last.slope.low or 0.0) > 0 and last.fit.pace < 0
    return (Shape.SLOWING if slows else Shape.UNEVEN), last


def _looks(at: Floats, values: Floats) -> Iterator[_Look]:
    settled = int(len(at) * BEGINNING_SHARE)
    for share in WARMUP_SHARES:
        first_min = float(at[0] + share * (at[-1] - at[0]))
        first = int(np.searchsorted(at, first_min))
        chosen = _best_blocks(at[first:], values[first:])
        if chosen is not None:
            fit, middles, levels = chosen
            before = values[settled : first + 1]
            yield _Look(first_min=first_min, at=middles, levels=levels, fit=fit, before=before, inside=values[first:])


def _best_blocks(at: Floats, values: Floats) -> tuple[_Fit, Floats, Floats] | None:
    """Of blocks as they may be cut, those that tell the pace best: their fit, middles and levels."""
    most = min(MOST_BLOCKS, len(values) // LEAST_IN_BLOCK)
    if most < LEAST_BLOCKS or at[-1] <= at[0]:
        return None
    choices = _fitted(at, values, most)
    teeth = _teeth(at, values)
    if LEAST_TEETH <= teeth < most * TEETH_PER_BLOCK:
        choices += _fitted(at, values, max(LEAST_BLOCKS, int(teeth / TEETH_PER_BLOCK)))
    return min(choices, key=lambda choice: choice[0].pace_error) if choices else None


def _fitted(at: Floats, values: Floats, blocks: int) -> list[tuple[_Fit, Floats, Floats]]:
    """With the blocks' lows, and with their medians; empty where gaps in the telemetry leave too few blocks."""
    edges = np.searchsorted(at, np.linspace(at[0], at[-1], blocks + 1)[:-1])
    edges = edges[np.diff(edges, append=len(at)) > 0]
    if len(edges) < LEAST_BLOCKS:
        return []
    middles = (at[edges] + at[np.append(edges[1:], len(at)) - 1]) / 2
    choices = (np.minimum.reduceat(values, edges), _block_medians(values, edges))
    return [(fit, middles, levels) for fit, levels in zip(_fits(middles, choices), choices, strict=True)]


def _block_medians(values: Floats, edges: Places) -> Floats:
    """The lower median of each block; all blocks are sorted at once."""
    sizes = np.diff(edges, append=len(values))
    ordered = values[np.lexsort((values, np.repeat(np.arange(len(edges)), sizes)))]
    return np.asarray(ordered[edges + (sizes - 1) // 2])


def _teeth(at: Floats, values: Floats) -> int:
    """How often the course, its trend taken out, falls from its upper quarter to its lower."""
    if len(values) < LEAST_BLOCKS:
        return 0
    steepness = (values[-len(values) // 4 :].mean() - values[: len(values) // 4].mean()) / (0.75 * (at[-1] - at[0]) or 1.0)
    rest = values - steepness * at
    low, high = percentiles(rest, (25, 75))
    side = (rest > high).astype(np.int8) - (rest < low)
    side = side[side != 0]
    return int(np.count_nonzero(np.diff(side) < 0))


def _largest_fall(values: Floats) -> float:
    return float((np.maximum.accumulate(values) - values).max(initial=0.0))


def _fits(at: Floats, choices: Sequence[Floats]) -> Iterator[_Fit]:
    x = 2 * (at - at[0]) / (at[-1] - at[0]) - 1
    columns = np.stack([np.ones_like(x), x, x * x], axis=1)
    inverse, freedom = np.linalg.inv(columns.T @ columns), len(at) - 3
    # The slope over the first half is linear less square, over the second linear plus square.
    weights = np.array([0.0, 1 - LEAST_PACE, 1 + LEAST_PACE])
    weight = float(weights @ inverse @ weights)
    for levels in choices:
        found = inverse @ (columns.T @ levels)
        rest = levels - columns @ found
        variance = float(rest @ rest) / freedom
        error = math.sqrt(variance * _inflation(rest) * weight)
        yield _Fit(scatter=math.sqrt(variance), pace=float(weights @ found), pace_error=_quantile(freedom) * error)


def _inflation(rest: Floats) -> float:
    """Of the variance, by what neighbours have in common."""
    total = float(rest @ rest)
    if total <= 0:
        return 1.0
    share = min(max(float(rest[1:] @ rest[:-1]) / total + 1 / len(rest), 0.0), MOST_AUTOCORRELATION)
    return (1 + share) / (1 - share)


@lru_cache(maxsize=64)
def _quantile(freedom: int) -> float:
    return float(stdtrit(freedom, SURE))


def _is_steady(look: _Look) -> bool:
    if look.fit.pace <= look.fit.pace_error or look.growth_mib < LEAST_GROWTH_MIB or look.over_noise < LEAST_GROWTH_WIDTHS:
        return False
    if not _is_sharp(look.slope) or _is_one_tooth(look):
        return False
    rises = _part_rises(look)
    return bool((rises >= LEAST_PART_SHARE).all() and (rises <= MOST_PART_SHARE).all())


def _is_one_tooth(look: _Look) -> bool:
    """Whether memory fell by as much as it now grows, and has not done so since: it may be about to."""
    fell_mib = _largest_fall(look.before)
    return fell_mib >= TOOTH_SHARE * look.growth_mib and _largest_fall(look.inside) < TOOTH_SHARE * fell_mib


def _is_sharp(slope: Slope) -> bool:
    """Whether the rate is above 0 and known within a factor of 1.6: that of a few jumps is not."""
    low, high = slope.low or 0.0, slope.high or math.inf
    return low * MOST_FACTOR >= slope.value and high <= slope.value * MOST_FACTOR


def _part_rises(look: _Look) -> Floats:
    """From each part to the next, by how much the level rises over a fair share of the growth."""
    parts = np.array_split(np.arange(len(look.levels)), PARTS)
    # The lower median, not the mean of two: a single step then shows in one difference only.
    at, levels = (np.array([np.sort(values[part])[(len(part) - 1) // 2] for part in parts]) for values in (look.at, look.levels))
    return np.asarray(np.diff(levels) / (look.slope.value * np.diff(at)))


def _is_flat(look: _Look) -> bool:
    if look.slope.low is None or look.slope.high is None:
        return False
    allowed = max(FLAT_GROWTH_MIB, FLAT_GROWTH_SHARE * median(look.levels))
    # Growth that is sure and not small is none that is not there.
    return look.slope.high * look.span_min <= allowed and (look.slope.low <= 0 or look.growth_mib < LEAST_GROWTH_MIB)


def _has_stopped(look: _Look) -> bool:
    """Whether the last third neither rises surely nor by more than a little."""
    levels = look.levels[-max(LEAST_BLOCKS - 2, len(look.levels) // 3) :]
    slope = theil_sen(look.at[-len(levels) :], levels)
    if slope is None or slope.low is None or slope.high is None:
        return False
    span_min = float(look.at[-1] - look.at[-len(levels)])
    allowed = max(FLAT_GROWTH_MIB, FLAT_GROWTH_SHARE * median(levels))
    return slope.low <= 0 and slope.high * span_min <= allowed and slope.high < STOPPED_PACE * look.slope.value


def _smoothed(values: Floats) -> Floats:
    if len(values) < SMOOTHED_SAMPLES:
        return values
    padded = np.pad(values, SMOOTHED_SAMPLES // 2, mode="edge")
    return row_medians(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHED_SAMPLES))
