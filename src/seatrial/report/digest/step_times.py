"""How long the steps of each group take, and their course along the window.

In: CampaignResults whose runs have charts. Out: one `StepTimes` for each group that has any, best first; its course as a sparkline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from seatrial.records.charts import STEP_TIMES, STEPS
from seatrial.records.measure import GroupSummary
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest.charted_runs import charted_runs, columns_of, usual_ms
from seatrial.report.digest.standings import windows_text
from seatrial.report.numbers import number_in
from seatrial.report.sparkline import extremes, sparkline

NOTHING = "No run that counts tells of steps."
LOG_FROM = 8.0
"""A highest step of so many medians would make the usual ones a flat line on a linear scale."""
Point = tuple[int, float | None]
"""A step and its milliseconds; None for one that does not count."""
Pair = tuple[float, float] | tuple[None, None]


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """The steps of one group that count."""

    group: GroupSummary
    window: str
    lowest_ms: float
    """Of all steps that count, each as long as its slowest rank took; as the percentiles are."""
    median_ms: float
    highest_ms: float
    runs: tuple[tuple[Point, ...], ...]

    @property
    def on_logs(self) -> bool:
        """Whether the usual steps would be a flat line at the bottom of a linear scale."""
        return self.lowest_ms > 0 and self.highest_ms > LOG_FROM * self.median_ms


def step_times(results: CampaignResults, most: int | None = None) -> list[StepTimes]:
    """Of the groups whose runs have steps that count, or of the first `most` of them."""
    found = (_step_times(group, runs, windows_text(runs)) for group, runs in charted_runs(results, STEPS))
    return list(islice((times for times in found if times), most))


def course(times: StepTimes, columns: int) -> list[float | None]:
    """The step time along the window, one value a step; of more steps than columns the lowest and the highest of each share. Where there
    are several runs it is the median of theirs."""
    counted = [step for run in times.runs for step, ms in run if ms is not None]
    first, last = min(counted), max(counted)
    each = last - first + 1 <= columns
    shares = last - first + 1 if each else max(columns // 2, 1)
    runs = [_shares(run, first, last, shares) for run in times.runs]
    together = [_median_of([run[share] for run in runs]) for share in range(shares)]
    return [value for pair in together for value in (pair[:1] if each else pair)]


def drawn_course(times: StepTimes, columns: int) -> str:
    """The course as a sparkline, from the lowest step of all to the highest."""
    scaled = math.log if times.on_logs else float
    line = [None if value is None else scaled(value) for value in course(times, columns)]
    return sparkline(line, columns, low=scaled(times.lowest_ms), high=scaled(times.highest_ms))


def _step_times(group: GroupSummary, runs: Sequence[MeasuredRun], window: str) -> StepTimes | None:
    points = [tuple(_points(run)) for run in runs]
    known = [ms for run in points for _, ms in run if ms is not None]
    if not known:
        return None
    middle = usual_ms(group)
    ends = [ms for run in runs for ms in _ends(run)]
    return StepTimes(
        group=group,
        window=window,
        lowest_ms=min(ends or known),
        median_ms=median(known) if middle is None else middle,
        highest_ms=max(ends or known),
        runs=tuple(run for run in points if any(ms is not None for _, ms in run)),
    )


def _ends(run: MeasuredRun) -> Iterator[float]:
    """The lowest and the highest step of a run. Its course is one rank's, and thinned: they may not be in it."""
    for quantile, ms in columns_of(run, STEP_TIMES, "quantile", "iter_ms"):
        if number_in(quantile) in (0.0, 1.0) and (known := number_in(ms)) is not None:
            yield known


def _points(run: MeasuredRun) -> Iterator[Point]:
    for step, iter_ms, counted in columns_of(run, STEPS, "step", "iter_ms", "counted"):
        if isinstance(step, int):
            yield step, number_in(iter_ms) if counted else None


def _shares(run: Sequence[Point], first: int, last: int, count: int) -> list[Pair]:
    """Lowest and highest of each share of the steps, in the order they came. A share whose steps do not count is a gap; one that thinning
    left without a step is as the one before it."""
    steps: list[list[float | None]] = [[] for _ in range(count)]
    for step, ms in run:
        if first <= step <= last:
            steps[(step - first) * count // (last - first + 1)].append(ms)
    pairs: list[Pair] = []
    for share in steps:
        pairs.append(extremes(share) if share else pairs[-1] if pairs else (None, None))
    return pairs


def _median_of(pairs: Sequence[Pair]) -> Pair:
    """The median run's lowest and highest, in the order that most runs have them in."""
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not known:
        return None, None
    low, high = median(min(pair) for pair in known), median(max(pair) for pair in known)
    falling = sum(one > other for one, other in known)
    return (high, low) if 2 * falling > len(known) else (low, high)
