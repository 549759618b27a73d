"""Whether B's loss goes the way of A's: the guard beside every speed-up.

In: two sides whose runs carry their courses of loss. Out: a `LossParity`. The losses are read over the last quarter of the steps that all
runs have, each run's mean at the same steps; B is worse where its mean lies above A's by more than noise and the spread over repeats
explain, and by more than a small share of the loss itself. Where a side tells no losses, where they scatter too much, or where a step of
B does not take what a step of A takes, so that losses at one step cannot be compared, it is unknown, never comparable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from seatrial.analyse.rank_cautions import BATCH_NAME
from seatrial.records.comparison import LossParity, LossVerdict, Side
from seatrial.records.health import LossCourse

LAST_SHARE = 0.25
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
# Two-sided, as the interval of the speeds.
CONFIDENCE = 0.95
# A last batch that is not full moves the mean work of a step by less than this.
SAME_WORK = 0.005
GRID_POINTS = 32
WORK = ("samples_per_s", "tokens_per_s")


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
    unlike = _unlike_work(a, b)
    if unlike:
        return _unknown(unlike)
    courses_a, courses_b = _courses(a), _courses(b)
    silent = [side.name for side, courses in ((a, courses_a), (b, courses_b)) if not courses]
    if silent:
        return _unknown(f"{' and '.join(silent)} tell{'s' * (len(silent) == 1)} no losses: report them with probe.loss, or log them")
    window = _window([*courses_a, *courses_b])
    levels = [_level(courses, window) for courses in (courses_a, courses_b)]
    if window[1] <= window[0] or min(level.losses for level in levels) < FEWEST_LOSSES:
        return _unknown("too few losses at steps that both have: log more of them, or run more steps")
    return _judged(levels[0], levels[1], window)


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
        reason=f"loss {b.mean:.4g} against {a.mean:.4g}: the difference {difference:+.3g} is {says} ({where})",
        difference=difference,
        allowed=allowed,
        last_step=math.floor(window[1]),
        n=n,
    )


def _verdict(difference: float, allowed: float, level: float) -> tuple[LossVerdict, str]:
    if difference > allowed:
        return LossVerdict.WORSE, f"more than the {allowed:.3g} allowed"
    if allowed > LARGEST_SHARE * level:
        return (
            LossVerdict.UNKNOWN,
            f"within their scatter of {allowed:.3g}, which is too wide to say more: repeat the runs, or make them longer",
        )
    return LossVerdict.COMPARABLE, f"within the {allowed:.3g} allowed"


def _unknown(reason: str) -> LossParity:
    return LossParity(verdict=LossVerdict.UNKNOWN, reason=reason)


def _courses(side: Side) -> list[LossCourse]:
    return [
        run.loss for run in side.runs if run.loss is not None and len(run.loss.steps) > 1 and len(run.loss.losses) == len(run.loss.steps)
    ]


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


def _unlike_work(a: Side, b: Side) -> str:
    """Why a step of one is not a step of the other; empty where it is, as far as is known."""
    for name in WORK:
        work_a, work_b = work_of_step(a, name), work_of_step(b, name)
        if work_a is not None and work_b is not None:
            unit = name.removesuffix("_per_s")
            if abs(math.log(work_b / work_a)) > SAME_WORK:
                return (
                    f"a step takes {work_a:.4g} {unit} in {a.name} and {work_b:.4g} in {b.name}, so losses at one step cannot be compared"
                )
            return ""
    differing = differing_batch(a, b)
    return f"{differing} differs, so losses at one step cannot be compared" if differing else ""


def work_of_step(side: Side, name: str) -> float | None:
    """Samples or tokens that all ranks together take in one step; None where some run does not tell."""
    logs = []
    for run in side.runs:
        work, steps = run.figures.get(name), run.figures.get("steps_per_s")
        if not work or not steps or work < 0 or steps < 0:
            return None
        logs.append(math.log(work / steps))
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def differing_batch(a: Side, b: Side) -> str:
    """The first setting that says how much a step does and that differs, with its values; empty where none does."""
    for name in sorted({*a.settings, *b.settings}):
        before, after = a.settings.get(name, "none"), b.settings.get(name, "none")
        if before != after and BATCH_NAME.search(name):
            return f"{name} ({before} → {after})"
    return f"the number of ranks ({a.world_size} → {b.world_size})" if a.world_size != b.world_size else ""
