"""train.log, onto which every attempt of a run appends.

In: its lines, and when the driver began the attempts it tells of. Out: one `Segment` for each attempt that wrote something, oldest first.
A new attempt begins where the driver says that it began one, and where the step numbers start again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from seatrial.collect.logs.seed_lines import ETA, STEP
from seatrial.collect.original.local_clock import local_s
from seatrial.log_lines import LARGEST_STEP

SOON_S = 1.0
"""The driver's own stamp has whole seconds."""


@dataclass(frozen=True)
class Segment:
    """What one attempt wrote."""

    lines: tuple[str, ...]

    @cached_property
    def times_local_s(self) -> tuple[float | None, ...]:
        """The stamp of each line; None for a line without one, such as the rest of a traceback."""
        return tuple(map(local_s, self.lines))

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Steps with a line."""
        return tuple(step for line in self.lines if (step := _step(line)) is not None)

    @property
    def last_step(self) -> int | None:
        return self.steps[-1] if self.steps else None

    @property
    def first_local_s(self) -> float | None:
        return next((at for at in self.times_local_s if at is not None), None)

    @property
    def last_local_s(self) -> float | None:
        return next((at for at in reversed(self.times_local_s) if at is not None), None)

    @property
    def span_s(self) -> float:
        first, last = self.first_local_s, self.last_local_s
        return last - first if first is not None and last is not None else 0.0

    @cached_property
    def max_steps(self) -> int | None:
        """The step that the estimates of the time to go count down to; None where there are none."""
        ends = (int(match[1]) + int(match[2]) for line in self.lines if (match := ETA.search(line)))
        return next((end for end in ends if end <= LARGEST_STEP), None)


def split_attempts(lines: Sequence[str], starts_local_s: Sequence[float] = ()) -> list[Segment]:
    """The attempts of a whole file; [] where it has no lines."""
    if not lines:
        return []
    times = [local_s(line) for line in lines]
    borders = sorted({0, len(lines), *_begun(times, starts_local_s), *_first_lines(lines, times)})
    return [Segment(tuple(lines[start:end])) for start, end in itertools.pairwise(borders)]


def _begun(times: Sequence[float | None], starts_local_s: Sequence[float]) -> Iterator[int]:
    """The first line after each start that has lines before it."""
    for start in starts_local_s:
        at = next((at for at, time in enumerate(times) if time is not None and time >= start - SOON_S), None)
        if at:
            yield at


def restarts(steps: Iterable[float | None]) -> Iterator[tuple[int, int]]:
    """Where step numbers start again, as the places of the last step before and of the first one anew; None for what has no step."""
    before: tuple[int, float] | None = None
    for at, step in enumerate(steps):
        if step is None:
            continue
        # An attempt that fails at once prints the very step again that the one before it failed at.
        if before is not None and step <= before[1]:
            yield before[0], at
        before = at, step


def _first_lines(lines: Sequence[str], times: Sequence[float | None]) -> Iterator[int]:
    """Where a new attempt's lines begin before its first step: after the longest silence since the step before."""
    for before, at in restarts(map(_step, lines)):
        yield _longest_silence(times, before, at)


def _longest_silence(times: Sequence[float | None], first: int, last: int) -> int:
    stamped = [at for at in range(first, last + 1) if times[at] is not None]
    waits = [((times[later] or 0.0) - (times[one] or 0.0), later) for one, later in itertools.pairwise(stamped)]
    return max(waits, key=lambda wait: wait[0])[1] if waits else last


def _step(line: str) -> int | None:
    match = STEP.search(line)
    return int(match[1]) if match and len(match[1]) <= len(str(LARGEST_STEP)) else None
