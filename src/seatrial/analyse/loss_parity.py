"""Whether B's loss goes the way of A's: the guard beside every speed-up.

In: two sides whose runs carry their courses of loss. Out: a `LossParity`. B is worse where a loss of any of its runs is no number and none
of A's is. Else the losses are read over the last quarter of the steps that all runs have, each run's mean at the same steps; B is worse
where its mean lies above A's by more than noise and the spread over repeats explain, and by more than a small share of the loss itself.
Where a run tells no losses, where some ran on well beyond the others, where losses scatter too much, or where a step of B does not take
what a step of A takes, so that losses at one step cannot be compared, it is unknown, never comparable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from seatrial.analyse.step_work import unlike_work
from seatrial.records.comparison import LossParity, LossVerdict, Side, SideRun
from seatrial.records.health import LossCourse
from seatrial.records.measure import CONFIDENCE
from seatrial.wording import MOST_IN_PASSING, named

LAST_SHARE = 0.25
# Losses that end before this share of the longest run leave too much of it in the dark.
ENDS_TOGETHER = 0.9
# Other kernels and other sums move a loss in its third digit without harm.
SMALLEST_SHARE = 0.01
# A single run does not know by how much its repeats would differ.
SMALLEST_SHARE_OF_ONE = 0.03
# Where more than this would have to be allowed, not to see a difference says nothing.
LARGEST_SHARE = 0.1
# Fewer parts of a course give no residuals to speak of.
FEWEST_PARTS = 6
# Fewer in the window and their noise says more than their mean.
FEWEST_LOSSES = 8
GRID_POINTS = 32
TOO_FEW = "too few losses at steps that both have: log more of them, or run more steps"


@dataclass(frozen=True, kw_only=True)
class _Level:
    """The loss of one side in the window."""

    mean: float
    variance: float
    """Of the mean."""
    freedom: float
    losses: int
    """Of the run that has the fewest."""
    runs: int


def loss_parity(a: Side, b: Side) -> LossParity:
    """B's loss against A's."""
    broken = _broken(a, b)
    if broken is not None:
        return broken
    unlike = unlike_work(a, b)
    if unlike:
        return _unknown(f"{unlike}, so losses at one step cannot be compared")
    silent = _silent(a, b)
    if silent:
        return _unknown(f"{silent}: report them with probe.loss, or log them")
    courses_a, courses_b = _courses(a), _courses(b)
    if any(len(course.steps) < 2 for course in (*courses_a, *courses_b)):
        return _unknown(TOO_FEW)
    window = _window([*courses_a, *courses_b])
    uneven = _ends_early(a, b, window[1])
    if uneven:
        return _unknown(uneven)
    levels = [_level(courses, window) for courses in (courses_a, courses_b)]
    if window[1] <= window[0] or min(level.losses for level in levels) < FEWEST_LOSSES:
        return _unknown(TOO_FEW)
    return _judged(levels[0], levels[1], window)


def _broken(a: Side, b: Side) -> LossParity | None:
    """What a loss that is no number says; None where all are numbers."""
    for side in (a, b):
        for run in side.runs:
            if run.loss is not None and run.loss.broken_step is not None:
                told = f"the loss of {run.run} is no number at step {run.loss.broken_step}{_of_steps(run.loss)}"
                if side is a:
                    return _unknown(f"{told}, so {a.name} is nothing to hold a loss against: mend it, or take another baseline")
                return LossParity(verdict=LossVerdict.WORSE, reason=told, last_step=run.loss.broken_step, n=run.loss.n)
    return None


def _of_steps(course: LossCourse) -> str:
    return f" (the last is {course.last_step})" if course.last_step is not None else ""


def _silent(a: Side, b: Side) -> str:
    """Which sides, or which runs of them, tell no losses; empty where every run does."""
    sides = [side for side in (a, b) if not any(map(_tells, side.runs))]
    if sides:
        return f"{' and '.join(side.name for side in sides)} tell{'s' * (len(sides) == 1)} no losses"
    runs = [run.run for side in (a, b) for run in side.runs if not _tells(run)]
    return f"{named(runs, MOST_IN_PASSING)} tell{'s' * (len(runs) == 1)} no losses" if runs else ""


def _tells(run: SideRun) -> bool:
    return run.loss is not None and bool(run.loss.steps) and len(run.loss.losses) == len(run.loss.steps)


def _ends_early(a: Side, b: Side, end: float) -> str:
    """Which side's losses end well before the last step of any run; empty where all end together."""
    last = max(_last_step(course) for side in (a, b) for course in _courses(side))
    first = min(course.steps[0] for side in (a, b) for course in _courses(side))
    if end - first >= ENDS_TOGETHER * (last - first):
        return ""
    shorter = min((a, b), key=lambda side: min(course.steps[-1] for course in _courses(side)))
    return (
        f"the losses of {shorter.name} end at step {end:.0f}, while a run went on to step {last}: make all runs as long, and log to the end"
    )


def _last_step(course: LossCourse) -> int:
    return course.steps[-1] if course.last_step is None else max(course.last_step, course.steps[-1])


def _judged(a: _Level, b: _Level, window: tuple[float, float]) -> LossParity:
    difference = b.mean - a.mean
    explained = _quantile(a, b) * math.sqrt(a.variance + b.variance)
    share = SMALLEST_SHARE if min(a.runs, b.runs) > 1 else SMALLEST_SHARE_OF_ONE
    allowed = max(explained, share * abs(a.mean))
    n = min(a.losses, b.losses)
    where = f"steps {math.ceil(window[0])}–{math.floor(window[1])}, {n} losses or more in each of {a.runs} and {b.runs} runs"
    verdict, says = _verdict(difference, allowed, abs(a.mean))
    return LossParity(
        verdict=verdict,
        reason=f"loss {b.mean:.4g} against {a.mean:.4g}: {says} ({where})",
        difference=difference,
        allowed=allowed,
        loss_a=a.mean,
        loss_b=b.mean,
        last_step=math.floor(window[1]),
        n=n,
    )


def _verdict(difference: float, allowed: float, level: float) -> tuple[LossVerdict, str]:
    if difference > allowed:
        return LossVerdict.WORSE, f"the difference {difference:+.3g} is more than the {allowed:.3g} allowed"
    if difference < -allowed:
        return LossVerdict.COMPARABLE, "lower"
    if allowed > LARGEST_SHARE * level:
        return (
            LossVerdict.UNKNOWN,
            f"the difference {difference:+.3g} is within their scatter of {allowed:.3g}, which is too wide to say more: repeat the runs, "
            "or make them longer",
        )
    return LossVerdict.COMPARABLE, f"the difference {difference:+.3g} is within the {allowed:.3g} allowed"


def _unknown(reason: str) -> LossParity:
    return LossParity(verdict=LossVerdict.UNKNOWN, reason=reason)


def _courses(side: Side) -> list[LossCourse]:
    return [run.loss for run in side.runs if run.loss is not None]


def _window(courses: Sequence[LossCourse]) -> tuple[float, float]:
    """The last quarter of the steps that all of them have."""
    first, last = max(course.steps[0] for course in courses), min(course.steps[-1] for course in courses)
    return last - LAST_SHARE * (last - first), float(last)


def _level(courses: Sequence[LossCourse], window: tuple[float, float]) -> _Level:
    """Repeats know how far runs differ; a single run knows only the noise of its own losses, as does a side whose repeats agree by luck."""
    means = [_mean(course, window) for course in courses]
    counts = [_losses_in(course, window) for course in courses]
    noise = sum(_variance(course, count, window) for course, count in zip(courses, counts, strict=True)) / len(courses) ** 2
    spread = float(np.var(means, ddof=1)) / len(means) if len(means) > 1 else 0.0
    freedom = len(means) - 1 if spread > noise else max(sum(counts) - len(counts), 1)
    return _Level(mean=float(np.mean(means)), variance=max(spread, noise), freedom=freedom, losses=min(counts), runs=len(means))


def _mean(course: LossCourse, window: tuple[float, float]) -> float:
    """Over the window, at the same points for every course: a loss that falls is lower where a course has more points late."""
    return float(np.interp(np.linspace(*window, GRID_POINTS), _middles(course), course.losses).mean())


def _variance(course: LossCourse, count: int, window: tuple[float, float]) -> float:
    """Of a run's mean: by the noise of single losses, and by how its parts scatter about a line, which is more where a loss goes with the
    one before it."""
    single = course.noise**2 / max(count, 1)
    middles = _middles(course)
    inside = (middles >= window[0]) & (middles <= window[1])
    parts = int(inside.sum())
    if parts < FEWEST_PARTS:
        return single
    steps, losses = middles[inside] - middles[inside].mean(), np.asarray(course.losses)[inside]
    line = losses.mean() + steps * float(steps @ losses) / float(steps @ steps)
    return max(single, float(((losses - line) ** 2).sum()) / (parts - 2) / parts)


def _middles(course: LossCourse) -> NDArray[np.float64]:
    """A point is the mean of a part of the steps, and stands for the middle of it."""
    last = np.asarray(course.steps, dtype=float)
    before = np.concatenate([[2 * last[0] - last[1]], last[:-1]])
    return np.asarray((before + last) / 2)


def _losses_in(course: LossCourse, window: tuple[float, float]) -> int:
    span = course.steps[-1] - course.steps[0]
    share = min((window[1] - window[0]) / span, 1.0) if span > 0 else 0.0
    return round(course.n * share)


def _quantile(a: _Level, b: _Level) -> float:
    total = a.variance + b.variance
    if total == 0:
        return 0.0
    freedom = 1 / sum((level.variance / total) ** 2 / level.freedom for level in (a, b))
    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
