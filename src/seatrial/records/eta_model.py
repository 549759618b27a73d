"""The model behind `EtaEstimator`: the time of the next steps (`Pace`), which steps are pauses (`split_marks`), and the time of the pauses
still to come (`Pauses`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

# Share of runs that drift, and by how much of the step time from the first step to the last: one standard deviation.
DRIFTING = 0.2
DRIFT_RATIO = 0.15
# Random wandering of the pace over any stretch, and more over one of fewer steps than this: a slope that explains less does not count.
WANDER_RATIO = 0.005
EARLY_STEPS = 150.0
# Weight of the priors, in blocks.
NOISE_PRIOR_BLOCKS = 3.0
AUTOCORRELATION_PRIOR_BLOCKS = 6.0
# Largest correlation of neighbouring blocks; less with more steps per block. Real noise lasts for tens of steps, and a few short blocks
# that happen to rise are no trend.
MAX_AUTOCORRELATION = 0.9
CORRELATION_STEPS = 30.0
# The next block may vary more than an even one before it.
MIN_NOISE_RATIO = 0.015
MIN_NOISE_S = 1e-9
# CUSUM, in standard deviations: deviation of a block that does not count, most that one block counts, and the sum that means a new level.
SLACK_SD = 1.0
MAX_SD = 4.0
CHANGE_SD = 7.0
# A block slower than the line by this factor is a new level at once.
JUMP_RATIO = 1.5
# A block this far below the line, and below this share of it, ends a warm-up.
FAST_SD = 4.0
FAST_RATIO = 0.9
# The first blocks are examined again once more is known, and dropped as a slow start when they stand out.
HEAD_BLOCKS = 12
HEAD_SD = 4.0
# Most that the pace at the end may differ from now, as a share, however steep the line.
LARGEST_CHANGE = 0.5


class Block(NamedTuple):
    """Consecutive steps, without the long ones."""

    steps: int
    mean_s: float
    variance: float
    """Of a single step within the block."""


class Sums(NamedTuple):
    """Sums over the blocks of one level, for the least-squares fit; x counts steps from the first mark."""

    blocks: int
    weight: float
    x: float
    y: float
    xx: float
    xy: float
    yy: float
    differences: float
    """Squared differences from block to block, each normalised to one step."""
    within: float
    """Sum of the variances of one step within each block."""

    def plus(self, at: float, block: Block, before: Block | None, sign: int = 1) -> Sums:
        """With a block centred at `at`, whose neighbour is `before`; without it when `sign` is -1."""
        steps, y, variance = block
        weight = sign * steps
        difference = sign * (y - before.mean_s) ** 2 / (1 / steps + 1 / before.steps) if before is not None else 0.0
        return Sums(
            self.blocks + sign,
            self.weight + weight,
            self.x + weight * at,
            self.y + weight * y,
            self.xx + weight * at * at,
            self.xy + weight * at * y,
            self.yy + weight * y * y,
            max(self.differences + difference, 0.0),
            max(self.within + sign * variance, 0.0),
        )


NOTHING = Sums(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Line(NamedTuple):
    """The fit: level at the centre of the data, slope, and the variance of each."""

    centre: float
    level_s: float
    slope_s: float
    level_var: float
    slope_var: float
    noise_var: float
    """Of one step, autocorrelation included."""

    def at(self, x: float) -> float:
        return self.level_s + self.slope_s * (x - self.centre)

    def variance_at(self, x: float) -> float:
        return self.level_var + self.slope_var * (x - self.centre) ** 2

    def deviations(self, at: float, block: Block) -> float:
        """Distance of a block from the line, in standard deviations."""
        return (block.mean_s - self.at(at)) / math.sqrt(self.noise_var / block.steps + self.variance_at(at))


def fit_line(sums: Sums, total_steps: int) -> Line:
    """The line through the blocks."""
    weight = sums.weight
    centre, level_s = sums.x / weight, sums.y / weight
    spread = sums.xx - weight * centre * centre
    both = sums.xy - weight * centre * level_s
    slope_s = both / spread if spread > 0 and sums.blocks > 1 else 0.0
    left = max(sums.yy - weight * level_s * level_s - slope_s * both, 0.0)
    noise_var = _noise_var(sums, left, level_s)
    prior_var = (DRIFT_RATIO * level_s / total_steps) ** 2 + MIN_NOISE_S**2
    if slope_s == 0.0:
        return Line(centre, level_s, 0.0, noise_var / weight, DRIFTING * prior_var, noise_var)
    wander_var = (WANDER_RATIO * level_s) ** 2 * (1 + (EARLY_STEPS / weight) ** 2) * weight / (12 * spread)
    slope_s, slope_var = shrink_slope(slope_s, noise_var / spread + wander_var, prior_var)
    return Line(centre, level_s, slope_s, noise_var / weight, slope_var, noise_var)


def _noise_var(sums: Sums, left: float, level_s: float) -> float:
    """Variance of one step, inflated by the autocorrelation of neighbouring blocks: they are then worth fewer."""
    within = max(sums.within / sums.blocks, (MIN_NOISE_RATIO * level_s) ** 2, MIN_NOISE_S**2)
    degrees = max(sums.blocks - 2, 0)
    noise = (left + NOISE_PRIOR_BLOCKS * within) / (degrees + NOISE_PRIOR_BLOCKS)
    prior = MAX_AUTOCORRELATION * math.exp(-sums.weight / sums.blocks / CORRELATION_STEPS)
    correlation = 1 - sums.differences / (sums.blocks - 1) / noise if degrees else 0.0
    correlation = (min(max(correlation, 0.0), MAX_AUTOCORRELATION) * degrees + prior * AUTOCORRELATION_PRIOR_BLOCKS) / (
        degrees + AUTOCORRELATION_PRIOR_BLOCKS
    )
    return noise * (1 + correlation) / (1 - correlation)


def shrink_slope(slope: float, variance: float, prior: float) -> tuple[float, float]:
    """Posterior mean and variance of a slope that is zero in most runs, and drawn with variance `prior` in the others."""
    kept = prior / (prior + variance)
    evidence = 0.5 * math.log(variance / (variance + prior)) + 0.5 * slope * slope / variance * kept
    odds = DRIFTING / (1 - DRIFTING) * math.exp(min(evidence, 50.0))
    drifting = odds / (1 + odds)
    mean = kept * slope
    return drifting * mean, drifting * (kept * variance + (1 - drifting) * mean * mean)


class Pace(NamedTuple):
    """The time of the steps to come: a line through the blocks since the pace last changed.

    The line is a weighted least-squares fit. Most runs have no drift and some have one of a tenth or two, so the slope is a mixture of zero
    and a normal prior, weighted by how well each explains the blocks; correlated blocks count for fewer. Blocks that keep deviating to one
    side (CUSUM) mean a new level, and the line starts again where that sum began. Steps may be slow by accident but never fast: one block
    far below the line ends a warm-up. Immutable: `after` returns a new pace.
    """

    total_steps: int
    end: int
    """Steps from the first mark to here."""
    sums: Sums
    line: Line
    last: Block
    head: tuple[tuple[float, Block], ...]
    """The first blocks of `sums`, each with its centre."""
    restarts: int = 0
    """How often a slow start turned out to be a warm-up."""
    up: float = 0.0
    down: float = 0.0
    """CUSUM on either side of the line."""
    since_up: Sums = NOTHING
    since_down: Sums = NOTHING
    """The blocks since each began to rise."""

    @property
    def steps(self) -> int:
        """How many steps it is based on."""
        return round(self.sums.weight)

    def after(self, block: Block, end: int) -> Pace:
        """With one more block, which ends at `end`."""
        at, line = (self.end + end) / 2, self.line
        off = line.deviations(at, block)
        if off < -FAST_SD and block.mean_s < FAST_RATIO * line.at(at):
            return new_pace(self.total_steps, end, block, restarts=self.restarts + 1)
        if off > MAX_SD and block.mean_s > JUMP_RATIO * line.at(at):
            return new_pace(self.total_steps, end, block, restarts=self.restarts)
        counted = max(min(off, MAX_SD), -MAX_SD)
        up, down = max(self.up + counted - SLACK_SD, 0.0), max(self.down - counted - SLACK_SD, 0.0)
        since_up = self.since_up.plus(at, block, self.last) if up else NOTHING
        since_down = self.since_down.plus(at, block, self.last) if down else NOTHING
        if max(up, down) > CHANGE_SD:
            sums = since_up if up > down else since_down
            return Pace(self.total_steps, end, sums, fit_line(sums, self.total_steps), block, (), self.restarts)
        # A block that may be an outlier must not bend the line.
        taken = block if off == counted else block._replace(mean_s=line.at(at) + counted / off * (block.mean_s - line.at(at)))
        sums = self.sums.plus(at, taken, self.last)
        head = (*self.head, (at, taken)) if len(self.head) == self.sums.blocks < HEAD_BLOCKS else self.head
        line = fit_line(sums, self.total_steps)
        pace = Pace(self.total_steps, end, sums, line, taken, head, self.restarts, up, down, since_up, since_down)
        return pace._without_slow_head() if head else pace

    def _without_slow_head(self) -> Pace:
        """Without the first blocks while they are above the line through the others: a warm-up."""
        pace = self
        while pace.head and pace.sums.blocks > 2:
            at, block = pace.head[0]
            # Close to the line that it bends itself, it needs no fit without it.
            if pace.line.deviations(at, block) < HEAD_SD / 4:
                break
            others = pace.sums.plus(at, block, pace.head[1][1] if len(pace.head) > 1 else None, sign=-1)
            line = fit_line(others, pace.total_steps)
            if line.deviations(at, block) < HEAD_SD:
                break
            pace = pace._replace(sums=others, line=line, head=pace.head[1:], restarts=pace.restarts + 1)
        return pace

    def expected(self, steps: int) -> tuple[float, float]:
        """Expected time of the next `steps` steps, and its variance."""
        line = self.line
        now_s = max(line.at(self.end), 0.0)
        most_s = LARGEST_CHANGE * now_s
        mean_s = now_s + max(min(line.slope_s * steps, most_s), -most_s) / 2
        return steps * mean_s, steps * steps * line.variance_at(self.end + steps / 2) + line.noise_var * steps


def new_pace(total_steps: int, end: int, block: Block, *, restarts: int = 0) -> Pace:
    """The pace by one block alone."""
    at = end - block.steps / 2
    sums = NOTHING.plus(at, block, None)
    return Pace(total_steps, end, sums, fit_line(sums, total_steps), block, ((at, block),), restarts)


Mark = tuple[int, float]

# A mark is long when it exceeds the median of its block by this many steps and, per step, by this share and this many deviations, both
# scaled down for a mark of many steps.
LONG_STEPS = 1.5
LONG_RATIO = 0.5
LONG_SD = 4.0
# The steps after a long one may compensate for it: within CATCH_UP_STEPS, by at least CAUGHT_UP of its excess. Steps count
# towards that until no more than LEFT_STEPS of a step is left.
CATCH_UP_STEPS = 8
CAUGHT_UP = 0.3
LEFT_STEPS = 0.1
# Steps at the very start that take less than this share of the median only fill the queue.
SHORT_RATIO = 0.8
# Of a normal distribution: the lower quartile in deviations below the median, and the median of the square as a share of its mean.
LOW_PART = 4
LOW_SD = 0.674
MEDIAN_SQUARE = 0.455


class LongStep(NamedTuple):
    """A mark that took far longer than its neighbours."""

    place: int
    """Which mark of the block."""
    at: int
    """Steps from the first mark."""
    excess_s: float
    spacing: int
    """Steps of the mark: it is unknown in which of them the time was lost."""


class SplitMarks(NamedTuple):
    """Consecutive marks, split into a block of about one pace and the long steps.

    A step far longer than the others is an unnamed pause, and no part of the block. It stays where the steps after it are short: a GPU
    works off a queue that the loop fills. Reading a value back drains it, which takes one long step, and the next steps only fill it again.
    Such a long step and those that compensate for it count as one mark of several steps.
    """

    block: Block | None
    """None where no mark is left for it."""
    long: list[LongStep]
    held: int
    """Marks at the end that are in neither: a long one and those after it, which may still compensate for it."""


class _Usual(NamedTuple):
    """The usual step time among some marks."""

    step_s: float
    limit_s: float
    """How much longer one step may be."""

    def is_exceeded(self, steps: int, each_s: float) -> bool:
        """By a mark of `steps` steps, which took `each_s` each."""
        more_s = each_s - self.step_s
        return more_s * math.sqrt(steps) > self.limit_s and more_s * steps > LONG_STEPS * self.step_s

    def excess_s(self, mark: Mark) -> float:
        return mark[1] - mark[0] * self.step_s


def split_marks(marks: Sequence[Mark], start: int) -> SplitMarks:
    """Split the marks that begin `start` steps after the first."""
    each = sorted(took_s / steps for steps, took_s in marks)
    median_s = each[(len(each) - 1) // 2]
    # From the part below the median, since long steps swell the part above.
    low_sd = (median_s - each[len(each) // LOW_PART]) / LOW_SD
    usual = _Usual(median_s, max(LONG_RATIO * median_s, LONG_SD * low_sd))
    # Marks at the very start that only filled the queue.
    filling = (place for place, (steps, took_s) in enumerate(marks) if took_s > SHORT_RATIO * median_s * steps)
    first = next(filling, 0) if start == 0 else 0
    if not first and not usual.is_exceeded(max(marks)[0], each[-1]):
        return SplitMarks(_block(marks), [], 0)
    return _split_by(marks, start, first, usual)


def split_few_marks(marks: Sequence[Mark], start: int, step_s: float) -> SplitMarks:
    """The same for marks too few to have a pace of their own, by a known step time."""
    return _split_by(marks, start, 0, _Usual(step_s, LONG_RATIO * step_s))._replace(block=None)


def _split_by(marks: Sequence[Mark], start: int, first: int, usual: _Usual) -> SplitMarks:
    is_long = [usual.is_exceeded(steps, took_s / steps) for steps, took_s in marks]
    long: list[LongStep] = []
    kept: list[Mark] = []
    place, at = first, start + _sum(marks[:first])[0]
    while place < len(marks):
        mark, count = marks[place], _count_made_up(marks, is_long, place, usual) if is_long[place] else 1
        if count is None:
            break
        if is_long[place] and count == 1:
            long.append(LongStep(place, at + mark[0], usual.excess_s(mark), mark[0]))
        else:
            mark = _sum(marks[place : place + count])
            kept.append(mark)
        place, at = place + count, at + mark[0]
    return SplitMarks(_block(kept) if kept else None, long, len(marks) - place)


def _count_made_up(marks: Sequence[Mark], is_long: Sequence[bool], place: int, usual: _Usual) -> int | None:
    """How many marks count as one with the long one at `place`: itself and those that compensate for it; None while that may change."""
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
    """All marks as one."""
    return sum(mark[0] for mark in marks), sum(mark[1] for mark in marks)


def _block(marks: Sequence[Mark]) -> Block:
    """Mean and noise; the noise by differences of neighbours, so that a trend or a change within the block does not inflate it."""
    steps, took_s = _sum(marks)
    apart = sorted((one[1] / one[0] - other[1] / other[0]) ** 2 / (1 / one[0] + 1 / other[0]) for one, other in pairwise(marks))
    return Block(steps, took_s / steps, apart[len(apart) // 2] / MEDIAN_SQUARE if apart else 0.0)


# Pauses whose lengths differ by less than this factor are one kind.
SAME_KIND_RATIO = 1.6
MAX_KINDS = 6
# Tolerance of a gap from a multiple of the period: steps, or a share of the period, but at most the last share.
SLACK_STEPS = 2.0
SLACK_RATIO = 0.04
MAX_SLACK_RATIO = 0.15
# A kind is random when more than this share of its gaps fits no period; fewer fitting ones than this may be chance.
IRREGULAR_SHARE = 0.25
PROVEN = 3
# A kind absent for this many periods is not periodic; absent for this many mean gaps, it is over.
LATE_PERIODS = 2.1
OVERDUE_GAPS = 6.0
# An unnamed pause as long as this many steps is deliberate, and comes again.
DELIBERATE_STEPS = 5.0
# Standard error of the number of occasions, as a share of it, when one pause was seen.
COUNT_ERROR_RATIO = 0.3


class PauseKind(NamedTuple):
    """Pauses of about one length."""

    number: int
    total_s: float
    squares: float
    first: int
    last: int
    period: float = 0.0
    occasions: int = 0
    """Periods from the first to the last."""
    irregular: int = 0
    """Gaps that fit no period."""

    @property
    def mean_s(self) -> float:
        return self.total_s / self.number

    def seen(self, at: int, length_s: float, spacing: int) -> PauseKind:
        """With one more, seen by marks `spacing` steps apart."""
        grown = self._replace(number=self.number + 1, total_s=self.total_s + length_s, squares=self.squares + length_s**2, last=at)
        gap = at - self.last
        if gap <= 0:
            return grown
        if self.period == 0:
            return grown._replace(period=float(gap), occasions=1)
        slack = max(_slack(self.period), spacing)
        times, parts = max(round(gap / self.period), 1), round(self.period / gap)
        if abs(gap - times * self.period) <= slack:
            return grown._with_occasions(self.occasions + times)
        if parts > 1 and abs(self.period - parts * gap) <= slack:
            return grown._with_occasions(self.occasions * parts + 1)
        return grown._replace(irregular=self.irregular + 1, occasions=self.occasions + times)

    def _with_occasions(self, occasions: int) -> PauseKind:
        return self._replace(period=(self.last - self.first) / occasions, occasions=occasions)

    def expected(self, now: int, steps: int, *, is_deliberate: bool) -> tuple[float, float]:
        """Expected time of those in the next `steps` steps, and its variance."""
        if self.number > 2 and now - self.last > OVERDUE_GAPS * (self.last - self.first) / (self.number - 1):
            return 0.0, 0.0
        period = self._period(now, is_deliberate=is_deliberate)
        if period == 0:
            return self._at_random(now, steps)
        met = min((self.number - 1) / self.occasions, 1.0) if self.occasions else 1.0
        hits = math.floor((now + steps - self.last) / period) * met
        variance = max(self.squares / self.number - self.mean_s**2, 0.0)
        count_error_s = COUNT_ERROR_RATIO / self.number * hits * self.mean_s
        return hits * self.mean_s, hits * variance * (1 + hits / self.number) + count_error_s**2

    def _period(self, now: int, *, is_deliberate: bool) -> float:
        """Steps between two; 0 where they are random."""
        if self.period == 0:
            # Loops pause at multiples of a number: the first pause shows the period, unless it came at once or the second is late.
            return float(self.first) if is_deliberate and self.first > 2 and now < LATE_PERIODS * self.first else 0.0
        if self.irregular > IRREGULAR_SHARE * (self.number - 1) or now - self.last > LATE_PERIODS * self.period:
            return 0.0
        off = abs(self.first - max(round(self.first / self.period), 1) * self.period)
        return self.period if self.number - self.irregular > PROVEN or off <= _slack(self.period) else 0.0

    def _at_random(self, now: int, steps: int) -> tuple[float, float]:
        hits = self.number / now * steps
        return hits * self.mean_s, hits * (self.squares / self.number) * (1 + steps / now)


def _slack(period: float) -> float:
    return min(max(SLACK_STEPS, SLACK_RATIO * period), MAX_SLACK_RATIO * period)


class Pauses:
    """Recurring pauses, named or unnamed: evaluation, checkpoints, an occasional long step.

    Pauses of about one length are one kind. A kind whose gaps are multiples of one number is periodic, and its remaining occasions are
    counted. Another kind is random, at the rate seen so far. One that has been absent for long is over. Places are steps from the first
    mark.
    """

    def __init__(self, *, named: bool) -> None:
        self._named = named
        self._kinds: list[PauseKind] = []

    def copy(self) -> Pauses:
        twin = Pauses(named=self._named)
        twin._kinds = self._kinds.copy()
        return twin

    def clear(self) -> None:
        self._kinds.clear()

    def add(self, at: int, length_s: float, spacing: int = 1) -> None:
        """A pause of `length_s` that was over at `at`, seen by marks `spacing` steps apart."""
        similar = [
            place
            for place, kind in enumerate(self._kinds)
            if kind.mean_s <= length_s * SAME_KIND_RATIO and length_s <= kind.mean_s * SAME_KIND_RATIO
        ]
        if not similar and len(self._kinds) < MAX_KINDS:
            self._kinds.append(PauseKind(number=1, total_s=length_s, squares=length_s**2, first=at, last=at))
            return
        place = min(similar or range(len(self._kinds)), key=lambda place: abs(self._kinds[place].mean_s - length_s))
        self._kinds[place] = self._kinds[place].seen(at, length_s, spacing)

    def expected(self, now: int, steps: int, step_s: float) -> tuple[float, float]:
        """Expected time of all kinds in the next `steps` steps of `step_s` each, and its variance."""
        mean_s = variance = 0.0
        for kind in self._kinds:
            is_deliberate = self._named or kind.mean_s > DELIBERATE_STEPS * step_s
            kind_s, kind_var = kind.expected(now, steps, is_deliberate=is_deliberate)
            mean_s, variance = mean_s + kind_s, variance + kind_var
        return mean_s, variance
