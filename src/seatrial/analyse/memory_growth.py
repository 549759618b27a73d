"""Whether memory grows steadily, grows and stops, or does neither.

In: one course of memory, MiB by minutes. Out: `Growth`: its shape, its slope with interval, and the part of the course that counts.

A training run's memory grows for many reasons that are no leak: a cache fills (ever more slowly), a second stage allocates (at once),
a ramp ends, garbage is collected late (a saw-tooth). A leak goes on and on at one pace. So a course is steady growth only where:

1. Blocks. It is cut into two dozen blocks of equal time, fewer where it is a saw-tooth: then a block is longer than a tooth. A block's
   level is its low or its median, whichever tells the pace better (analyse.memory_blocks).
2. Slope. The interval of the Theil-Sen slope over the blocks' levels lies above 0, and the growth is well above their scatter.
3. Pace. The second half grows at least 0.6 times as fast as the first: the lower bound of a fitted parabola says so, not its middle.
   A cache that fills with a time constant of a third of the run falls below 0.45.
4. Parts. In each of six parts the level rises by a third of a fair share at least, and by two and a half at most: a few steps
   do otherwise, and so does a ramp that ended.

Warm-up is what has to be left out in front for that: nothing, a tenth, up to four tenths. If no such part will do there is no steady
growth. A course that cannot have grown by more than a little is flat; one that grew but whose last part is flat has stopped. Most courses
are flat, and a campaign asks for thousands: parts are cut only as far as they are asked for.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import tee

import numpy as np
import numpy.typing as npt

from seatrial.analyse.memory_blocks import LEAST_BLOCKS, LEAST_IN_BLOCK, Blocks, best_blocks
from seatrial.analyse.quantile import median, row_medians
from seatrial.analyse.theil_sen import Slope, batched, theil_sen

Floats = npt.NDArray[np.float64]

MOST_POINTS = 1500
"""A longer course is made medians of batches: days of samples then cost as much as an hour's."""
WARMUP_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4)
"""More is not cut: what has not settled by then is to be run longer."""
TOOTH_SHARE = 0.5
BEGINNING_SHARE = 0.05
"""A fall so early is a job that gives back what it was loaded with."""
SMOOTHED_SAMPLES = 5
"""A median over this many takes out single samples that caught a process at its start or end."""
LEAST_GROWTH_MIB = 8.0
"""Less is what an allocator's own books and code loaded late take."""
LEAST_GROWTH_WIDTHS = 8.0
"""And growth below this many times the scatter of levels is not told from it."""
MOST_FACTOR = 1.6
PARTS = 6
LEAST_PART_SHARE = 0.35
MOST_PART_SHARE = 2.5
FLAT_GROWTH_MIB = 16.0
FLAT_GROWTH_SHARE = 0.02
"""A course is flat when the upper end of its slope comes to less than either of these, MiB or share of its level, in what counts."""
STOPPED_PACE = 0.5
"""Growth has stopped when even the upper end of the last third's slope is below this share of the slope of all."""


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
    blocks: Blocks
    before: Floats
    inside: Floats
    """The course before and after the cut."""

    @cached_property
    def slope(self) -> Slope:
        return theil_sen(self.blocks.at, self.blocks.levels) or Slope(value=0.0, n=len(self.blocks.at))

    @property
    def span_min(self) -> float:
        return float(self.blocks.at[-1] - self.blocks.at[0])

    @property
    def growth_mib(self) -> float:
        return self.slope.value * self.span_min

    @property
    def over_noise(self) -> float:
        return self.growth_mib / self.blocks.scatter if self.blocks.scatter > 0 else math.inf


def find_growth(at_min: Floats, mib: Floats) -> Growth | None:
    """The course's shape; None where there are too few samples for it."""
    at, values = batched(at_min, mib, MOST_POINTS)
    if _stands_still(at, values):
        return Growth(shape=Shape.FLAT, slope=Slope(value=0.0, low=0.0, high=0.0, n=len(at)), first_min=float(at[0]), over_noise=math.inf)
    values = _smoothed(values)
    judged = _judged(_looks(at, values), may_grow=bool(np.ptp(values) >= LEAST_GROWTH_MIB))
    if judged is None:
        return None
    shape, look = judged
    return Growth(shape=shape, slope=look.slope, first_min=look.first_min, over_noise=look.over_noise)


def _stands_still(at: Floats, values: Floats) -> bool:
    """Whether nothing changes at all, as the memory of most GPUs after their first steps: there is nothing to fit then."""
    return len(at) >= LEAST_BLOCKS * LEAST_IN_BLOCK and bool(at[-1] > at[0]) and bool((values == values[0]).all())


def _judged(looks: Iterator[_Look], *, may_grow: bool) -> tuple[Shape, _Look] | None:
    """The shape, and the longest part of the course that shows it. No look is taken that is not needed."""
    for_steady, for_flat, all_looks = tee(looks, 3)
    if may_grow and (steady := next(filter(_is_steady, for_steady), None)):
        return Shape.STEADY, steady
    if flat := next(filter(_is_flat, for_flat), None):
        return Shape.FLAT, flat
    last = max(all_looks, key=lambda look: look.first_min, default=None)
    if last is None:
        return None
    if _has_stopped(last):
        return Shape.STOPPED, last
    slows = (last.slope.low or 0.0) > 0 and last.blocks.pace < 0
    return (Shape.SLOWING if slows else Shape.UNEVEN), last


def _looks(at: Floats, values: Floats) -> Iterator[_Look]:
    settled = int(len(at) * BEGINNING_SHARE)
    for share in WARMUP_SHARES:
        first_min = float(at[0] + share * (at[-1] - at[0]))
        first = int(np.searchsorted(at, first_min))
        blocks = best_blocks(at[first:], values[first:])
        if blocks is not None:
            yield _Look(first_min=first_min, blocks=blocks, before=values[settled : first + 1], inside=values[first:])


def _largest_fall(values: Floats) -> float:
    return float((np.maximum.accumulate(values) - values).max(initial=0.0))


def _is_steady(look: _Look) -> bool:
    if look.blocks.pace <= look.blocks.pace_error or look.growth_mib < LEAST_GROWTH_MIB or look.over_noise < LEAST_GROWTH_WIDTHS:
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
    parts = np.array_split(np.arange(len(look.blocks.levels)), PARTS)
    # The lower median, not the mean of two: a single step then shows in one difference only.
    at, levels = (
        np.array([np.sort(values[part])[(len(part) - 1) // 2] for part in parts]) for values in (look.blocks.at, look.blocks.levels)
    )
    return np.asarray(np.diff(levels) / (look.slope.value * np.diff(at)))


def _is_flat(look: _Look) -> bool:
    if look.slope.low is None or look.slope.high is None:
        return False
    allowed = max(FLAT_GROWTH_MIB, FLAT_GROWTH_SHARE * median(look.blocks.levels))
    # Growth that is sure and not small is none that is not there.
    return look.slope.high * look.span_min <= allowed and (look.slope.low <= 0 or look.growth_mib < LEAST_GROWTH_MIB)


def _has_stopped(look: _Look) -> bool:
    """Whether the last third neither rises surely nor by more than a little."""
    levels = look.blocks.levels[-max(LEAST_BLOCKS - 2, len(look.blocks.levels) // 3) :]
    slope = theil_sen(look.blocks.at[-len(levels) :], levels)
    if slope is None or slope.low is None or slope.high is None:
        return False
    span_min = float(look.blocks.at[-1] - look.blocks.at[-len(levels)])
    allowed = max(FLAT_GROWTH_MIB, FLAT_GROWTH_SHARE * median(levels))
    return slope.low <= 0 and slope.high * span_min <= allowed and slope.high < STOPPED_PACE * look.slope.value


def _smoothed(values: Floats) -> Floats:
    if len(values) < SMOOTHED_SAMPLES:
        return values
    beyond = SMOOTHED_SAMPLES // 2
    padded = np.concatenate([values[:1].repeat(beyond), values, values[-1:].repeat(beyond)])
    return row_medians(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHED_SAMPLES))
