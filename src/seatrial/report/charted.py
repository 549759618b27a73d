"""What summary.md and the terminal tell from the tables that charts are drawn of, group by group.

In: CampaignResults whose runs have charts. Out: one value for each group that has any, best first: its step times, what a step is made of,
who waits for whom. Only runs that count are looked at. Without charts there is nothing, and the sections are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean, median

from seatrial.records.charts import PHASES, RANKS, STEP_TIMES, STEPS
from seatrial.records.measure import Cell, GroupSummary
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest import groups_in_order, runs_by_group, windows_text
from seatrial.report.sparkline import extremes, sparkline

LOG_FROM = 8.0
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


@dataclass(frozen=True, kw_only=True)
class MadeOf:
    """What a whole (a step, a start-up) is made of in one group: means over its runs, in ms or in s."""

    group: GroupSummary
    window: str
    parts: dict[str, float]
    whole: float
    runs: int
    n: int = 0
    """Steps that it was taken on."""
    usual: float | None = None
    """The median of all steps that count; those of which parts are told may be slower, since telling costs time."""


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """One rank of a group: medians, and over the runs the median of those."""

    rank: int
    where: str
    work_ms: float
    wait_ms: float


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The ranks of one group, by number."""

    group: GroupSummary
    window: str
    ranks: tuple[RankTimes, ...]
    n: int = 0
    """Steps that work and wait are medians of, over the runs."""

    @property
    def waits_least(self) -> RankTimes:
        return min(self.ranks, key=lambda one: one.wait_ms)

    @property
    def waits_most(self) -> RankTimes:
        return max(self.ranks, key=lambda one: one.wait_ms)


def step_times(results: CampaignResults, most: int | None = None) -> list[StepTimes]:
    """Of the groups whose runs have steps that count, or of the first `most` of them."""
    found = (_step_times(group, runs, windows_text(runs)) for group, runs in _charted(results, STEPS))
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


def phases(results: CampaignResults, most: int | None = None) -> list[MadeOf]:
    """Of the groups whose runs tell what their steps are made of, in ms; or of the first `most` of them."""
    found = (_phases(group, runs, windows_text(runs)) for group, runs in _charted(results, PHASES))
    return list(islice((made_of for made_of in found if made_of), most))


def ranks(results: CampaignResults) -> list[Ranks]:
    """Of every group with two ranks or more that say how long they work and wait."""
    found = (_ranks(group, runs, windows_text(runs)) for group, runs in _charted(results, RANKS))
    return [one for one in found if one]


def groups_with(results: CampaignResults, table: str) -> int:
    """How many groups have runs that count with rows of that table."""
    return sum(1 for _ in _charted(results, table))


def _charted(results: CampaignResults, table: str) -> Iterator[tuple[GroupSummary, list[MeasuredRun]]]:
    by_group = runs_by_group(results)
    for group in groups_in_order(results):
        if runs := [run for run in by_group.get(group.group_key, []) if run.charts and table in run.charts.tables]:
            yield group, runs


def rows_of(run: MeasuredRun, table: str) -> list[dict[str, Cell]]:
    """The rows of one of a run's tables; none where it has no such table."""
    columns = run.charts.tables.get(table, {}) if run.charts else {}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _step_times(group: GroupSummary, runs: Sequence[MeasuredRun], window: str) -> StepTimes | None:
    points = [tuple(_points(run)) for run in runs]
    known = [ms for run in points for _, ms in run if ms is not None]
    if not known:
        return None
    middle = _usual_ms(group)
    ends = [ms for run in runs for ms in _ends(run)]
    return StepTimes(
        group=group,
        window=window,
        lowest_ms=min(ends or known),
        median_ms=median(known) if middle is None else middle,
        highest_ms=max(ends or known),
        runs=tuple(run for run in points if any(ms is not None for _, ms in run)),
    )


def _usual_ms(group: GroupSummary) -> float | None:
    middle = group.figures.get("wall_p50_ms")
    return middle.mean if middle else None


def _ends(run: MeasuredRun) -> Iterator[float]:
    """The lowest and the highest step of a run. Its course is one rank's, and thinned: they may not be in it."""
    for quantile, ms in _columns(run, STEP_TIMES, "quantile", "iter_ms"):
        if number(quantile) in (0.0, 1.0) and (known := number(ms)) is not None:
            yield known


def _points(run: MeasuredRun) -> Iterator[Point]:
    for step, iter_ms, counted in _columns(run, STEPS, "step", "iter_ms", "counted"):
        if isinstance(step, int):
            yield step, number(iter_ms) if counted else None


def _columns(run: MeasuredRun, table: str, *names: str) -> Iterator[tuple[Cell, ...]]:
    """The rows of some columns alone: steps are many."""
    columns = run.charts.tables.get(table, {}) if run.charts else {}
    return zip(*(columns[name] for name in names), strict=True) if all(name in columns for name in names) else iter(())


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


def _phases(group: GroupSummary, runs: Sequence[MeasuredRun], window: str) -> MadeOf | None:
    told: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for run in runs:
        for row in rows_of(run, PHASES):
            if (ms := number(row.get("mean_ms"))) is not None:
                told.setdefault(str(row["phase"]), []).append(ms)
                counts[run.attempt.folder] = _steps_taken_apart(run)
    if not told:
        return None
    means = {phase: fmean(values) for phase, values in told.items()}
    return MadeOf(
        group=group,
        window=window,
        parts=means,
        whole=sum(means.values()),
        runs=len(counts),
        n=sum(counts.values()),
        usual=_usual_ms(group),
    )


def _ranks(group: GroupSummary, runs: Sequence[MeasuredRun], window: str) -> Ranks | None:
    rows = [row for run in runs for row in rows_of(run, RANKS) if number(row.get("wait_p50_ms")) is not None]
    by_rank: dict[int, list[dict[str, Cell]]] = {}
    for row in rows:
        if isinstance(rank := row.get("rank"), int):
            by_rank.setdefault(rank, []).append(row)
    if len(by_rank) < 2:
        return None
    return Ranks(
        group=group,
        window=window,
        ranks=tuple(_rank(rank, by_rank[rank]) for rank in sorted(by_rank)),
        n=sum(map(_steps_taken_apart, runs)),
    )


def _steps_taken_apart(run: MeasuredRun) -> int:
    """Steps whose phases all ranks told: work and wait are made of these, and the n of a rank is of all that count."""
    return max((int(number(row.get("n")) or 0) for row in rows_of(run, PHASES)), default=0)


def _rank(rank: int, rows: Sequence[dict[str, Cell]]) -> RankTimes:
    places = dict.fromkeys(_where(row) for row in rows)
    return RankTimes(
        rank=rank,
        where=", ".join(place for place in places if place),
        work_ms=median([ms for row in rows if (ms := number(row.get("work_p50_ms"))) is not None] or [0.0]),
        wait_ms=median([ms for row in rows if (ms := number(row.get("wait_p50_ms"))) is not None] or [0.0]),
    )


def _where(row: dict[str, Cell]) -> str:
    gpu = row.get("gpu")
    return " ".join(part for part in (str(row.get("host") or ""), f"GPU {gpu}" if gpu not in (None, "") else "") if part)


def number(value: Cell) -> float | None:
    """The value where it is a number; text, nothing and yes or no are none."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value else None
