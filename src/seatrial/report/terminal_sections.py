"""The sections of the terminal report, each a generator of rich renderables from the results and the width."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seatrial.core.paths import CampaignPaths
from seatrial.core.text import count, format_duration, join_names
from seatrial.records import ranking
from seatrial.records.columns import PHASES, STEPS
from seatrial.records.events import STARTUP_PARTS
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Finding, Verdict
from seatrial.report.text import (
    NONE,
    OTHER,
    axis_level,
    bar_legend,
    bar_letters,
    common_scale,
    figure,
    interval_bar,
    margin,
    one_line,
    ratio,
    short_figure,
    sparkline,
    stacked_bar,
)
from seatrial.report.view import campaign, machine, problems, steps
from seatrial.report.view.first_screen import Status, headline

LONGEST_NAME = 28
STEPS_PREFIX = "steps "
# Details of the first groups only; the page has all.
MAX_DETAILED = 6
VERDICT_STYLES = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}
STATEMENT_STYLES = {Verdict.PASS: "bold green", Verdict.FAIL: "bold yellow", Verdict.INCONCLUSIVE: "bold"}


def text(content: str, style: str = "") -> Text:
    """A paragraph; words longer than the line are broken."""
    return Text(one_line(content), style=style, overflow="fold")


def heading(title: str, remark: str = "") -> Text:
    """The title of a section, and a clause about what it shows."""
    return Text.assemble((title, "bold"), (f"  {remark}" if remark else "", "dim"), overflow="fold")


def spans(windows: Iterable[str]) -> str:
    """The windows of several figures, mostly one and the same."""
    found = list(dict.fromkeys(windows))
    if all(window.startswith(STEPS_PREFIX) for window in found):
        return STEPS_PREFIX + join_names([window.removeprefix(STEPS_PREFIX) for window in found], 2)
    return join_names(found, 2)


def hanging(mark: str, content: str, style: str) -> RenderableType:
    """A mark with text that wraps beside it."""
    grid = Table.grid(padding=0)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), text(content))
    return grid


def indented(content: RenderableType) -> RenderableType:
    return Padding(content, (0, 0, 0, 2))


def more(left_out: int, what: str = "") -> Iterator[Text]:
    """`and 3 more: see the summary`; nothing where nothing is left out."""
    if left_out > 0:
        yield Text(f"and {left_out} more{' ' if what else ''}{what}: see the summary")


def listed(first: str, items: Sequence[str], width: int) -> Iterator[Text]:
    """Items with commas between them, in lines that only break between items."""
    line = one_line(first)
    for at, item in enumerate(items):
        shown = one_line(item) + ("," if at < len(items) - 1 else "")
        if line and cell_len(line) + cell_len(shown) > width:
            yield text(line.rstrip(), "dim")
            line = ""
        line += f"{shown} "
    yield text(line.rstrip(), "dim")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with right-aligned columns."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [GAP.join(cell.rjust(wide) for cell, wide in zip(row, widths, strict=True)) for row in rows]


def names_width(names: Sequence[str], width: int) -> int:
    """Columns for names that leave most of a line for what is drawn beside them."""
    longest = max((cell_len(one_line(name)) for name in names), default=0)
    return max(min(longest, LONGEST_NAME, width // 3), 1)


def fitted(name: str, columns: int) -> str:
    """The name in exactly `columns`; a longer one is cut."""
    shown = one_line(name)
    return set_cell_size(shown, columns) if cell_len(shown) <= columns else set_cell_size(shown, columns - 1) + "…"


MAX_RANKED = 16
MAX_CANNOT_WIN = 4
# Below this width notes take two lines, which leaves room for two or three axes.
WIDE = 100
# Below this width n and the ratio to the best are left out: the note that names the winner must not be cut.
NARROW = 72
# As wide as `recommended`.
NOTE = 11
NOTE_STYLES = {
    ranking.WINNER: "bold green",
    ranking.RECOMMENDED: "bold",
    **dict.fromkeys((ranking.TIED, ranking.NO_INTERVAL), "yellow"),
    **dict.fromkeys((ranking.CONFOUNDED, ranking.DUPLICATE), "yellow"),
    ranking.CANNOT_WIN: "red",
    **dict.fromkeys((ranking.OFF_LANE, ranking.NOT_RUN), "dim"),
}


def ranking_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Table, groups that cannot win, and intervals; nothing without rows."""
    rows = results.ranking_rows
    if not rows:
        return
    shown = _shown_rows(rows)
    yield _ranking_table(results, shown, _shown_axes(results, shown, width), width)
    yield from more(len(rows) - len(shown), "groups")
    if any(row.summary.window_n for row in rows):
        n = "; n: steps counted, all runs" if width >= NARROW else ""
        yield Text(f"wall clock over the {_which_steps(rows)} of each run{n}", style="dim")
    yield from _cannot_win(rows)
    yield from _interval_bars(results, shown, width)


def _shown_rows(rows: Sequence[RankedGroup]) -> list[RankedGroup]:
    """The first rows, always with the winner, which of a hundred tied groups may be the last."""
    rest = [row for row in rows[MAX_RANKED:] if campaign.is_first(row)]
    return [*rows[: MAX_RANKED - len(rest)], *rest]


def _which_steps(rows: Sequence[RankedGroup]) -> str:
    """Which steps the figures are from: without a steady state all steps count."""
    counted = [row.summary for row in rows if row.summary.runs]
    if not any(group.unsteady_runs for group in counted):
        return "steady steps"
    if all(group.unsteady_runs == group.runs for group in counted):
        return "counted steps (no steady state was found)"
    return "steady steps (all that count where none were found)"


def _cannot_win(rows: Sequence[RankedGroup]) -> Iterator[RenderableType]:
    """Why a group that may look fast cannot win, or is not compared."""
    excluded = [row for row in rows if row.note in (ranking.CANNOT_WIN, ranking.CONFOUNDED, ranking.DUPLICATE) and row.reason]
    for row in excluded[:MAX_CANNOT_WIN]:
        if row.note == ranking.CANNOT_WIN:
            yield hanging("! ", f"{row.group} {ranking.CANNOT_WIN}: {row.reason}", "red")
        else:
            yield hanging("! ", f"{row.group} is {row.reason}", "yellow")
    yield from more(len(excluded) - MAX_CANNOT_WIN, "that cannot win")


def _ranking_table(results: CampaignResults, rows: Sequence[RankedGroup], axes: Sequence[str], width: int) -> Table:
    unit = results.ranking.unit or results.ranking.metric
    labels = campaign.axis_labels(results)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("group", overflow="fold", min_width=8, max_width=LONGEST_NAME)
    for axis in axes:
        table.add_column(text(labels.get(axis) or axis), justify="right", overflow="fold")
    table.add_column(text(unit), justify="right", min_width=9)
    for title in ("±", *(("n", "to best") if width >= NARROW else ()), "p90/p50", *(("start",) if width >= WIDE else ()), "ok"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", min_width=NOTE, max_width=NOTE if width < WIDE else None)
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and before.summary.lane and not row.summary.lane:
            table.add_section()
        table.add_row(*_ranking_cells(row, axes, width), style="" if row.summary.lane else "dim")
    return table


def _ranking_cells(row: RankedGroup, axes: Sequence[str], width: int) -> list[Text]:
    group = row.summary
    tried = group.runs + group.failed_runs + group.set_aside_runs + len(group.infrastructure_failures)
    note = campaign.note_text(row) if width >= WIDE else campaign.note_with_debug(row)
    return [
        Text(str(row.rank)),
        text(group.group, "bold" if campaign.is_first(row) else ""),
        *(text(axis_level(group.axes.get(axis))) for axis in axes),
        Text(figure(row.value)),
        Text(margin(row.estimate).removeprefix("±").strip() or NONE),
        *((Text(str(row.n or NONE)), Text(campaign.to_best(row))) if width >= NARROW else ()),
        Text(ratio(campaign.mean_of(group, "wall_p90_over_p50"))),
        *((Text(format_duration(campaign.mean_of(group, "startup_s"))),) if width >= WIDE else ()),
        Text(f"{group.runs}/{tried}", "red" if group.failed_runs else ""),
        Text(note, "yellow" if group.debug else NOTE_STYLES.get(row.note, "")),
    ]


def _shown_axes(results: CampaignResults, rows: Sequence[RankedGroup], width: int) -> list[str]:
    """Axes that get columns of their own: all if the table then fits, else none, as group names contain them."""
    axes = campaign.axis_names(rows)
    measuring = Console(width=10_000, file=io.StringIO(), color_system=None)
    natural = measuring.measure(_ranking_table(results, rows, axes, width)).maximum
    return axes if natural <= width else []


def _interval_bars(results: CampaignResults, rows: Sequence[RankedGroup], width: int) -> Iterator[RenderableType]:
    """Each group's interval on one scale; nothing where no group has one."""
    drawn = [row for row in rows if row.estimate]
    scale = common_scale([row.estimate for row in drawn])
    if scale is None or not any(margin(row.estimate) for row in drawn):
        return
    name_width = names_width([row.group for row in drawn], width)
    room = max(width - name_width - 3, 10)
    yield Text("")
    yield text(f"95 % intervals, {results.ranking.unit}".rstrip(", "), "bold")
    low, high = figure(scale.low), figure(scale.high)
    yield Text(f"{'':{name_width}}  {low}{high:>{max(room - len(low), 1)}}", style="dim")
    for row in drawn:
        style = NOTE_STYLES.get(row.note, "cyan")
        shown = fitted(row.group, name_width)
        yield Text.assemble(f"{shown}  ", (interval_bar(row.estimate, scale, room), style), no_wrap=True)


WIDEST_CHART = 60
NARROWEST_CHART = 8
GAP = "  "


def step_time_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """One line per group; nothing without charts."""
    shown = steps.step_times(results, MAX_DETAILED)
    if not shown:
        return
    on_logs = "; log: log scale" if any(times.on_logs for times in shown) else ""
    yield heading("Step time, ms", f"{spans(times.window for times in shown)}: course, lowest, median, highest{on_logs}")
    names = names_width([times.group.group for times in shown], width)
    figures = _figures(shown)
    room = min(width - names - max(len(line) for line in figures) - 2 * len(GAP), WIDEST_CHART)
    for times, numbers in zip(shown, figures, strict=True):
        drawn = steps.course_sparkline(times, room) if room >= NARROWEST_CHART else ""
        yield Text.assemble(fitted(times.group.group, names), GAP, (drawn, "cyan"), GAP if drawn else "", numbers, no_wrap=True)
    yield from more(steps.groups_with(results, STEPS) - len(shown), "groups")


def _figures(shown: Sequence[steps.StepTimes]) -> list[str]:
    """Lowest, median, highest and n of each, in columns; and whether the course is drawn on logs."""
    rows = [[figure(one.lowest_ms), figure(one.median_ms), figure(one.highest_ms), f"n {one.group.window_n}"] for one in shown]
    return [f"{line} log" if one.on_logs else line for one, line in zip(shown, columns(rows), strict=True)]


# The slowest start-up is shown, and the quickest if the slowest takes more than this times as long.
QUICKER_RATIO = 1.25
# Neighbours differ; without colour the letters do.
STYLES = ("cyan", "magenta", "green", "yellow", "blue", "red")


def phases_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """One bar per group, all of the same length."""
    shown = steps.phases(results, MAX_DETAILED)
    if not shown:
        return
    over = spans(one.window for one in shown)
    yield heading("Phases, ms", f"{over}: over n steps with phases; then the median step (p50)")
    names = list(dict.fromkeys(name for one in shown for name in one.parts))
    figures = columns([[short_figure(one.whole), short_figure(one.usual), f"n {one.n}"] for one in shown])
    yield from _stacked_bars(shown, figures, sorted(names, key=lambda name: name == OTHER), width)
    yield from more(steps.groups_with(results, PHASES) - len(shown), "groups")


def startup_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """The slowest and the quickest group, from launch to the end of the first step."""
    found = sorted(steps.startups(results), key=lambda one: -one.whole)
    if not found:
        return
    slowest, quickest = found[0], found[-1]
    differ = slowest.whole > QUICKER_RATIO * quickest.whole
    which = "; slowest and quickest group" if differ else "; the others are as quick" if len(found) > 1 else ""
    yield heading("Start-up, s", f"launch to the end of the first step, mean of n runs{which}")
    known = {name for one in found for name in one.parts}
    shown = [slowest, quickest] if differ else [slowest]
    figures = columns([[short_figure(one.whole), f"n {one.runs}"] for one in shown])
    yield from _stacked_bars(shown, figures, [part for part in STARTUP_PARTS if part in known], width)


def _stacked_bars(shown: Sequence[steps.Breakdown], figures: Sequence[str], names: Sequence[str], width: int) -> Iterator[RenderableType]:
    letters = bar_letters(names)
    name_width = names_width([one.group.group for one in shown], width)
    longest = max(map(len, figures))
    room = max(min(width - name_width - longest - 2 * len(GAP), WIDEST_CHART), NARROWEST_CHART)
    styles = {letter: STYLES[at % len(STYLES)] for at, letter in enumerate(letters.values())}
    for one, numbers in zip(shown, figures, strict=True):
        drawn = Text.assemble(*((letter, styles.get(letter, "")) for letter in stacked_bar(one.parts, letters, room)))
        yield Text.assemble(fitted(one.group.group, name_width), GAP, drawn, GAP, numbers, no_wrap=True)
    first = shown[0]
    entries = [f"{entry}{_share(first, name)}" for name, entry in bar_legend(letters).items()]
    yield from listed(f"of {first.group.group}: " if len(shown) > 1 else "", entries, width)


def _share(one: steps.Breakdown, name: str) -> str:
    return f" {100 * one.parts[name] / one.whole:.0f} %" if name in one.parts and one.whole else ""


MAX_DRAWN = 24


def ranks_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """A line per group whose ranks wait for each other, and one for all other groups with several ranks."""
    found = steps.ranks(results)
    uneven = [one for one in found if not one.is_even]
    shown = uneven[:MAX_DETAILED]
    if not found:
        return
    even = f"no rank waits {100 * steps.EVEN_SHARE:.0f} % of a step longer than another"
    work = "median work, ms; the others wait for the rank that waits least"
    yield heading("Ranks", f"{spans(one.window for one in shown or found)}: {work if shown else even}")
    names = names_width([one.group.group for one in shown], width)
    for one in shown:
        yield hanging(f"{fitted(one.group.group, names)}  ", _ranks_line(one), "")
    yield from more(len(uneven) - len(shown), "groups")
    if shown and len(uneven) < len(found):
        yield text(f"{join_names([one.group.group for one in found if one.is_even])}: {even}")


def _ranks_line(one: steps.Ranks) -> str:
    work = [rank.work_ms for rank in one.ranks]
    drawn = sparkline(work, min(len(work), MAX_DRAWN))
    least, most = one.waits_least, one.waits_most
    where = f" ({least.where})" if least.where else ""
    ends = f"{short_figure(min(work))} to {short_figure(max(work))}"
    waits = f"rank {least.rank} waits {short_figure(least.wait_ms)} ms{where}, rank {most.rank} {short_figure(most.wait_ms)} ms"
    return f"{drawn}  {ends}  n {one.n}  {waits}"


MAX_MACHINES = 3
# Columns that a terminal has room for; the summary has all.
SHOWN = (
    "gpu_power_mean_w", "gpu_util_mean_pct", "gpu_sm_clock_mean_mhz", "gpu_mem_peak_mib", "gpu_throttled_pct", "host_cpu_busy_mean_pct",
    "host_cpu_steal_mean_pct", "host_rss_peak_mib",
)  # fmt: skip


def machine_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Telemetry by group, then a sentence each on memory, health, ETA, machines and process groups."""
    yield from _telemetry(results, width)
    forecasts = machine.memory_lines(results)
    for line in forecasts[:MAX_DETAILED]:
        yield text(line, "dim")
    yield from more(len(forecasts) - MAX_DETAILED, "forecasts of GPU memory")
    if well := problems.health_line(results):
        yield text(well, "dim")
    if any(run.attempt.outcome for run in results.runs):
        yield text(machine.eta_line(results), "dim")
    found = machine.machines(results)
    for line, runs in found[:MAX_MACHINES]:
        yield text(f"Machine: {line} ({count(runs, 'run')})", "dim")
    yield from more(len(found) - MAX_MACHINES, "machines")
    groups = machine.communicator_lines(results)
    for line, runs in groups[:MAX_MACHINES]:
        yield text(f"Process group: {line} ({count(runs, 'run')})", "dim")
    yield from more(len(groups) - MAX_MACHINES, "process groups")


def _telemetry(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    headers, rows = machine.telemetry_table(results, SHOWN)
    if not rows:
        return
    shown = rows[:MAX_DETAILED]
    names = names_width(["Machine", *(str(row[0]) for row in shown)], width)
    cells = [["Machine", *headers[1:]], *([fitted(str(row[0]), names), *map(str, row[1:])] for row in shown)]
    table = Table.grid(padding=(0, 2, 0, 0))
    for at in (kept := _fitting(cells, width)):
        table.add_column(justify="right" if at else "left", no_wrap=True, overflow="ellipsis")
    for number, row in enumerate(cells):
        table.add_row(*(Text(row[at], "" if number else "bold") for at in kept))
    yield table
    yield from more(len(rows) - len(shown), "groups")
    yield Text("")


def _fitting(cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """The first columns that fit, and the last, which is the number of runs."""
    widths = [max(cell_len(row[at]) for row in cells) + 2 for at in range(len(cells[0]))]
    last = len(widths) - 1
    kept = [at for at in range(last) if sum(widths[: at + 1]) + widths[last] <= width or at < 2]
    return [*kept, last]


HOST_COLUMNS = ("host", "ranks", "clock", "exit", "ended", "net out MiB/s")


def hosts_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """A sentence per run and a table; nothing for a campaign on one host."""
    found = machine.hosts_of(results)
    if not found:
        return
    yield heading("Hosts")
    for one in found[:MAX_DETAILED]:
        yield text(machine.hosts_sentence(one), "dim")
    yield from more(len(found) - MAX_DETAILED, "runs")
    rows = _shown_hosts(found)
    if rows:
        yield _hosts_table(rows[: machine.ALL_SHOWN], width)
    yield from more(len(rows) - machine.ALL_SHOWN, "hosts")


def _shown_hosts(found: list[machine.RunHosts]) -> list[machine.HostRow]:
    """The hosts of the first run, if they are few, and the odd ones of all runs."""
    first = found[0].hosts if len(found[0].hosts) <= machine.ALL_SHOWN else ()
    return [*first, *(row for one in found for row in one.hosts if row.odd and row not in first)]


def _hosts_table(rows: list[machine.HostRow], width: int) -> Table:
    names = names_width(["host", *(row.host for row in rows)], width)
    grid = Table.grid(padding=(0, 2, 0, 0))
    for at in range(len(HOST_COLUMNS)):
        grid.add_column(justify="left" if at in (0, 4) else "right", no_wrap=True, overflow="ellipsis")
    grid.add_row(*(Text(title, "bold") for title in HOST_COLUMNS))
    for row in rows:
        code = NONE if row.returncode is None else str(row.returncode)
        sent = short_figure(row.did.net_tx_mean_mib_per_s if row.did else None)
        cells = (
            fitted(row.host, names).rstrip(),
            machine.ranks_text(row),
            machine.clock_text(row),
            code,
            row.ended.replace("_", " ") or NONE,
            sent,
        )
        grid.add_row(*(Text(one_line(cell)) for cell in cells))
    return grid


LOG_LINES = 3
MAX_FAILURES = 5
MAX_CAUTIONS = 8


def failures_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Failed runs, by cause."""
    found = problems.failures(results)
    if found:
        yield heading("Failures")
    for failure in found[:MAX_FAILURES]:
        yield from _failure(failure)
    yield from more(len(found) - MAX_FAILURES, "causes")


def cautions_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Cautions, each with its runs or groups."""
    found = campaign.shown_cautions(results)
    if found:
        yield heading("Cautions")
    for caution in found[:MAX_CAUTIONS]:
        subjects = f" ({join_names(caution.subjects)})" if caution.subjects else ""
        yield hanging("! ", f"{caution.text}{subjects}", "yellow")
    yield from more(len(found) - MAX_CAUTIONS)


def _failure(failure: problems.Failure) -> Iterator[RenderableType]:
    yield hanging("x ", f"{join_names(failure.runs)}: {failure.outcome} after {failure.after}, {failure.cause}", "red")
    if failure.detail:
        yield indented(text(failure.detail))
    if failure.action:
        yield indented(text(f"What to do: {failure.action}", "bold"))
    for remark in failure.remarks:
        yield indented(text(remark))
    for line in failure.telling or failure.log_tail[-LOG_LINES:]:
        yield indented(Text(f"| {one_line(line)}", style="dim", no_wrap=True, overflow="ellipsis"))


MAX_ADVICE = 4
MAX_STATEMENTS = 6
MAX_FINDINGS = 12


def statements_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Findings without a criterion: problems in full, one line for what is unknown and one for what is ok."""
    if not results.verdict.statements:
        return
    failed = problems.failed_statements(results)
    yield heading("Other findings")
    for finding in failed[:MAX_STATEMENTS]:
        word = problems.word_of(finding)
        yield hanging(f"{problems.MARKS[word]} ", f"{word}: {finding.text} [{finding.id}]", STATEMENT_STYLES[finding.verdict])
        yield from _advice(finding, set())
    yield from more(len(failed) - MAX_STATEMENTS)
    for verdict, kinds in ((Verdict.INCONCLUSIVE, problems.open_kinds(results)), (Verdict.PASS, problems.holding_kinds(results))):
        if kinds:
            word = problems.WORDS[verdict]
            yield hanging(f"{problems.MARKS[word]} ", f"{word}: {', '.join(kinds)}", STATEMENT_STYLES[verdict])
    yield text(f"seatrial why {shlex.quote(results.output)} lists all with their ids; add an ID to see its evidence.", "dim")


HEADLINE_STYLES = {Status.GOOD: "bold green", Status.BAD: "bold red", Status.OPEN: "bold yellow", Status.UNKNOWN: "bold"}
# From this width on two columns fit.
MIN_BESIDE = 60
MAX_HEADLINE_LINES = 2


def headline_lines(results: CampaignResults, width: int) -> list[RenderableType]:
    """One or two lines for each part: its word in its colour, and the facts beside it."""
    parts = headline(results)
    wide = max(len(part.word) for part in parts) + 2 if width >= MIN_BESIDE else 0
    lines: list[RenderableType] = []
    for part in parts:
        word = part.word.ljust(wide) if wide else f"{part.word}: "
        for at, line in enumerate(clipped(f"{'' if wide else word}{part.text}", width - wide, MAX_HEADLINE_LINES)):
            start = (" " * wide if at else word) if wide else ""
            shown = Text.assemble((start, HEADLINE_STYLES[part.status]), line)
            if not wide and not at:
                shown.stylize(HEADLINE_STYLES[part.status], 0, len(part.word))
            lines.append(shown)
    return lines


def clipped(content: str, width: int, most: int, style: str = "") -> Iterator[Text]:
    """The text in at most `most` lines; `…` ends a longer one."""
    measuring = Console(width=max(width, 1), file=io.StringIO(), color_system=None)
    lines = list(Text(one_line(content), style=style, overflow="fold").wrap(measuring, max(width, 1)))
    for at, line in enumerate(lines[:most]):
        line.rstrip()
        if at == most - 1 and len(lines) > most:
            yield Text(set_cell_size(line.plain, min(cell_len(line.plain), max(width - 1, 1))).rstrip() + "…", style=style)
        else:
            yield line


def written_reports(results: CampaignResults) -> list[tuple[str, Path]]:
    """Label and path; none of a report that was not written, so that no old one is opened."""
    kinds = {caution.kind for caution in results.cautions}
    paths = CampaignPaths(Path(results.output))
    written = [] if campaign.REPORT_NOT_WRITTEN in kinds else [("For a pull request: ", paths.summary_md)]
    page = [("Page: ", paths.summary_html)] if not kinds & {campaign.REPORT_NOT_WRITTEN, campaign.PAGE_NOT_DRAWN} else []
    return [*page, *written]


def verdict_section(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """The headline, every criterion (of too many, those that do not hold first), and the winners."""
    judged = results.verdict
    yield from headline_lines(results, width)
    shown: set[str] = set()
    findings = _shown_findings(judged.findings)
    for finding in findings:
        yield hanging(
            f"{problems.MARKS[finding.verdict.value]} ", f"[{problems.short_id(finding)}] {finding.text}", VERDICT_STYLES[finding.verdict]
        )
        yield from _advice(finding, shown)
    yield from more(len(judged.findings) - len(findings), "criteria")
    if waiting := campaign.pending_sentence(results):
        yield hanging("… ", waiting, "yellow")
    if left_out := campaign.left_out_sentence(results):
        yield hanging("! ", left_out, "yellow")
    yield Text("")
    yield text(campaign.winners_sentence(results))


def _shown_findings(findings: tuple[Finding, ...]) -> list[Finding]:
    """All in the plan's order; of too many, those that decide the verdict."""
    if len(findings) <= MAX_FINDINGS:
        return list(findings)
    order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS]
    return sorted(findings, key=lambda finding: order.index(finding.verdict))[:MAX_FINDINGS]


def _advice(finding: Finding, shown: set[str]) -> Iterator[RenderableType]:
    """Advice on a finding; what is shown above is not repeated."""
    fresh = [advice for advice in finding.advice if advice.text not in shown]
    shown.update(advice.text for advice in fresh)
    for advice in fresh[:MAX_ADVICE]:
        yield indented(hanging("try: ", advice.text, "bold"))
    yield from map(indented, more(len(fresh) - MAX_ADVICE))
    if len(fresh) < len(finding.advice):
        yield Text("  try: as above")
