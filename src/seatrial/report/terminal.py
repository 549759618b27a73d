"""The report on a terminal: ranked table, intervals drawn to scale, verdict, winners, failures, cautions.

In: CampaignResults. Out: a rich renderable, printed by `print_report`, saved as a picture by `save_svg`. Names and log lines
come from users: they are put into `rich.text.Text` and never read as markup. Readable at 80 columns and without colour.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from seatrial import files, units
from seatrial.paths import CampaignPaths
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Finding, Verdict
from seatrial.report import digest
from seatrial.report.digest import Standing
from seatrial.report.eta_section import eta_line
from seatrial.report.failures import Failure, failures
from seatrial.report.findings_section import short_id, statements_told, words_holding, words_open
from seatrial.report.health_section import health_line
from seatrial.report.interval_bars import Scale, bar, scale_of
from seatrial.report.markdown import one_line
from seatrial.report.numbers import NONE, figure, margin, ratio
from seatrial.report.picture import COLOURS, GROUND, SVG_FORMAT, TEXT

DEFAULT_WIDTH = 80
LOG_LINES = 3
MOST_FAILURES = 5
MOST_CAUTIONS = 8
MOST_ADVICE = 4
MOST_STATEMENTS = 6
LONGEST_NAME = 28
# Below this many columns notes are set in two lines, which leaves room for two or three axes.
WIDE = 100
# And below this the ratio to the best goes: the note that says who won must not be cut.
NARROW = 72
NARROW_NOTE = 8
VERDICT_STYLES = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}
MARKS = {Verdict.PASS: "+", Verdict.FAIL: "x", Verdict.INCONCLUSIVE: "?"}
NOTE_STYLES = {"winner": "bold green", "tied": "yellow", "no interval": "yellow", "cannot win": "red", "off lane": "dim"}


def print_report(results: CampaignResults, console: Console) -> None:
    """Print everything, at the console's width."""
    console.print(render(results, width=console.width))


def render(results: CampaignResults, *, width: int = DEFAULT_WIDTH) -> RenderableType:
    """The whole report, made for `width` columns."""
    head = [*_origin(results), *_ranking(results, width), *_verdict(results), *_statements(results)]
    return Group(*head, *_failures(results), *_cautions(results), *_where(results))


def save_svg(results: CampaignResults, path: Path, *, width: int = 100, title: str = "seatrial") -> None:
    """The same as a picture that needs no font and no host but its own file."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False)
    print_report(results, console)
    theme = TerminalTheme(GROUND, TEXT, COLOURS, COLOURS)
    files.write_text(path, console.export_svg(title=title, theme=theme, code_format=SVG_FORMAT, unique_id="seatrial"))


def _origin(results: CampaignResults) -> Iterator[RenderableType]:
    if made_of := digest.origin(results):
        yield _text(made_of)
        yield Text("")


def _ranking(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    placed = digest.standings(results)
    if placed:
        yield _table(results, placed, _shown_axes(results, placed, width), width)
        if any(standing.group.window_n for standing in placed):
            yield Text(f"wall clock over the {_which_steps(placed)} of each run; n: steps counted, all runs", style="dim")
        yield from _barred(placed)
        yield from _bars(results, placed, width)


def _which_steps(placed: Sequence[Standing]) -> str:
    """What the figures are taken over: without a steady state all steps count."""
    counted = [standing.group for standing in placed if standing.group.runs]
    if not any(group.unsteady_runs for group in counted):
        return "steady steps"
    if all(group.unsteady_runs == group.runs for group in counted):
        return "counted steps (no steady state was found)"
    return "steady steps (all that count where none were found)"


def _barred(placed: Sequence[Standing]) -> Iterator[RenderableType]:
    """Why a group that may look fast is out of the running."""
    for standing in placed:
        if standing.note == "cannot win" and standing.place.reason:
            yield _hanging("! ", f"{standing.group.group} cannot win: {standing.place.reason}", "red")


def _table(results: CampaignResults, placed: Sequence[Standing], axes: Sequence[str], width: int) -> Table:
    unit = results.ranking.unit or results.ranking.metric
    labels = _labels(results)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("group", overflow="fold", min_width=8, max_width=LONGEST_NAME)
    for axis in axes:
        table.add_column(Text(labels.get(axis) or axis), justify="right", overflow="fold")
    table.add_column(Text(unit), justify="right", min_width=9)
    for title in ("±", "n", *(("to best",) if width >= NARROW else ()), "p90/p50", *(("start",) if width >= WIDE else ()), "ok"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", min_width=NARROW_NOTE, max_width=NARROW_NOTE if width < WIDE else None)
    for before, standing in zip([None, *placed], placed, strict=False):
        if before is not None and before.group.lane and not standing.group.lane:
            table.add_section()
        table.add_row(*_cells(standing, axes, width), style="" if standing.group.lane else "dim")
    return table


def _cells(standing: Standing, axes: Sequence[str], width: int) -> list[Text]:
    group, place = standing.group, standing.place
    tried = group.runs + group.failed_runs + group.set_aside_runs + len(group.infrastructure_failures)
    return [
        Text(str(place.rank)),
        _text(group.group, "bold" if standing.note == "winner" else ""),
        *(_text(str(group.axes.get(axis, NONE))) for axis in axes),
        Text(figure(place.value)),
        Text(margin(standing.estimate).removeprefix("±") or NONE),
        Text(str(group.window_n or NONE)),
        *((Text(ratio(place.ratio.mean) if place.ratio else ("1" if standing.leads else NONE)),) if width >= NARROW else ()),
        Text(ratio(standing.mean("wall_p90_over_p50"))),
        *((Text(units.format_duration(standing.mean("startup_s"))),) if width >= WIDE else ()),
        Text(f"{group.runs}/{tried}", "red" if group.failed_runs else ""),
        Text(standing.remarks, "yellow" if group.debug else NOTE_STYLES.get(standing.note, "")),
    ]


def _shown_axes(results: CampaignResults, placed: Sequence[Standing], width: int) -> list[str]:
    """Axes get columns of their own when the table then still fits; group names carry them otherwise."""
    axes = list(dict.fromkeys(name for standing in placed for name in standing.group.axes))
    measuring = Console(width=10_000, file=io.StringIO(), color_system=None)
    natural = measuring.measure(_table(results, placed, axes, width)).maximum
    return axes if natural <= width else []


def _bars(results: CampaignResults, placed: Sequence[Standing], width: int) -> Iterator[RenderableType]:
    """Each group's interval on one scale; nothing where no group has one."""
    drawn = [standing for standing in placed if standing.estimate]
    scale = scale_of([standing.estimate for standing in drawn])
    if scale is None or not any(margin(standing.estimate) for standing in drawn):
        return
    name_width = min(max(len(standing.group.group) for standing in drawn), LONGEST_NAME)
    room = max(width - name_width - 3, 10)
    yield Text("")
    yield _text(f"95 % intervals, {results.ranking.unit}".rstrip(", "), "bold")
    yield Text(f"{'':{name_width}}  {_ends(scale, room)}", style="dim")
    for standing in drawn:
        name = one_line(standing.group.group)
        shown = name if len(name) <= name_width else name[: name_width - 1] + "…"
        style = NOTE_STYLES.get(standing.note, "cyan")
        yield Text.assemble(f"{shown:{name_width}}  ", (bar(standing.estimate, scale, room), style), no_wrap=True)


def _ends(scale: Scale, room: int) -> str:
    low, high = figure(scale.low), figure(scale.high)
    return f"{low}{high:>{max(room - len(low), 1)}}"


def _verdict(results: CampaignResults) -> Iterator[RenderableType]:
    verdict = results.verdict.verdict
    yield Text("")
    yield Text.assemble("Verdict: ", (verdict.value, VERDICT_STYLES[verdict]), " (partial)" if results.verdict.partial else "")
    told: set[str] = set()
    for finding in results.verdict.findings:
        yield _hanging(f"{MARKS[finding.verdict]} ", f"[{short_id(finding)}] {finding.text}", VERDICT_STYLES[finding.verdict])
        yield from _advice(finding, told)
    waiting = digest.pending_sentence(results)
    if waiting:
        yield _hanging("… ", waiting, "yellow")
    if left_out := digest.left_out_sentence(results):
        yield _hanging("! ", left_out, "yellow")
    yield Text("")
    yield _text(digest.winners_sentence(results))


def _advice(finding: Finding, told: set[str]) -> Iterator[RenderableType]:
    """What stands above already, at another criterion of the same runs, is not told again."""
    fresh = [advice for advice in finding.advice if advice.text not in told]
    told.update(advice.text for advice in fresh)
    for advice in fresh[:MOST_ADVICE]:
        yield Padding(_hanging("try: ", advice.text, "bold"), (0, 0, 0, 2))
    if len(fresh) > MOST_ADVICE:
        yield Text(f"  and {len(fresh) - MOST_ADVICE} more: see the summary")
    if len(fresh) < len(finding.advice):
        yield Text("  try: what stands above")


def _statements(results: CampaignResults) -> Iterator[RenderableType]:
    """What was found beside the criteria: in full what does not hold, in one line what does, in another what cannot be said."""
    told = statements_told(results)
    if not results.verdict.statements:
        return
    yield Text("")
    yield Text("Also found", style="bold")
    for finding in told[:MOST_STATEMENTS]:
        yield _hanging(f"{MARKS[finding.verdict]} ", f"{finding.text} [{finding.id}]", VERDICT_STYLES[finding.verdict])
        yield from _advice(finding, set())
    if len(told) > MOST_STATEMENTS:
        yield Text(f"and {len(told) - MOST_STATEMENTS} more: see the summary")
    for verdict, words in ((Verdict.INCONCLUSIVE, words_open(results)), (Verdict.PASS, words_holding(results))):
        if words:
            said = "cannot be said: " if verdict is Verdict.INCONCLUSIVE else "holds: "
            yield _hanging(f"{MARKS[verdict]} ", said + ", ".join(words), VERDICT_STYLES[verdict])
    yield _text(f"seatrial why {shlex.quote(results.output)} lists them all with their ids; with an ID, what that rests on.", "dim")


def _failures(results: CampaignResults) -> Iterator[RenderableType]:
    found = failures(results)
    if found:
        yield Text("")
        yield Text("Failures", style="bold")
    for failure in found[:MOST_FAILURES]:
        yield from _failure(failure)
    if len(found) > MOST_FAILURES:
        yield Text(f"and {len(found) - MOST_FAILURES} more causes: see the summary")


def _failure(failure: Failure) -> Iterator[RenderableType]:
    after = units.format_duration(failure.duration_s)
    yield _hanging("x ", f"{digest.named(failure.runs)}: {failure.outcome} after {after}, {failure.cause}", "red")
    if failure.detail:
        yield Padding(_text(failure.detail), (0, 0, 0, 2))
    if failure.action:
        yield Padding(_text(f"What to do: {failure.action}", "bold"), (0, 0, 0, 2))
    for remark in failure.remarks:
        yield Padding(_text(remark), (0, 0, 0, 2))
    for line in failure.telling or failure.log_tail[-LOG_LINES:]:
        yield Padding(Text(f"| {one_line(line)}", style="dim", no_wrap=True, overflow="ellipsis"), (0, 0, 0, 2))


def _cautions(results: CampaignResults) -> Iterator[RenderableType]:
    found = digest.warnings(results)
    if found:
        yield Text("")
        yield Text("Cautions", style="bold")
    for caution in found[:MOST_CAUTIONS]:
        subjects = f" ({digest.named(caution.subjects)})" if caution.subjects else ""
        yield _hanging("! ", f"{caution.text}{subjects}", "yellow")
    if len(found) > MOST_CAUTIONS:
        yield Text(f"and {len(found) - MOST_CAUTIONS} more: see the summary")


def _where(results: CampaignResults) -> Iterator[RenderableType]:
    yield Text("")
    if well := health_line(results):
        yield _text(well, "dim")
    if any(run.attempt.outcome for run in results.runs):
        yield _text(eta_line(results), "dim")
    yield Text.assemble("Report: ", (one_line(str(CampaignPaths(Path(results.output)).summary_md)), "cyan"), overflow="fold")


def _labels(results: CampaignResults) -> dict[str, str]:
    return {axis: label for run in results.runs for axis, label in run.attempt.spec.labels.items()}


def _hanging(mark: str, text: str, style: str) -> RenderableType:
    """A mark, and text that wraps beside it."""
    grid = Table.grid(padding=0)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), _text(text))
    return grid


def _text(text: str, style: str = "") -> Text:
    return Text(one_line(text), style=style, overflow="fold")
