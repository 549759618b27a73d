"""The pace of the steps to come: a line through what was seen since the pace last changed, its slope believed as far as the data show it.

In: blocks of steps with their mean time. Out: the expected time of the next n steps, with its variance.

The line is a weighted least-squares fit. Most runs have no drift and some have one of a tenth or two, so the slope is taken as a mixture
of none and one drawn from that width, by how well each explains the blocks; noise that lasts over several blocks counts for less than its
number. Blocks that lie off the line on one side time after time (a running sum of them, as in quality control) mean a new level, and the
line starts anew where that sum began. Steps are slow by accident but never fast: one block far below the line is the end of a warm-up.
Pure values: `after` gives a new pace.
"""

from __future__ import annotations

import math
from typing import NamedTuple

# Share of runs that drift, and by how much of the pace from the first step to the last: one standard deviation.
DRIFTING = 0.2
DRIFT_RATIO = 0.15
# How far the pace wanders by itself over any stretch, and by more over one of fewer steps than these: a slope that explains less than this
# is not believed.
WANDER_RATIO = 0.005
EARLY_STEPS = 150.0
# What is known before any block has been compared with another is worth so many blocks.
NOISE_PRIOR_BLOCKS = 3.0
ALIKE_PRIOR_BLOCKS = 6.0
# Blocks in a row are alike by up to so much, the less the more steps they have: real noise lasts for some tens of steps, and a few short
# blocks that happen to rise are no trend.
MOST_ALIKE = 0.9
LASTING_STEPS = 30.0
# However even the steps of a block, the next is not taken to be as even.
LEAST_NOISE_RATIO = 0.015
LEAST_NOISE_S = 1e-9
# Deviations that a block may lie off before it counts, that one block counts at most, and that make a new level when summed up.
SLACK_SD = 1.0
MOST_SD = 4.0
CHANGE_SD = 7.0
# A block slower than the line by so much is no accident: it makes a new level at once.
JUMP_RATIO = 1.5
# A block so far below the line, and by this share of it, ends a warm-up.
FAST_SD = 4.0
FAST_RATIO = 0.9
# Of a slow start so many blocks are looked at again once more is known, and left out when they stick out.
HEAD_BLOCKS = 12
HEAD_SD = 4.0
# However steep the line, the pace at the end is not taken to differ by more than this share.
LARGEST_CHANGE = 0.5


class Block(NamedTuple):
    """Some steps in a row, the long ones among them left out."""

    steps: int
    mean_s: float
    variance: float
    """Of one step, within the block."""


class Sums(NamedTuple):
    """Blocks of one level, summed up; x counts steps from the first mark."""

    blocks: int
    weight: float
    x: float
    y: float
    xx: float
    xy: float
    yy: float
    differences: float
    """Squared, from block to block, each worth one step."""
    within: float
    """Variance of one step within the blocks, summed."""

    def plus(self, at: float, block: Block, before: Block | None, sign: int = 1) -> Sums:
        """With a block centred at `at`, whose neighbour is `before`; without it when `sign` is -1."""
        steps, y, variance = block
        weight = sign * steps
        apart = sign * _apart(block, before) if before is not None else 0.0
        return Sums(
            self.blocks + sign,
            self.weight + weight,
            self.x + weight * at,
            self.y + weight * y,
            self.xx + weight * at * at,
            self.xy + weight * at * y,
            self.yy + weight * y * y,
            max(self.differences + apart, 0.0),
            max(self.within + sign * variance, 0.0),
        )


NOTHING = Sums(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _apart(one: Block, other: Block) -> float:
    return (one.mean_s - other.mean_s) ** 2 / (1 / one.steps + 1 / other.steps)


class Line(NamedTuple):
    """The fit: level at the centre of what was seen, slope, and how sure each is."""

    centre: float
    level_s: float
    slope_s: float
    level_var: float
    slope_var: float
    noise_var: float
    """Of one step, its lasting part included."""

    def at(self, x: float) -> float:
        return self.level_s + self.slope_s * (x - self.centre)

    def variance_at(self, x: float) -> float:
        return self.level_var + self.slope_var * (x - self.centre) ** 2

    def deviations(self, at: float, block: Block) -> float:
        """How far a block lies off the line, in standard deviations."""
        return (block.mean_s - self.at(at)) / math.sqrt(self.noise_var / block.steps + self.variance_at(at))


def fit(sums: Sums, total_steps: int) -> Line:
    """The line through the blocks."""
    weight = sums.weight
    centre, level_s = sums.x / weight, sums.y / weight
    spread = sums.xx - weight * centre * centre
    both = sums.xy - weight * centre * level_s
    slope_s = both / spread if spread > 0 and sums.blocks > 1 else 0.0
    left = max(sums.yy - weight * level_s * level_s - slope_s * both, 0.0)
    noise_var = _noise_var(sums, left, level_s)
    prior_var = (DRIFT_RATIO * level_s / total_steps) ** 2 + LEAST_NOISE_S**2
    if slope_s == 0.0:
        return Line(centre, level_s, 0.0, noise_var / weight, DRIFTING * prior_var, noise_var)
    wander_var = (WANDER_RATIO * level_s) ** 2 * (1 + (EARLY_STEPS / weight) ** 2) * weight / (12 * spread)
    slope_s, slope_var = shrunk(slope_s, noise_var / spread + wander_var, prior_var)
    return Line(centre, level_s, slope_s, noise_var / weight, slope_var, noise_var)


def _noise_var(sums: Sums, left: float, level_s: float) -> float:
    """Variance of one step, made larger by as much as neighbouring blocks are alike: they are then not so many."""
    within = max(sums.within / sums.blocks, (LEAST_NOISE_RATIO * level_s) ** 2, LEAST_NOISE_S**2)
    degrees = max(sums.blocks - 2, 0)
    noise = (left + NOISE_PRIOR_BLOCKS * within) / (degrees + NOISE_PRIOR_BLOCKS)
    prior = MOST_ALIKE * math.exp(-sums.weight / sums.blocks / LASTING_STEPS)
    alike = 1 - sums.differences / (sums.blocks - 1) / noise if degrees else 0.0
    alike = (min(max(alike, 0.0), MOST_ALIKE) * degrees + prior * ALIKE_PRIOR_BLOCKS) / (degrees + ALIKE_PRIOR_BLOCKS)
    return noise * (1 + alike) / (1 - alike)


def shrunk(slope: float, variance: float, prior: float) -> tuple[float, float]:
    """Mean and variance of a slope which is nothing in most runs, and drawn with variance `prior` in the others."""
    kept = prior / (prior + variance)
    evidence = 0.5 * math.log(variance / (variance + prior)) + 0.5 * slope * slope / variance * kept
    odds = DRIFTING / (1 - DRIFTING) * math.exp(min(evidence, 50.0))
    drifting = odds / (1 + odds)
    mean = kept * slope
    return drifting * mean, drifting * (kept * variance + (1 - drifting) * mean * mean)


class Pace(NamedTuple):
    """What is known at the end of the newest block."""

    total_steps: int
    end: int
    """Steps from the first mark to here."""
    sums: Sums
    line: Line
    last: Block
    head: tuple[tuple[float, Block], ...]
    """The first blocks of `sums`, where each is centred."""
    restarts: int = 0
    """How often what was slow at first turned out to be a warm-up."""
    up: float = 0.0
    down: float = 0.0
    """How far the newest blocks have left the line on either side, in deviations summed up."""
    since_up: Sums = NOTHING
    since_down: Sums = NOTHING
    """The blocks since then."""

    @property
    def steps(self) -> int:
        """How many it rests on."""
        return round(self.sums.weight)

    def after(self, block: Block, end: int) -> Pace:
        """With one block more, that ends at `end`."""
        at, line = (self.end + end) / 2, self.line
        off = line.deviations(at, block)
        if off < -FAST_SD and block.mean_s < FAST_RATIO * line.at(at):
            return new_pace(self.total_steps, end, block, restarts=self.restarts + 1)
        if off > MOST_SD and block.mean_s > JUMP_RATIO * line.at(at):
            return new_pace(self.total_steps, end, block, restarts=self.restarts)
        counted = max(min(off, MOST_SD), -MOST_SD)
        up, down = max(self.up + counted - SLACK_SD, 0.0), max(self.down - counted - SLACK_SD, 0.0)
        since_up = self.since_up.plus(at, block, self.last) if up else NOTHING
        since_down = self.since_down.plus(at, block, self.last) if down else NOTHING
        if max(up, down) > CHANGE_SD:
            sums = since_up if up > down else since_down
            return Pace(self.total_steps, end, sums, fit(sums, self.total_steps), block, (), self.restarts)
        # A block that is far off must not bend the line as long as it may be an accident.
        taken = block if off == counted else block._replace(mean_s=line.at(at) + counted / off * (block.mean_s - line.at(at)))
        sums = self.sums.plus(at, taken, self.last)
        head = (*self.head, (at, taken)) if len(self.head) == self.sums.blocks < HEAD_BLOCKS else self.head
        line = fit(sums, self.total_steps)
        pace = Pace(self.total_steps, end, sums, line, taken, head, self.restarts, up, down, since_up, since_down)
        return pace._without_slow_head() if head else pace

    def _without_slow_head(self) -> Pace:
        """The first blocks taken out while they lie above the line through the others: a warm-up."""
        pace = self
        while pace.head and pace.sums.blocks > 2:
            at, block = pace.head[0]
            # Off the line that it bends itself it lies less far: where that is nothing, no second look is needed.
            if pace.line.deviations(at, block) < HEAD_SD / 4:
                break
            others = pace.sums.plus(at, block, pace.head[1][1] if len(pace.head) > 1 else None, sign=-1)
            line = fit(others, pace.total_steps)
            if line.deviations(at, block) < HEAD_SD:
                break
            pace = pace._replace(sums=others, line=line, head=pace.head[1:], restarts=pace.restarts + 1)
        return pace

    def rest(self, steps: int) -> tuple[float, float]:
        """Expected time of the next `steps` steps, and its variance."""
        line = self.line
        now_s = max(line.at(self.end), 0.0)
        most_s = LARGEST_CHANGE * now_s
        mean_s = now_s + max(min(line.slope_s * steps, most_s), -most_s) / 2
        return steps * mean_s, steps * steps * line.variance_at(self.end + steps / 2) + line.noise_var * steps


def new_pace(total_steps: int, end: int, block: Block, *, restarts: int = 0) -> Pace:
    """What one block alone says."""
    at = end - block.steps / 2
    sums = NOTHING.plus(at, block, None)
    return Pace(total_steps, end, sums, fit(sums, total_steps), block, ((at, block),), restarts)
