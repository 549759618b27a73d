"""Steps as every renderer shows them: step times, phases, start-up, ranks; a record per group, best first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean, median

from seatrial.records.caution import Scalar
from seatrial.records.columns import PHASES, RANKS, STEP_TIMES, STEPS
from seatrial.records.events import STARTUP_PARTS
from seatrial.records.measure import GroupSummary
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.text import NONE, extremes, finite_number, sparkline
from seatrial.report.view.campaign import groups_in_order, mean_of, runs_by_group, window_text


def groups_with(results: CampaignResults, table: str) -> int:
    """Number of groups with counted runs that have rows of that table."""
    return sum(1 for _ in charted_runs(results, table))


def charted_runs(results: CampaignResults, table: str) -> Iterator[tuple[GroupSummary, list[MeasuredRun]]]:
    """Groups with counted runs that have that table, best first, and those runs."""
    by_group = runs_by_group(results)
    for group in groups_in_order(results):
        if runs := [run for run in by_group.get(group.group_key, []) if run.charts and table in run.charts.tables]:
            yield group, runs


def chart_rows(run: MeasuredRun, table: str) -> list[dict[str, Scalar]]:
    """The rows of a table of the run; none where it has no such table."""
    columns = run.charts.tables.get(table, {}) if run.charts else {}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def chart_columns(run: MeasuredRun, table: str, *names: str) -> Iterator[tuple[Scalar, ...]]:
    """The rows of some columns only: there are many steps."""
    columns = run.charts.tables.get(table, {}) if run.charts else {}
    return zip(*(columns[name] for name in names), strict=True) if all(name in columns for name in names) else iter(())


def num_steps_with_phases(run: MeasuredRun) -> int:
    """Steps whose phases all ranks recorded: work and wait are medians over these; a rank's n are all counted steps."""
    return max((int(finite_number(row.get("n")) or 0) for row in chart_rows(run, PHASES)), default=0)


NO_STEPS = "No run that counts recorded its steps."
LOG_FROM = 8.0
"""Times the median: a longer step would flatten all others on a linear scale."""
Point = tuple[int, float | None]
"""A step and its milliseconds; None for one that does not count."""
Pair = tuple[float, float] | tuple[None, None]


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """The counted steps of one group."""

    group: GroupSummary
    window: str
    lowest_ms: float
    """The lowest of all counted steps, each as long as its slowest rank took, as in the percentiles."""
    median_ms: float
    highest_ms: float
    runs: tuple[tuple[Point, ...], ...]

    @property
    def on_logs(self) -> bool:
        """Whether the course is drawn on a log scale."""
        return self.lowest_ms > 0 and self.highest_ms > LOG_FROM * self.median_ms


def step_times(results: CampaignResults, most: int | None = None) -> list[StepTimes]:
    """One per group with counted steps; at most `most`."""
    found = (_step_times(group, runs, window_text(runs)) for group, runs in charted_runs(results, STEPS))
    return list(islice((times for times in found if times), most))


def step_time_course(times: StepTimes, columns: int) -> list[float | None]:
    """The step time along the window, a value per step; for more steps than columns, the lowest and the highest of each share. Of several
    runs the median."""
    counted = [step for run in times.runs for step, ms in run if ms is not None]
    first, last = min(counted), max(counted)
    each = last - first + 1 <= columns
    shares = last - first + 1 if each else max(columns // 2, 1)
    runs = [_shares(run, first, last, shares) for run in times.runs]
    together = [_median_of([run[share] for run in runs]) for share in range(shares)]
    return [value for pair in together for value in (pair[:1] if each else pair)]


def course_sparkline(times: StepTimes, columns: int) -> str:
    """The course as a sparkline, scaled from the lowest step to the highest."""
    scaled = math.log if times.on_logs else float
    line = [None if value is None else scaled(value) for value in step_time_course(times, columns)]
    return sparkline(line, columns, low=scaled(times.lowest_ms), high=scaled(times.highest_ms))


def _step_times(group: GroupSummary, runs: Sequence[MeasuredRun], window: str) -> StepTimes | None:
    points = [tuple(_points(run)) for run in runs]
    known = [ms for run in points for _, ms in run if ms is not None]
    if not known:
        return None
    median_ms = mean_of(group, "wall_p50_ms")
    ends = [ms for run in runs for ms in _ends(run)]
    return StepTimes(
        group=group,
        window=window,
        lowest_ms=min(ends or known),
        median_ms=median(known) if median_ms is None else median_ms,
        highest_ms=max(ends or known),
        runs=tuple(run for run in points if any(ms is not None for _, ms in run)),
    )


def _ends(run: MeasuredRun) -> Iterator[float]:
    """The lowest and the highest step of a run, which may be missing in its course: that is one rank's, and thinned."""
    for quantile, ms in chart_columns(run, STEP_TIMES, "quantile", "iter_ms"):
        if finite_number(quantile) in (0.0, 1.0) and (known := finite_number(ms)) is not None:
            yield known


def _points(run: MeasuredRun) -> Iterator[Point]:
    for step, iter_ms, counted in chart_columns(run, STEPS, "step", "iter_ms", "counted"):
        if isinstance(step, int):
            yield step, finite_number(iter_ms) if counted else None


def _shares(run: Sequence[Point], first: int, last: int, count: int) -> list[Pair]:
    """Lowest and highest of each share of the steps, in their order. A share whose steps do not count is a gap; one without a step, after
    thinning, repeats the previous one."""
    steps: list[list[float | None]] = [[] for _ in range(count)]
    for step, ms in run:
        if first <= step <= last:
            steps[(step - first) * count // (last - first + 1)].append(ms)
    pairs: list[Pair] = []
    for share in steps:
        pairs.append(extremes(share) if share else pairs[-1] if pairs else (None, None))
    return pairs


def _median_of(pairs: Sequence[Pair]) -> Pair:
    """Medians of the runs' lowest and highest, in the order of most runs."""
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not known:
        return None, None
    low, high = median(min(pair) for pair in known), median(max(pair) for pair in known)
    falling = sum(one > other for one, other in known)
    return (high, low) if 2 * falling > len(known) else (low, high)


NO_PHASES = "No phases recorded: use the probe, or log the time of each phase."


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """The parts of a step, in ms, or of a start-up, in s: means over the runs of a group."""

    group: GroupSummary
    window: str
    parts: dict[str, float]
    whole: float
    runs: int
    n: int = 0
    """Number of steps it was measured on."""
    usual: float | None = None
    """The median of all counted steps; recording phases may make a step slower."""


def phases(results: CampaignResults, most: int | None = None) -> list[Breakdown]:
    """One per group whose runs recorded phases, in ms; at most `most`."""
    found = (_phases(group, runs, window_text(runs)) for group, runs in charted_runs(results, PHASES))
    return list(islice((one for one in found if one), most))


def _phases(group: GroupSummary, runs: Sequence[MeasuredRun], window: str) -> Breakdown | None:
    by_phase: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for run in runs:
        for row in chart_rows(run, PHASES):
            if (ms := finite_number(row.get("mean_ms"))) is not None:
                by_phase.setdefault(str(row["phase"]), []).append(ms)
                counts[run.attempt.folder] = num_steps_with_phases(run)
    if not by_phase:
        return None
    means = {phase: fmean(values) for phase, values in by_phase.items()}
    return Breakdown(
        group=group,
        window=window,
        parts=means,
        whole=sum(means.values()),
        runs=len(counts),
        n=sum(counts.values()),
        usual=mean_of(group, "wall_p50_ms"),
    )


NO_STARTUP = "No start-up recorded: use the probe, which records process start and what happens before the first step."
STARTUP_EXPLAINED = (
    "Seconds, mean over the counted runs, each of the rank whose first step ended last. Launch is the time until its process began, "
    "import from there until its probe began; other has no name."
)


def startups(results: CampaignResults) -> list[Breakdown]:
    """One per group with a recorded start-up, best first."""
    by_group = runs_by_group(results)
    found = []
    for group in groups_in_order(results):
        known = [run.measure.startup for run in by_group.get(group.group_key, []) if run.measure and run.measure.startup]
        if known:
            # Each part over the runs that recorded it: in the others it is unknown, not 0.
            parts = {part: fmean(one[part] for one in known if part in one) for part in STARTUP_PARTS if any(part in one for one in known)}
            in_all = fmean(sum(one.values()) for one in known)
            found.append(Breakdown(group=group, window="start-up", parts=parts, whole=in_all, runs=len(known)))
    return found


def startup_table(results: CampaignResults) -> tuple[list[str], list[list[object]]]:
    """Headers and rows: one row per group, one column per recorded part; no rows where none was recorded."""
    found = startups(results)
    parts = [part for part in STARTUP_PARTS if any(part in one.parts for one in found)]
    rows: list[list[object]] = [
        [one.group.group, *(f"{one.parts[part]:.2f}" if part in one.parts else NONE for part in parts), f"{one.whole:.2f}", one.runs]
        for one in found
    ]
    return ["group", *(part.replace("_", " ") for part in parts), "in all", "runs"], rows


EVEN_SHARE = 0.05
"""Share of a step: ranks whose waits differ by less are even and get no line."""


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """One rank of a group: medians over its runs' medians."""

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
    """Number of steps that work and wait are medians of, over the runs."""

    @property
    def is_even(self) -> bool:
        """Whether no rank waits EVEN_SHARE of a step longer than another."""
        least = self.waits_least
        return self.waits_most.wait_ms - least.wait_ms < EVEN_SHARE * (least.work_ms + least.wait_ms)

    @property
    def waits_least(self) -> RankTimes:
        return min(self.ranks, key=lambda one: one.wait_ms)

    @property
    def waits_most(self) -> RankTimes:
        return max(self.ranks, key=lambda one: one.wait_ms)


def ranks(results: CampaignResults) -> list[Ranks]:
    """One per group with two ranks or more that recorded work and wait."""
    found = (_ranks(group, runs, window_text(runs)) for group, runs in charted_runs(results, RANKS))
    return [one for one in found if one]


def _ranks(group: GroupSummary, runs: Sequence[MeasuredRun], window: str) -> Ranks | None:
    rows = [row for run in runs for row in chart_rows(run, RANKS) if finite_number(row.get("wait_p50_ms")) is not None]
    by_rank: dict[int, list[dict[str, Scalar]]] = {}
    for row in rows:
        if isinstance(rank := row.get("rank"), int):
            by_rank.setdefault(rank, []).append(row)
    if len(by_rank) < 2:
        return None
    return Ranks(
        group=group,
        window=window,
        ranks=tuple(_rank(rank, by_rank[rank]) for rank in sorted(by_rank)),
        n=sum(map(num_steps_with_phases, runs)),
    )


def _rank(rank: int, rows: Sequence[dict[str, Scalar]]) -> RankTimes:
    locations = dict.fromkeys(_location(row) for row in rows)
    return RankTimes(
        rank=rank,
        where=", ".join(location for location in locations if location),
        work_ms=median([ms for row in rows if (ms := finite_number(row.get("work_p50_ms"))) is not None] or [0.0]),
        wait_ms=median([ms for row in rows if (ms := finite_number(row.get("wait_p50_ms"))) is not None] or [0.0]),
    )


def _location(row: dict[str, Scalar]) -> str:
    gpu = row.get("gpu")
    return " ".join(part for part in (str(row.get("host") or ""), f"GPU {gpu}" if gpu not in (None, "") else "") if part)
