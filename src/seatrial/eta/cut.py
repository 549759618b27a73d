"""What some marks in a row come to: a block of steps of about one pace, and the long ones that are none of it.

In: marks (steps, and the time they took without named pauses). Out: `Cut`.

A step far longer than the others is a pause that nobody named, and leaves the block. Not so where the steps after it are short: a GPU
works off a queue that the loop fills. Reading a value back empties it, which takes one long step, and the next steps only fill it again.
Such a long step and those that make up for it count as one mark of several steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from seatrial.eta.pace import Block

Mark = tuple[int, float]

# A mark is long when it takes so many steps more than it should by the median of its block; and, for each of its steps, this share more
# and so many deviations, both of which may be less the more steps it is the mean of.
LONG_STEPS = 1.5
LONG_RATIO = 0.5
LONG_SD = 4.0
# Over so many steps a long one may be made up for, which they do when they are short by this share of it in all; when no more than so
# much of a step is left of it, nothing more is waited for.
CATCH_UP_STEPS = 8
CAUGHT_UP = 0.3
LEFT_STEPS = 0.1
# Steps at the very start that take less than this share of the others only fill the queue.
SHORT_RATIO = 0.8
# The lowest quarter of a normal spread ends so many deviations below the median, and the median of a squared one is this share of its mean.
LOW_PART = 4
LOW_SD = 0.674
MEDIAN_SQUARE = 0.455


class Long(NamedTuple):
    """A mark that took far longer than its neighbours."""

    place: int
    """Which mark of the block."""
    at: int
    """Steps from the first mark."""
    excess_s: float
    spacing: int
    """Steps of the mark: where in them the time was lost is not known."""


class Cut(NamedTuple):
    """What marks come to."""

    block: Block | None
    """None where no mark is left for it."""
    long: list[Long]
    held: int
    """Marks at the end that are in neither: a long one, and those after it, which may yet make up for it."""


class _Usual(NamedTuple):
    """What is usual among some marks."""

    step_s: float
    limit_s: float
    """By which one step may be longer."""

    def is_exceeded(self, steps: int, each_s: float) -> bool:
        """By a mark of so many steps, which took `each_s` each."""
        more_s = each_s - self.step_s
        return more_s * math.sqrt(steps) > self.limit_s and more_s * steps > LONG_STEPS * self.step_s

    def excess_s(self, mark: Mark) -> float:
        return mark[1] - mark[0] * self.step_s


def cut(marks: Sequence[Mark], start: int) -> Cut:
    """The marks from `start` steps after the first on."""
    each = sorted(took_s / steps for steps, took_s in marks)
    median_s = each[(len(each) - 1) // 2]
    # Of what lies below the median, since long steps swell what lies above.
    low_sd = (median_s - each[len(each) // LOW_PART]) / LOW_SD
    usual = _Usual(median_s, max(LONG_RATIO * median_s, LONG_SD * low_sd))
    first = _filling(marks, median_s) if start == 0 else 0
    if not first and not usual.is_exceeded(max(marks)[0], each[-1]):
        return Cut(_block(marks), [], 0)
    return _without_long(marks, start, first, usual)


def long_only(marks: Sequence[Mark], start: int, step_s: float) -> Cut:
    """The same for marks too few to have a pace of their own, held against the time of a step that is known."""
    return _without_long(marks, start, 0, _Usual(step_s, LONG_RATIO * step_s))._replace(block=None)


def _filling(marks: Sequence[Mark], median_s: float) -> int:
    """How many marks from the first on only filled the queue."""
    return next((place for place, (steps, took_s) in enumerate(marks) if took_s > SHORT_RATIO * median_s * steps), 0)


def _without_long(marks: Sequence[Mark], start: int, first: int, usual: _Usual) -> Cut:
    is_long = [usual.is_exceeded(steps, took_s / steps) for steps, took_s in marks]
    long: list[Long] = []
    kept: list[Mark] = []
    place, at = first, start + _sum(marks[:first])[0]
    while place < len(marks):
        mark, count = marks[place], _made_up(marks, is_long, place, usual) if is_long[place] else 1
        if count is None:
            break
        if is_long[place] and count == 1:
            long.append(Long(place, at + mark[0], usual.excess_s(mark), mark[0]))
        else:
            mark = _sum(marks[place : place + count])
            kept.append(mark)
        place, at = place + count, at + mark[0]
    return Cut(_block(kept) if kept else None, long, len(marks) - place)


def _made_up(marks: Sequence[Mark], is_long: Sequence[bool], place: int, usual: _Usual) -> int | None:
    """How many marks the long one at `place` makes one with: itself and those that make up for it; None while that may change."""
    excess_s = least_s = left_s = usual.excess_s(marks[place])
    if excess_s > CATCH_UP_STEPS * usual.step_s or marks[place][0] > CATCH_UP_STEPS:
        return 1
    count, passed, enough_s = 1, 0, LEFT_STEPS * usual.step_s
    for number in range(place + 1, len(marks)):
        passed += marks[number][0]
        if passed > CATCH_UP_STEPS or is_long[number] or left_s <= enough_s:
            break
        left_s += usual.excess_s(marks[number])
        if left_s < least_s:
            least_s, count = left_s, number + 1 - place
    else:
        if passed < CATCH_UP_STEPS and left_s > enough_s:
            return None
    return count if excess_s - least_s >= CAUGHT_UP * excess_s else 1


def _sum(marks: Sequence[Mark]) -> Mark:
    """As one mark."""
    return sum(mark[0] for mark in marks), sum(mark[1] for mark in marks)


def _block(marks: Sequence[Mark]) -> Block:
    """Mean and noise; the noise from each mark to the next, so that a trend or a change within the block does not swell it."""
    steps, took_s = _sum(marks)
    apart = sorted((one[1] / one[0] - other[1] / other[0]) ** 2 / (1 / one[0] + 1 / other[0]) for one, other in pairwise(marks))
    return Block(steps, took_s / steps, apart[len(apart) // 2] / MEDIAN_SQUARE if apart else 0.0)
