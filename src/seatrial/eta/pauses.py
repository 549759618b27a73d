"""Pauses that come again: evaluation, checkpoints, one long step now and then.

In: where each pause was seen and how long it took. Out: the expected time of those still to come, with its variance.

Pauses of about one length are one kind. A kind whose gaps are multiples of one number is periodic, and the rest of its occasions are
counted; training loops pause at multiples of a number, so already the first one tells the period. Another kind comes at random, at the
rate seen so far. One that has not come for long is over. Places are counted in steps from the first mark.
"""

from __future__ import annotations

import math
from typing import NamedTuple

# Lengths within this factor of one another are one kind.
ALIKE = 1.6
MOST_KINDS = 6
# A gap is a multiple of the period when it is off by no more than so many steps or this share of it, and never by more than the last.
SLACK_STEPS = 2.0
SLACK_RATIO = 0.04
MOST_SLACK_RATIO = 0.15
# A kind of which more than this share of the gaps fits no period comes at random; fewer than so many that fit may be chance.
ODD_SHARE = 0.25
PROVEN = 3
# Not seen for so many periods it is not periodic; not seen for so many of its mean gaps it does not come any more.
LATE_PERIODS = 2.1
OVERDUE_GAPS = 6.0
# An unnamed pause of so many steps is no hiccup: a loop does that on purpose, and again.
ON_PURPOSE_STEPS = 5.0
# How unsure the number of occasions is, as a share of it, when one pause was seen.
UNSURE_RATIO = 0.3


class Kind(NamedTuple):
    """Pauses of about one length."""

    number: int
    total_s: float
    squares: float
    first: int
    last: int
    period: float = 0.0
    occasions: int = 0
    """Periods from the first to the last."""
    odd: int = 0
    """Gaps that fit no period."""

    @property
    def mean_s(self) -> float:
        return self.total_s / self.number

    def seen(self, at: int, length_s: float, spacing: int) -> Kind:
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
        return grown._replace(odd=self.odd + 1, occasions=self.occasions + times)

    def _with_occasions(self, occasions: int) -> Kind:
        return self._replace(period=(self.last - self.first) / occasions, occasions=occasions)

    def to_come(self, now: int, steps: int, *, on_purpose: bool) -> tuple[float, float]:
        """Expected time of those in the next `steps` steps, and its variance."""
        if self.number > 2 and now - self.last > OVERDUE_GAPS * (self.last - self.first) / (self.number - 1):
            return 0.0, 0.0
        period = self._period(now, on_purpose=on_purpose)
        if period == 0:
            return self._at_random(now, steps)
        met = min((self.number - 1) / self.occasions, 1.0) if self.occasions else 1.0
        hits = math.floor((now + steps - self.last) / period) * met
        variance = max(self.squares / self.number - self.mean_s**2, 0.0)
        unsure_s = UNSURE_RATIO / self.number * hits * self.mean_s
        return hits * self.mean_s, hits * variance * (1 + hits / self.number) + unsure_s**2

    def _period(self, now: int, *, on_purpose: bool) -> float:
        """Steps between two; 0 where they come at random."""
        if self.period == 0:
            # The first pause tells the period, unless it came at the very start or the second did not come.
            return float(self.first) if on_purpose and self.first > 2 and now < LATE_PERIODS * self.first else 0.0
        if self.odd > ODD_SHARE * (self.number - 1) or now - self.last > LATE_PERIODS * self.period:
            return 0.0
        off = abs(self.first - max(round(self.first / self.period), 1) * self.period)
        return self.period if self.number - self.odd > PROVEN or off <= _slack(self.period) else 0.0

    def _at_random(self, now: int, steps: int) -> tuple[float, float]:
        hits = self.number / now * steps
        return hits * self.mean_s, hits * (self.squares / self.number) * (1 + steps / now)


def _slack(period: float) -> float:
    return min(max(SLACK_STEPS, SLACK_RATIO * period), MOST_SLACK_RATIO * period)


class Pauses:
    """All kinds, named ones or unnamed ones."""

    def __init__(self, *, named: bool) -> None:
        self._named = named
        self._kinds: list[Kind] = []

    def copy(self) -> Pauses:
        twin = Pauses(named=self._named)
        twin._kinds = self._kinds.copy()
        return twin

    def clear(self) -> None:
        self._kinds.clear()

    def add(self, at: int, length_s: float, spacing: int = 1) -> None:
        """A pause of `length_s` that was over at `at`, seen by marks `spacing` steps apart."""
        alike = [place for place, kind in enumerate(self._kinds) if kind.mean_s <= length_s * ALIKE and length_s <= kind.mean_s * ALIKE]
        if not alike and len(self._kinds) < MOST_KINDS:
            self._kinds.append(Kind(number=1, total_s=length_s, squares=length_s**2, first=at, last=at))
            return
        place = min(alike or range(len(self._kinds)), key=lambda place: abs(self._kinds[place].mean_s - length_s))
        self._kinds[place] = self._kinds[place].seen(at, length_s, spacing)

    def to_come(self, now: int, steps: int, step_s: float) -> tuple[float, float]:
        """Expected time of all kinds in the next `steps` steps of `step_s` each, and its variance."""
        mean_s = variance = 0.0
        for kind in self._kinds:
            on_purpose = self._named or kind.mean_s > ON_PURPOSE_STEPS * step_s
            kind_s, kind_var = kind.to_come(now, steps, on_purpose=on_purpose)
            mean_s, variance = mean_s + kind_s, variance + kind_var
        return mean_s, variance
