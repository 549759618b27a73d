"""From lines that name a step to steps in their order.

In: what each line tells, in the order of arrival. Out: `Numbered`: one `PrintedStep` for each new step, numbered on over epochs.

A number may go back for two reasons. At the start of the numbering it is a new epoch: how many steps lie between its first line and
the line before is not known. Anywhere else it is a late line of another process, and is passed over. Where many lines are late,
a new epoch cannot be told from a late line, and only numbers that grow are kept.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from seatrial.collect.logs.source import StampedLine
from seatrial.log_lines import LARGEST_STEP

# Beyond this share of late lines a lower number says nothing about epochs.
MOST_LATE = 0.1


@dataclass(frozen=True, kw_only=True)
class Told:
    """What one line tells."""

    line: StampedLine
    at: int
    """Number of the line."""
    values: dict[str, float]
    teller: int | None = None
    """Which pattern told the step."""

    @property
    def number(self) -> int | None:
        """The step as printed; None for a line that names none."""
        step = self.values.get("step", math.nan)
        return int(step) if 0 <= step <= LARGEST_STEP else None

    @property
    def total(self) -> int | None:
        """Length of the bar; None where it is not shown."""
        total = self.values.get("total", math.nan)
        return int(total) if 0 <= total <= LARGEST_STEP else None


@dataclass
class PrintedStep:
    """One step as its lines told it."""

    step: int
    number: int
    """The step as printed: numbers start again with each epoch, `step` goes on."""
    line: StampedLine
    at: int
    """Number of the line it was first told in."""
    values: dict[str, float]
    restarts: bool = False
    """Whether it is the first of a new epoch."""


@dataclass(kw_only=True)
class Numbered:
    """Steps in their order, and what was odd about their numbers."""

    printed: list[PrintedStep] = field(default_factory=list)
    lines: int = 0
    """Lines that name a step."""
    passed_over: int = 0
    """Those of them that were late."""
    grown_only: bool = False
    """Whether so many were late that only numbers that grow were kept."""

    @property
    def restarts(self) -> int:
        return sum(each.restarts for each in self.printed)


def number_steps(told: Sequence[Told], *, is_bar: bool = False) -> Numbered:
    """Steps in their order. A bar is drawn again and again and shows steps done, so step k is at k+1."""
    counter = _follow(told, interval=usual_interval(told), is_bar=is_bar)
    if counter.found.passed_over > MOST_LATE * counter.found.lines:
        counter = _follow(told, interval=None, is_bar=is_bar)
        counter.found.grown_only = True
    if is_bar:
        counter.found.printed = _done(counter.found.printed)
    return counter.found


def usual_interval(told: Iterable[Told]) -> int:
    """Steps from one line to the next, as a rule; 0 for numbers that never grow."""
    numbers = [each.number for each in told if each.number is not None]
    grown = [later - one for one, later in itertools.pairwise(numbers) if later > one]
    return statistics.median_low(grown) if grown else 0


def _follow(told: Sequence[Told], *, interval: int | None, is_bar: bool) -> _Counter:
    counter = _Counter(interval=interval, is_bar=is_bar)
    for each in told:
        counter.take(each)
    return counter


@dataclass(kw_only=True)
class _Counter:
    """Follows the numbers. `interval` is None where numbers may not start again."""

    interval: int | None
    is_bar: bool
    found: Numbered = field(default_factory=Numbered)
    raw: int = 0
    """The newest number as printed."""
    first: int = 0
    """The first number of this epoch."""
    before: int = 0
    """Steps of the epochs before."""
    total: int | None = None
    tellers: set[int | None] = field(default_factory=set)

    def take(self, each: Told) -> None:
        number = each.number
        if number is None:
            self._add(each)
            return
        self.found.lines += 1
        if not self.found.printed:
            self.first = number
            self._new(each, number)
        elif number > self.raw:
            self._new(each, number)
        elif number == self.raw and (self.is_bar or each.teller not in self.tellers):
            self.tellers.add(each.teller)
            self._add(each)
        elif number < self.raw and self.interval is not None and number <= self.first + self.interval:
            self._start_again(number)
            self._new(each, number, restarts=True)
        else:
            self.found.passed_over += 1

    def _add(self, each: Told) -> None:
        if self.found.printed:
            self.found.printed[-1].values.update(_beside(each))

    def _new(self, each: Told, number: int, *, restarts: bool = False) -> None:
        self.raw, self.total, self.tellers = number, each.total, {each.teller}
        self.found.printed.append(PrintedStep(self.before + number, number, each.line, each.at, _beside(each), restarts))

    def _start_again(self, number: int) -> None:
        """A bar says how long the epoch was; else its next line would have come one interval later."""
        if self.is_bar:
            self.before += self.raw if self.total is None else max(self.total, self.raw)
        else:
            self.before += self.raw + max(self.interval or 0, 1) - number
        self.first = number


def _beside(each: Told) -> dict[str, float]:
    return {name: value for name, value in each.values.items() if name not in ("step", "total")}


def _done(printed: Sequence[PrintedStep]) -> list[PrintedStep]:
    """Steps by a bar's numbers, which are those of steps done: at 0 there is none yet."""
    steps: list[PrintedStep] = []
    restarts = False
    for each in printed:
        restarts = restarts or each.restarts
        if each.number > 0:
            steps.append(replace(each, step=each.step - 1, restarts=restarts and bool(steps)))
            restarts = False
    return steps
