"""The sections of summary.md on the steps themselves: how long they take, what they are made of, who waits for whom.

In: CampaignResults. Out: headings and tables, best group first. Percentiles are there for every run that told steps; lowest, highest and
course, phases and ranks are from the tables that charts are drawn of, and are left out where nobody asked for those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from seatrial.paths import CAMPAIGN_FILES
from seatrial.records.measure import GroupSummary
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest.phases import NOTHING as NO_PHASES
from seatrial.report.digest.phases import MadeOf, phases
from seatrial.report.digest.ranks import Ranks, ranks
from seatrial.report.digest.standings import groups_in_order, runs_by_group, windows_text
from seatrial.report.digest.step_times import LOG_FROM, StepTimes, drawn_course, step_times
from seatrial.report.digest.step_times import NOTHING as NO_STEPS
from seatrial.report.markdown.text import MOST_ROWS, bounded_table
from seatrial.report.numbers import NONE, figure, short
from seatrial.report.stacked_bar import OTHER

COURSE_COLUMNS = 24
STEPS_EXPLAINED = (
    "Milliseconds from step end to step end, over the steps that count, each as long as its slowest rank took; percentiles are means over "
    "the runs, lowest and highest those of all. The course is the median of the runs, of their lowest rank, drawn between lowest and "
    f"highest; `log` where that is on a log scale, as the highest is more than {LOG_FROM:g} times the median."
)
PHASES_EXPLAINED = (
    "Milliseconds and share of a step, means over the runs that count, on the n steps whose phases were taken; `in all` is what those "
    "took, `usual step` the p50 of all steps that count. Where only one step in so many is looked at, those may be slower."
)
RANKS_EXPLAINED = (
    "Medians over the n steps whose phases were taken. All ranks end a step together: the one that waits least is the one that the others "
    "wait for."
)


def step_time_section(results: CampaignResults) -> Iterator[str]:
    """A row a group whose runs tell of steps."""
    yield "## Step time"
    drawn = {times.group.group_key: times for times in step_times(results, MOST_ROWS)}
    by_group = runs_by_group(results)
    rows = [
        _step_row(group, runs, drawn.get(group.group_key))
        for group in groups_in_order(results)
        if (runs := _timed(by_group.get(group.group_key, [])))
    ]
    headers = ["group", "lowest", "p50", "p90", "p99", "highest", "course", "window", "n", "runs"]
    if not drawn:
        # Three columns that would be empty.
        headers, rows = _without(headers, rows, ("lowest", "highest", "course"))
    right = [at for at, title in enumerate(headers) if title not in ("group", "course", "window")]
    yield bounded_table(headers, rows, right=right, where=CAMPAIGN_FILES.per_run_metrics.name) if rows else NO_STEPS
    if rows:
        yield STEPS_EXPLAINED


def phases_section(results: CampaignResults) -> Iterator[str]:
    """A row a group, a column a phase."""
    if not any(run.charts for run in results.runs):
        return
    yield "## Phases"
    found = phases(results)
    if not found:
        yield NO_PHASES
        return
    names = sorted(dict.fromkeys(name for made_of in found for name in made_of.parts), key=lambda name: name == OTHER)
    headers = ["group", *(name.replace("_", " ") for name in names), "in all", "usual step", "window", "n", "runs"]
    rows = [_phase_row(made_of, names) for made_of in found]
    yield bounded_table(
        headers,
        rows,
        right=[*range(1, len(names) + 3), len(headers) - 2, len(headers) - 1],
        where=str(CAMPAIGN_FILES.chart_table("phases")),
    )
    yield PHASES_EXPLAINED


def ranks_section(results: CampaignResults) -> Iterator[str]:
    """A row a group of two ranks or more; nothing where there is none."""
    found = ranks(results)
    if not found:
        return
    yield "## Ranks"
    headers = ["group", "ranks", "work ms", "waits least", "wait ms", "where", "waits most", "wait ms", "window", "n"]
    yield bounded_table(
        headers, [_rank_row(one) for one in found], right=(1, 2, 3, 4, 6, 7, 9), where=str(CAMPAIGN_FILES.chart_table("ranks"))
    )
    yield RANKS_EXPLAINED


def _timed(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    return [run for run in runs if run.measure and run.measure.wall_p50_ms is not None]


def _step_row(group: GroupSummary, runs: Sequence[MeasuredRun], times: StepTimes | None) -> list[object]:
    measures = [run.measure for run in runs if run.measure]
    p50, p90, p99 = (_mean([getattr(measure, name) for measure in measures]) for name in ("wall_p50_ms", "wall_p90_ms", "wall_p99_ms"))
    lowest, highest = (figure(times.lowest_ms), figure(times.highest_ms)) if times else (NONE, NONE)
    return [group.group, lowest, p50, p90, p99, highest, _course(times), windows_text(runs), group.window_n, len(runs)]


def _course(times: StepTimes | None) -> str:
    if times is None:
        return NONE
    return drawn_course(times, COURSE_COLUMNS).rstrip() + (" log" if times.on_logs else "")


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return figure(fmean(known)) if known else NONE


def _without(headers: Sequence[str], rows: Sequence[list[object]], titles: Sequence[str]) -> tuple[list[str], list[list[object]]]:
    kept = [at for at, title in enumerate(headers) if title not in titles]
    return [headers[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _phase_row(made_of: MadeOf, names: Sequence[str]) -> list[object]:
    cells = (_share(made_of.parts[name], made_of.whole) if name in made_of.parts else NONE for name in names)
    return [made_of.group.group, *cells, figure(made_of.whole), figure(made_of.usual), made_of.window, made_of.n, made_of.runs]


def _share(part: float, whole: float) -> str:
    return f"{short(part)} ({100 * part / whole:.0f} %)" if whole else short(part)


def _rank_row(one: Ranks) -> list[object]:
    least, most = one.waits_least, one.waits_most
    work = [rank.work_ms for rank in one.ranks]
    waited_for = [least.rank, short(least.wait_ms), least.where or NONE]
    spread = f"{figure(min(work))} to {figure(max(work))}"
    return [one.group.group, len(one.ranks), spread, *waited_for, most.rank, short(most.wait_ms), one.window, one.n]
