"""One value that a criterion looks at: what it is, where it was read, and what decides in its place.

The value decides by itself, unless it has ends: then the whole span between them must hold (an interval of a comparison), or must be
broken, for anything to be said.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.paths import CAMPAIGN_FILES
from seatrial.records.measure import CONFIDENCE, Cell, GroupSummary, Window
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Criterion, Evidence
from seatrial.wording import count, named

FILES = CAMPAIGN_FILES
_NUMBERS = re.compile(r"\d+(?:[.,]\d+)*")
# Sentences name this many runs; the evidence has them all.
MOST_NAMED = 5
# And statements tell up to so many runs one by one, more of them together.
MOST_APART = 3
LOWER_END, UPPER_END = "lower end", "upper end"


class Standing(enum.Enum):
    """How one value stands to its bounds."""

    HOLDS = "holds"
    BROKEN = "broken"
    OPEN = "open"
    """Cannot be said: no value, a span that reaches over the bound, or runs that may still change it."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One value a criterion looks at, or why there is none."""

    subject: str
    value: Cell = None
    unit: str = ""
    file: str = ""
    window: str = ""
    n: int | None = None
    low: float | None = None
    """With `high` what decides: the ends of the interval, or the fewest and the most that a count can come to."""
    high: float | None = None
    confidence: float | None = None
    """Of the interval whose ends these are; None where they are no interval's."""
    repeats: int | None = None
    """Runs of each side that an interval rests on."""
    broken: str = ""
    """Why it does not hold whatever its value: a speed-up that costs the training."""
    unsettled: str = ""
    """Why the value may still change; such a one is never a pass."""
    missing: str = ""
    """Set when `value` is None: what is missing and how to get it."""
    detail: str = ""
    """What a reader wants beside the value: first and last loss, the runs that failed, the interval."""
    beside: str = ""
    """What a reader must know of it even where it holds: that only some ranks told."""
    further: tuple[Evidence, ...] = ()
    """Numbers that the value was made of."""

    def evidence(self) -> tuple[Evidence, ...]:
        if self.missing:
            # What is missing has a place too: there one begins to look for it.
            gap = Evidence(subject=self.subject, value=None, file=self.file, window="no value", n=0)
            return (gap, *self.further) if self.file else self.further
        own = Evidence(subject=self.subject, value=self.value, file=self.file, unit=self.unit, window=self.window, n=self.n)
        return (own, *self._ends(), *self.further)

    def _ends(self) -> tuple[Evidence, ...]:
        if self.confidence is None:
            return ()
        ends = ((LOWER_END, self.low), (UPPER_END, self.high))
        interval = interval_text(self.confidence)
        return tuple(
            Evidence(
                subject=self.subject,
                name=f"{name} of the {interval}",
                value=value,
                file=self.file,
                unit=self.unit,
                window=self.window,
                n=self.n,
            )
            for name, value in ends
        )

    def standing(self, criterion: Criterion, *, needs_bound: bool) -> Standing:
        if self.missing:
            return Standing.OPEN
        if self.broken:
            return Standing.BROKEN
        if not needs_bound:
            return self._truth()
        low, high = self._span()
        if (criterion.at_most is not None and low > criterion.at_most) or (criterion.at_least is not None and high < criterion.at_least):
            return Standing.BROKEN
        return Standing.HOLDS if self.is_inside(criterion) and not self.unsettled else Standing.OPEN

    def is_inside(self, criterion: Criterion) -> bool:
        """Whether all that it may be holds the bounds."""
        low, high = self._span()
        return (criterion.at_least is None or low >= criterion.at_least) and (criterion.at_most is None or high <= criterion.at_most)

    def _span(self) -> tuple[float, float]:
        value = float(self.value or 0)
        return (value if self.low is None else self.low), (value if self.high is None else self.high)

    def _truth(self) -> Standing:
        if not self.value:
            return Standing.BROKEN
        return Standing.OPEN if self.unsettled else Standing.HOLDS


def missing(subject: str, why: str, file: str = "") -> Reading:
    """A value that does not exist."""
    return Reading(subject=subject, missing=why, file=file)


def listed(parts: Sequence[str], separator: str = ", ") -> str:
    """The first few, and how many more there are."""
    return named(parts, MOST_NAMED, separator)


def shape(text: str) -> str:
    """The text without its numbers: reasons that differ in nothing else are told once."""
    return _NUMBERS.sub("#", text)


def runs_text(number: int) -> str:
    return count(number, "run")


def interval_text(confidence: float = CONFIDENCE) -> str:
    """'95 % interval'."""
    return f"{confidence * 100:.4g} % interval"


def failures_text(group: GroupSummary) -> list[str]:
    """What a reader of its figures must know: they are those of the runs that survived."""
    spoilt = len(group.infrastructure_failures)
    tried = runs_text(group.runs + group.failed_runs + group.set_aside_runs + spoilt)
    told = [f"{group.failed_runs} of {tried} failed"] if group.failed_runs else []
    return [*told, *([f"the platform failed {spoilt} of {tried}"] if spoilt else [])]


def debug_text(settings: Sequence[str]) -> list[str]:
    return [f"measured with {listed(settings)} on"] if settings else []


def window_text(window: Window | None) -> str:
    return f"steps {window.first_step}–{window.last_step}" if window else "whole run"


def run_window(run: MeasuredRun) -> tuple[str, int | None]:
    """The window of a run and how many steps of it count."""
    window = run.measure.window if run.measure else None
    return window_text(window), window.n if window else None


def how_it_ended(run: MeasuredRun) -> str:
    outcome = run.attempt.outcome
    return f"{outcome.outcome.value}: {outcome.cause.value}" if outcome else "not over"


def attempt_file(run: MeasuredRun, name: str) -> str:
    """A file of the run's attempt, as seen from the campaign's folder; `name` may be a path to it from anywhere."""
    return str(FILES.run(run.attempt.spec.run).attempt(run.attempt.number).folder / Path(name).name)


def outcome_file(run: MeasuredRun) -> str:
    return str(FILES.run(run.attempt.spec.run).attempt(run.attempt.number).outcome)
