"""The sections of summary.md as blocks of Markdown, with their escaping and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import geometric_mean

from seatrial.core.paths import CAMPAIGN_FILES, CampaignPaths
from seatrial.core.tables import format_cell
from seatrial.core.text import count, join_names
from seatrial.records.caution import Scalar
from seatrial.records.eta import EtaQuality
from seatrial.records.measure import GroupSummary
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.verdict import Finding
from seatrial.report.best_config import find_best
from seatrial.report.tables import Row, group_rows, rows_by_stability, skipped_rows
from seatrial.report.text import NONE, OTHER, figure, one_line, short_figure
from seatrial.report.view import campaign, machine, problems, steps

# An underscore inside a word is plain text in every Markdown; escaped ones would make group names hard to read.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-+#=]")
MAX_ROWS = 25
"""Rows of a table in summary.md, which is meant for a pull request."""


def escape(text: object) -> str:
    """Text that is shown literally: no emphasis, link, HTML, table cell or heading."""
    line = " ".join(one_line(str(text)).split())
    return _SPECIAL.sub(lambda found: "\\" + found.group(), line.replace("&", "&amp;"))


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int] = ()) -> str:
    """A table; the columns in `right` hold figures and are right-aligned."""
    marks = ["---:" if number in right else "---" for number in range(len(headers))]
    lines = [_table_line(headers), f"| {' | '.join(marks)} |", *(_table_line([escape(cell) for cell in row]) for row in rows)]
    return "\n".join(lines)


def limited_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Sequence[int] = (),
    *,
    where: str = CAMPAIGN_FILES.summary_json.name,
    most: int = MAX_ROWS,
) -> str:
    """The first rows of a table; of more rows, their number and the file that has them."""
    shown = table(headers, rows[:most], right)
    return shown if len(rows) <= most else f"{shown}\n\n{len(rows) - most} more rows are left out here: `{where}` has them."


def details(title: str, sections: Sequence[str], *, is_open: bool = False) -> list[str]:
    """Sections that GitHub folds under a title; blank lines around the content make it Markdown."""
    return [f"<details{' open' if is_open else ''}>\n<summary>{title}</summary>", *sections, "</details>"]


def code_block(lines: Sequence[str]) -> str:
    """A fenced block; its fence is longer than any sequence of backticks inside."""
    cleaned = [one_line(line) for line in lines]
    longest = max((len(run) for line in cleaned for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join(line.rstrip() for line in (f"{fence}text", *cleaned, fence))


def _table_line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


MAX_RANKED = 40
MAX_REASONS = 20
CRITERIA_DIFFER = "Criteria look at single runs, so their p90/p50 may differ from a group's."


def ranking_section(results: CampaignResults) -> Iterator[str]:
    """Heading, winners, main lane, groups off it, reasons."""
    yield "## Ranking"
    yield escape(campaign.winners_sentence(results))
    rows = results.ranking_rows
    main_lane = [row for row in rows if row.summary.lane]
    if main_lane:
        yield _ranking_table(results, main_lane)
    if len(main_lane) < len(rows):
        yield f"{campaign.OFF_LANE_TITLE}:"
        yield _ranking_table(results, [row for row in rows if not row.summary.lane])
    if reasons := [f"- {escape(join_names(groups, MAX_RANKED))}: {escape(reason)}" for groups, reason in campaign.grouped_reasons(rows)]:
        more = f"- and {len(reasons) - MAX_REASONS} more reasons: `ranked_groups.csv` has them"
        yield "\n".join([*reasons[:MAX_REASONS], *([more] if len(reasons) > MAX_REASONS else [])])
    if rows:
        yield f"{campaign.figures_explained(higher_is_better=results.ranking.higher_is_better)} {CRITERIA_DIFFER}"


def _ranking_table(results: CampaignResults, rows: Sequence[RankedGroup]) -> str:
    axes = campaign.axis_names(rows)
    unit = escape(results.ranking.unit or results.ranking.metric)
    headers = ["#", "group", *(escape(name) for name in axes), unit, "95 % interval", "to best"]
    headers += ["wall p90/p50", "start-up", "runs", "window", "n", "note"]
    figures = range(2 + len(axes), 7 + len(axes))
    runs = campaign.runs_by_group(results)
    cells = [_ranking_row(row, axes, runs.get(row.summary.group_key, [])) for row in rows]
    return limited_table(headers, cells, right=[0, *figures, len(headers) - 2], where=CAMPAIGN_FILES.ranked_groups.name, most=MAX_RANKED)


def _ranking_row(row: RankedGroup, axes: Sequence[str], runs: Sequence[MeasuredRun]) -> list[object]:
    levels, figures = campaign.ranking_cells(row, axes, runs)
    return [row.rank, row.group, *levels, *figures, row.n or NONE, campaign.note_text(row)]


MAX_STATEMENTS = 40
"""A campaign of a thousand runs may have one for each."""


def findings_list(findings: Sequence[Finding]) -> str:
    """A bullet per finding, its advice below it."""
    lines = []
    for finding in findings:
        lines.append(f"- **{problems.word_of(finding)}** {escape(finding.text)} ({escape(finding.id)}{_evidence(finding)})")
        lines += [f"  - Try: {escape(advice.text)}" for advice in finding.advice]
    return "\n".join(lines)


def statements_section(results: CampaignResults) -> Iterator[str]:
    """Findings without a criterion; nothing where nothing ran."""
    if results.verdict.statements:
        yield "## Other findings"
        yield f"{problems.DECIDES_NOTHING} `seatrial why OUT ID` shows the evidence of each."
        yield findings_list(results.verdict.statements[:MAX_STATEMENTS])
        if (more := len(results.verdict.statements) - MAX_STATEMENTS) > 0:
            yield f"{count(more, 'more finding')} left out here: `verdict.json` has them, and so has `seatrial why OUT`."


def _evidence(finding: Finding) -> str:
    files = list(dict.fromkeys(evidence.file for evidence in finding.evidence if evidence.file))
    if not files:
        return ""
    named = files[0] if len(files) == 1 else f"{files[0]} and {count(len(files) - 1, 'other file')}"
    return f"; evidence: {escape(named)}, {count(len(finding.evidence), 'value')}"


LOG_LINES = 15
MAX_FAILURES = 10
MAX_CAUTIONS = 40


def failures_section(results: CampaignResults) -> Iterator[str]:
    """One entry for runs that ended in the same way for the same reason."""
    yield "## Failures"
    found = problems.failures(results)
    if not found:
        yield "No current run failed."
    for failure in found[:MAX_FAILURES]:
        yield from _failure(failure)
    if len(found) > MAX_FAILURES:
        yield f"{len(found) - MAX_FAILURES} more causes are left out here: `skipped_runs.tsv` has the runs."


def cautions_section(results: CampaignResults) -> Iterator[str]:
    """A line per caution, with its runs."""
    yield "## Cautions"
    found = campaign.shown_cautions(results)
    if not found:
        yield "None."
        return
    lines = []
    for caution in found[:MAX_CAUTIONS]:
        subjects = f" ({escape(join_names(caution.subjects))})" if caution.subjects else ""
        lines.append(f"- {escape(caution.kind)}: {escape(caution.text)}{subjects}")
    if len(found) > MAX_CAUTIONS:
        lines.append(f"- and {len(found) - MAX_CAUTIONS} more: `summary.json` has them")
    yield "\n".join(lines)


def _failure(failure: problems.Failure) -> Iterator[str]:
    yield f"### {escape(failure.cause)}: {escape(join_names(failure.runs))}"
    ended = f"Ended {failure.outcome} after {failure.after}. {escape(failure.detail)}".rstrip()
    yield f"{ended}\n\nWhat to do: {escape(failure.action)}" if failure.action else ended
    yield from map(escape, failure.remarks)
    if failure.telling:
        yield "Log lines that explain it:"
        yield code_block(failure.telling)
    elif failure.log_tail:
        yield f"Last lines of {escape(failure.runs[0])}:"
        yield code_block(failure.log_tail[-LOG_LINES:])


def health_section(results: CampaignResults) -> Iterator[str]:
    """Heading, a line per fact, and the harmless warnings."""
    yield "## Health"
    health = problems.health_of(results)
    if not health.runs:
        yield problems.NO_HEALTH
        return
    yield "\n".join(f"- {escape(line)}" for line in problems.health_sentences(health))
    if health.harmless:
        yield problems.HARMLESS
        rows = [[one.id, one.runs, one.lines, one.meaning] for one in health.harmless]
        yield table(["warning", "runs", "lines", "what it means"], rows, right=(1, 2))


COURSE_COLUMNS = 24
STEPS_EXPLAINED = (
    "Milliseconds from step end to step end, over the steps that count, each as long as its slowest rank took; percentiles are geometric "
    "means over the runs, lowest and highest those of all runs. The course is the median of the runs, of their lowest rank, drawn between "
    f"lowest and highest; `log` where that is on a log scale, as the highest is more than {steps.LOG_FROM:g} times the median."
)
PHASES_EXPLAINED = (
    "Milliseconds and share of a step, means over the counted runs, on the n steps whose phases were recorded; `in all` is how long "
    "those took, `median step` the p50 of all counted steps. Recording phases may make a step slower."
)
RANKS_EXPLAINED = (
    "Medians over the n steps whose phases were recorded. All ranks end a step together: the others wait for the one that waits least."
)


def step_time_section(results: CampaignResults) -> Iterator[str]:
    """One row per group whose runs recorded steps."""
    yield "## Step time"
    drawn = {times.group.group_key: times for times in steps.step_times(results, MAX_ROWS)}
    by_group = campaign.runs_by_group(results)
    rows = [
        _step_row(group, runs, drawn.get(group.group_key))
        for group in campaign.groups_in_order(results)
        if (runs := [run for run in by_group.get(group.group_key, []) if run.measure and run.measure.wall_p50_ms is not None])
    ]
    headers = ["group", "lowest", "p50", "p90", "p99", "highest", "course", "window", "n", "runs"]
    if not drawn:
        # Three columns would be empty.
        kept = [at for at, title in enumerate(headers) if title not in ("lowest", "highest", "course")]
        headers, rows = [headers[at] for at in kept], [[row[at] for at in kept] for row in rows]
    right = [at for at, title in enumerate(headers) if title not in ("group", "course", "window")]
    yield limited_table(headers, rows, right=right, where=CAMPAIGN_FILES.per_run_metrics.name) if rows else steps.NO_STEPS
    if rows:
        yield STEPS_EXPLAINED


def phases_section(results: CampaignResults) -> Iterator[str]:
    """One row per group, one column per phase."""
    if not any(run.charts for run in results.runs):
        return
    yield "## Phases"
    found = steps.phases(results)
    if not found:
        yield steps.NO_PHASES
        return
    names = sorted(dict.fromkeys(name for one in found for name in one.parts), key=lambda name: name == OTHER)
    headers = ["group", *(name.replace("_", " ") for name in names), "in all", "median step", "window", "n", "runs"]
    rows = []
    for one in found:
        cells = (_share(one.parts[name], one.whole) if name in one.parts else NONE for name in names)
        rows.append([one.group.group, *cells, figure(one.whole), figure(one.usual), one.window, one.n, one.runs])
    yield limited_table(
        headers,
        rows,
        right=[*range(1, len(names) + 3), len(headers) - 2, len(headers) - 1],
        where=str(CAMPAIGN_FILES.chart_table("phases")),
    )
    yield PHASES_EXPLAINED


def ranks_section(results: CampaignResults) -> Iterator[str]:
    """One row per group with two ranks or more; nothing without such a group."""
    found = steps.ranks(results)
    if not found:
        return
    yield "## Ranks"
    headers = ["group", "ranks", "work ms", "waits least", "wait ms", "where", "waits most", "wait ms", "window", "n"]
    yield limited_table(
        headers, [_rank_row(one) for one in found], right=(1, 2, 3, 4, 6, 7, 9), where=str(CAMPAIGN_FILES.chart_table("ranks"))
    )
    yield RANKS_EXPLAINED


def _step_row(group: GroupSummary, runs: Sequence[MeasuredRun], times: steps.StepTimes | None) -> list[object]:
    measures = [run.measure for run in runs if run.measure]
    p50, p90, p99 = (_mean([getattr(measure, name) for measure in measures]) for name in ("wall_p50_ms", "wall_p90_ms", "wall_p99_ms"))
    lowest, highest, course = NONE, NONE, NONE
    if times:
        lowest, highest = figure(times.lowest_ms), figure(times.highest_ms)
        course = steps.course_sparkline(times, COURSE_COLUMNS).rstrip() + (" log" if times.on_logs else "")
    return [group.group, lowest, p50, p90, p99, highest, course, campaign.window_text(runs), group.window_n, len(runs)]


def _mean(values: Sequence[float | None]) -> str:
    """Geometric, as the figures of the ranking."""
    known = [value for value in values if value]
    return figure(geometric_mean(known)) if known else NONE


def _share(part: float, whole: float) -> str:
    return f"{short_figure(part)} ({100 * part / whole:.0f} %)" if whole else short_figure(part)


def _rank_row(one: steps.Ranks) -> list[object]:
    least, most = one.waits_least, one.waits_most
    work = [rank.work_ms for rank in one.ranks]
    waited_for = [least.rank, short_figure(least.wait_ms), least.where or NONE]
    spread = f"{figure(min(work))} to {figure(max(work))}"
    return [one.group.group, len(one.ranks), spread, *waited_for, most.rank, short_figure(most.wait_ms), one.window, one.n]


def startup_section(results: CampaignResults) -> Iterator[str]:
    """One row per group, one column per recorded part."""
    yield "## Start-up"
    headers, rows = steps.startup_table(results)
    if not rows:
        yield steps.NO_STARTUP
        return
    yield limited_table(headers, rows, right=range(1, len(headers)))
    yield steps.STARTUP_EXPLAINED


def telemetry_section(results: CampaignResults) -> Iterator[str]:
    """One row per group with telemetry."""
    yield "## What the machine did"
    headers, rows = machine.telemetry_table(results)
    if not rows:
        yield machine.NO_TELEMETRY
        return
    yield limited_table(headers, rows, right=range(1, len(headers)))
    yield machine.TELEMETRY_EXPLAINED
    if forecasts := machine.memory_lines(results):
        yield "\n".join(f"- {escape(line)}" for line in forecasts)


def hosts_section(results: CampaignResults) -> Iterator[str]:
    """Heading, sentences and table; nothing for a campaign on one host."""
    found = machine.hosts_of(results)
    if not found:
        return
    yield "## Hosts"
    lines = [f"- {escape(machine.hosts_sentence(one))}" for one in found[: machine.MAX_RUNS]]
    more = len(found) - machine.MAX_RUNS
    yield "\n".join([*lines, *([f"- and {count(more, 'more run')}: `summary.json` has them"] if more > 0 else [])])
    rows = [machine.host_cells(row) for one in found for row in one.shown]
    if rows:
        yield limited_table(machine.HOST_COLUMNS, rows, right=machine.HOST_RIGHT_ALIGNED)
        yield machine.HOSTS_EXPLAINED


def smoke_section(results: CampaignResults) -> Iterator[str]:
    """One column per run; nothing without records."""
    records = machine.smoke_records(results)
    if not records:
        return
    yield "## Smoke record"
    yield table(*machine.smoke_table(records))
    if len(records) > machine.MAX_RECORDS:
        yield f"{len(records) - machine.MAX_RECORDS} more runs are left out here: `summary.json` has them."
    yield machine.SMOKE_EXPLAINED


OVERVIEW = (
    ("eta_points", "points"),
    ("eta_first_step", "first at step"),
    ("eta_first_hms", "first"),
    ("eta_last_step", "last at step"),
    ("eta_last_hms", "last"),
    ("eta_mode_effective", "mode"),
)
QUALITY = ("estimates", "median error s", "p90 error s", "median, of the run", "p90, of the run", "interval held")


def eta_section(results: CampaignResults) -> Iterator[str]:
    """Heading, first and last estimate of each run, and the error of all estimates."""
    yield "## ETA Overview"
    per_run = [(run.attempt.spec.run, run.measure.stage1) for run in results.counted if run.measure]
    estimated: list[Row] = [{"run": name, **cells} for name, cells in per_run if cells.get("eta_points")]
    if estimated:
        headers = ["run", *(title for _, title in OVERVIEW)]
        cells = [[row["run"], *(NONE if row.get(column) in (None, "") else row[column] for column, _ in OVERVIEW)] for row in estimated]
        yield limited_table(headers, cells, right=(1, 2, 4), where=CAMPAIGN_FILES.per_run_metrics.name)
    pooled = machine.pooled_quality(results)
    if pooled is None:
        yield _quality_table([["all runs", "0", *[NONE] * (len(QUALITY) - 1)]])
        yield machine.no_eta_sentence(results)
        return
    judged = [(run.attempt.spec.run, run.measure.eta_quality) for run in results.counted if run.measure and run.measure.eta_quality]
    rows = [["all runs", *_quality_cells(pooled)], *([name, *_quality_cells(found)] for name, found in judged)]
    yield _quality_table(rows)
    yield machine.ETA_EXPLAINED


def _quality_table(rows: Sequence[Sequence[str]]) -> str:
    """The table is part of every summary, even without figures."""
    return limited_table(["ETA quality", *QUALITY], rows, right=range(1, len(QUALITY) + 1), where=CAMPAIGN_FILES.per_run_metrics.name)


def _quality_cells(found: EtaQuality) -> list[str]:
    held = NONE if found.covered is None else machine.whole_percent(found.covered)
    errors = (
        figure(found.median_error_s),
        figure(found.p90_error_s),
        machine.percent(found.median_fraction),
        machine.percent(found.p90_fraction),
    )
    return [str(found.points), *errors, held]


TOP_STABLE = 5
MAX_SETTINGS = 60
GROUP_COLUMNS = (
    ("runs", "runs"),
    ("tail_mean_iter_p50_ms_mean", "iter p50 ms"),
    ("tail_mean_iter_p50_ms_std", "std"),
    ("tail_mean_iter_p90_ms_mean", "iter p90 ms"),
    ("iter_p90_over_p50_mean", "phases p90/p50"),
    ("tail_samples_per_sec_mean", "tail samples/s"),
    ("unstable_run_count", "unstable runs"),
    ("stability_score", "stability"),
    ("speedup_vs_baseline", "speed-up"),
    ("rank_by_iter_p50", "rank iter"),
    ("rank_by_stability", "rank stability"),
    ("rank_balanced", "rank balanced"),
)
IMBALANCE_COLUMNS = (
    ("rank_iter_spread_p90_ms_mean", "iter spread p90 ms"),
    ("rank_step_spread_p90_ms_mean", "step spread p90 ms"),
    ("rank_spread_points_mean", "points"),
)
STABLE_COLUMNS = (
    ("rank_by_stability", "rank"),
    ("stability_score", "stability"),
    ("iter_p90_over_p50_mean", "phases p90/p50"),
    ("unstable_run_ratio", "unstable share"),
)
SKIPPED_COLUMNS = (("reason", "reason"), ("outcome", "outcome"), ("cause", "cause"), ("action", "what to do"))


def stage1_sections(results: CampaignResults, paths: CampaignPaths) -> Iterator[str]:
    """Heading and body of each section, in stage 1's order."""
    groups = group_rows(results)
    yield "## Best Config"
    yield _best_config(results, paths)
    yield from eta_section(results)
    yield "## Group Summary"
    yield from _group_summary(results, groups)
    yield "## Rank Imbalance"
    spread = [row for row in groups if row.get("rank_iter_spread_p90_ms_mean") is not None]
    nothing = "Not measured: needs two ranks or more that all write steps (`rank_scope: all`)."
    yield _rows_table(spread, "group", IMBALANCE_COLUMNS) if spread else nothing
    yield "## Top Stable Groups"
    stable = rows_by_stability(results)[:TOP_STABLE]
    yield _rows_table(stable, "group", STABLE_COLUMNS) if stable else "No group has timing points."
    yield "## Skipped Runs"
    skipped = skipped_rows(results)
    yield _rows_table(skipped, "run", SKIPPED_COLUMNS, paths.skipped_runs.name) if skipped else "None."


def _best_config(results: CampaignResults, paths: CampaignPaths) -> str:
    best = find_best(results)
    if best is None:
        return f"None. {escape(results.ranking.reason or 'No group could be ranked.')}"
    settings = {**(best.spec.settings if best.spec else {}), **best.group.axes}
    rows = [(name, format_cell(value) or NONE) for name, value in settings.items()]
    table = (
        limited_table(["setting", "value"], rows, where=paths.best_config_json.name, most=MAX_SETTINGS)
        if rows
        else "It has no settings of its own."
    )
    ways = f"Ready to use: `{paths.best_config_env.name}`, `{paths.best_overrides.name}`, `{paths.best_config_json.name}`."
    return f"{escape(best.group.group)}: {escape(results.ranking.reason or 'first in the ranking.')}\n\n{table}\n\n{ways}"


def _group_summary(results: CampaignResults, groups: Sequence[Row]) -> Iterator[str]:
    if not groups:
        yield "No group has a run that ended."
        return
    yield _rows_table(groups, "group", GROUP_COLUMNS)
    yield (
        "These figures are sums of phases, the mean over the last timing points of each run, not the wall clock of the ranking. "
        f"Speed-up is against the group '{escape(results.baseline_group)}', where there is one."
    )
    if text := campaign.why_no_tail(results):
        yield escape(text)


def _rows_table(rows: Sequence[Row], name: str, columns: Sequence[tuple[str, str]], where: str = CAMPAIGN_FILES.group_summary.name) -> str:
    """A row per name; figures are right-aligned."""
    body = [[row[name], *(_row_cell(row.get(column)) for column, _ in columns)] for row in rows]
    numeric = [number for number, (column, _) in enumerate(columns, start=1) if not any(isinstance(row.get(column), str) for row in rows)]
    return limited_table([name, *(title for _, title in columns)], body, right=numeric, where=where)


def _row_cell(value: Scalar) -> str:
    if isinstance(value, float):
        return figure(value)
    return NONE if value is None or value == "" else str(value)
