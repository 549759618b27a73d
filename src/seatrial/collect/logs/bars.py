"""Which of the progress bars in a script's output is that of the training.

In: what the lines of one format tell, bars and losses. Out: `TrainingBar`: the lines of the training's bar and the losses between
them, with the lengths of the bars that were left out: tokenising and evaluation draw bars of the same kind.

Bars are told apart by their length. The one whose length is the plan's number of steps is the training's, else the one during
which losses were printed, else the one that took the longest. Of several bars of that length (an evaluation as long as the
training) only those with losses count, where there are any.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from seatrial.collect.logs.step_numbers import Told, usual_interval


@dataclass
class Bar:
    """One bar from its first drawing to its last."""

    total: int | None
    drawn: list[Told] = field(default_factory=list)
    losses: list[Told] = field(default_factory=list)
    """Lines with a loss, in the bar itself or between two drawings of it."""

    @property
    def is_empty(self) -> bool:
        """Whether it never came beyond its start."""
        return not any(each.number for each in self.drawn)

    @property
    def wall_s(self) -> float:
        wall_s = self.drawn[-1].line.m - self.drawn[0].line.m
        return wall_s if math.isfinite(wall_s) else 0.0


@dataclass(frozen=True, kw_only=True)
class TrainingBar:
    """The lines to read, in their order."""

    told: list[Told]
    total: int | None = None
    left_out: tuple[int | None, ...] = ()
    """Lengths of the other bars; None for one that showed no length."""


def training_bar(told: Sequence[Told], steps: int | None) -> TrainingBar:
    """The training's bar. `steps` is the plan's number of steps, where it has one."""
    bars = [bar for bar in _bars(told) if not bar.is_empty]
    if not bars:
        return TrainingBar(told=[])
    by_total: dict[int | None, list[Bar]] = {}
    for bar in bars:
        by_total.setdefault(bar.total, []).append(bar)
    total = max(by_total, key=lambda total: _weight(by_total[total], is_planned=total is not None and total == steps))
    kept = [bar for bar in by_total[total] if bar.losses] or by_total[total]
    lines = {each.at: each for bar in kept for each in (*bar.drawn, *bar.losses)}
    others = {bar.total for bar in bars if not any(bar is one for one in kept)}
    left_out = tuple(sorted(others, key=lambda total: (total is None, total)))
    return TrainingBar(told=[lines[at] for at in sorted(lines)], total=total, left_out=left_out)


def _weight(bars: Iterable[Bar], *, is_planned: bool) -> tuple[bool, int, float, int]:
    bars = list(bars)
    return is_planned, sum(len(bar.losses) for bar in bars), sum(bar.wall_s for bar in bars), sum(len(bar.drawn) for bar in bars)


def _bars(told: Sequence[Told]) -> list[Bar]:
    """Every bar, with the losses that were printed while it was drawn."""
    drawn: dict[int | None, list[Told]] = {}
    for each in told:
        if each.number is not None:
            drawn.setdefault(each.total, []).append(each)
    bars = [bar for total, lines in drawn.items() for bar in _split(total, lines)]
    _give_losses(told, {each.at: bar for bar in bars for each in bar.drawn})
    return bars


def _split(total: int | None, lines: Sequence[Told]) -> Iterator[Bar]:
    """Bars of one length, one after another: each begins near where the one before it began."""
    interval = usual_interval(lines)
    bar = Bar(total)
    for each in lines:
        number = each.number or 0
        first = (bar.drawn[0].number or 0) if bar.drawn else 0
        if bar.drawn and number < (bar.drawn[-1].number or 0) and number <= first + interval:
            yield bar
            bar = Bar(total)
        bar.drawn.append(each)
    yield bar


def _give_losses(told: Sequence[Told], bar_of: dict[int, Bar]) -> None:
    """A loss is a bar's when the bar is drawn before it and again after it: one that has ended has none.

    Only the last of its losses need not be followed by a drawing."""
    last: Bar | None = None
    waiting: list[Told] = []
    for each in told:
        bar = bar_of.get(each.at)
        if bar is None:
            waiting += [each] if "loss" in each.values else []
            continue
        if last is not None and (bar is last or last.losses):
            last.losses += waiting
        bar.losses += [each] if "loss" in each.values else []
        last, waiting = bar, []
    if last is not None and last.losses:
        last.losses += waiting
