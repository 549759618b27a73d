"""The ranking on a terminal: a table that fits, why a group is out of the running, and each interval drawn on one scale."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from seatrial import units
from seatrial.records.results import CampaignResults
from seatrial.report.digest.standings import CANNOT_WIN, LEADS, NO_INTERVAL, NOT_RUN, OFF_LANE, TIED, WINNER, Standing, standings
from seatrial.report.interval_bars import Scale, bar, scale_of
from seatrial.report.numbers import NONE, figure, level, margin, ratio
from seatrial.report.terminal.text import LONGEST_NAME, fitted, hanging, more, names_width, text

MOST_RANKED = 16
MOST_BARRED = 4
# Below this many columns notes are set in two lines, which leaves room for two or three axes.
WIDE = 100
# And below this the ratio to the best goes: the note that says who won must not be cut.
NARROW = 72
NOTE, NARROW_NOTE = 10, 8
NOTE_STYLES = {
    WINNER: "bold green",
    LEADS: "bold",
    TIED: "yellow",
    NO_INTERVAL: "yellow",
    CANNOT_WIN: "red",
    OFF_LANE: "dim",
    NOT_RUN: "dim",
}


def ranked(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Nothing where no group has a place."""
    placed = standings(results)
    if not placed:
        return
    shown = _shown(placed)
    yield _table(results, shown, _shown_axes(results, shown, width), width)
    if len(placed) > len(shown):
        yield more(len(placed) - len(shown), "groups")
    if any(standing.group.window_n for standing in placed):
        yield Text(f"wall clock over the {_which_steps(placed)} of each run; n: steps counted, all runs", style="dim")
    yield from _barred(placed)
    yield from _bars(results, shown, width)


def _shown(placed: Sequence[Standing]) -> list[Standing]:
    """The first ones; the winner is among them, though of a hundred that are tied it may be the last."""
    rest = [standing for standing in placed[MOST_RANKED:] if standing.is_first]
    return [*placed[: MOST_RANKED - len(rest)], *rest]


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
    barred = [standing for standing in placed if standing.note == CANNOT_WIN and standing.place.reason]
    for standing in barred[:MOST_BARRED]:
        yield hanging("! ", f"{standing.group.group} {CANNOT_WIN}: {standing.place.reason}", "red")
    if len(barred) > MOST_BARRED:
        yield more(len(barred) - MOST_BARRED, "that cannot win")


def _table(results: CampaignResults, placed: Sequence[Standing], axes: Sequence[str], width: int) -> Table:
    unit = results.ranking.unit or results.ranking.metric
    labels = _labels(results)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("group", overflow="fold", min_width=8, max_width=LONGEST_NAME)
    for axis in axes:
        table.add_column(text(labels.get(axis) or axis), justify="right", overflow="fold")
    table.add_column(text(unit), justify="right", min_width=9)
    for title in ("±", "n", *(("to best",) if width >= NARROW else ()), "p90/p50", *(("start",) if width >= WIDE else ()), "ok"):
        table.add_column(title, justify="right", no_wrap=True)
    note = NOTE if width >= NARROW else NARROW_NOTE
    table.add_column("", min_width=note, max_width=note if width < WIDE else None)
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
        text(group.group, "bold" if standing.is_first else ""),
        *(text(level(group.axes.get(axis))) for axis in axes),
        Text(figure(place.value)),
        Text(margin(standing.estimate).removeprefix("±").strip() or NONE),
        Text(str(standing.n or NONE)),
        *((Text(ratio(place.ratio.mean) if place.ratio else ("1" if standing.is_best else NONE)),) if width >= NARROW else ()),
        Text(ratio(standing.mean("wall_p90_over_p50"))),
        *((Text(units.format_duration(standing.mean("startup_s"))),) if width >= WIDE else ()),
        Text(f"{group.runs}/{tried}", "red" if group.failed_runs else ""),
        Text(standing.shown, "yellow" if group.debug else NOTE_STYLES.get(standing.note, "")),
    ]


def _shown_axes(results: CampaignResults, placed: Sequence[Standing], width: int) -> list[str]:
    """Axes get columns of their own when the table then still fits; group names carry them otherwise."""
    axes = list(dict.fromkeys(name for standing in placed for name in standing.group.axes))
    measuring = Console(width=10_000, file=io.StringIO(), color_system=None)
    natural = measuring.measure(_table(results, placed, axes, width)).maximum
    return axes if natural <= width else []


def _labels(results: CampaignResults) -> dict[str, str]:
    return {axis: label for run in results.runs for axis, label in run.attempt.spec.labels.items()}


def _bars(results: CampaignResults, placed: Sequence[Standing], width: int) -> Iterator[RenderableType]:
    """Each group's interval on one scale; nothing where no group has one."""
    drawn = [standing for standing in placed if standing.estimate]
    scale = scale_of([standing.estimate for standing in drawn])
    if scale is None or not any(margin(standing.estimate) for standing in drawn):
        return
    name_width = names_width([standing.group.group for standing in drawn], width)
    room = max(width - name_width - 3, 10)
    yield Text("")
    yield text(f"95 % intervals, {results.ranking.unit}".rstrip(", "), "bold")
    yield Text(f"{'':{name_width}}  {_ends(scale, room)}", style="dim")
    for standing in drawn:
        style = NOTE_STYLES.get(standing.note, "cyan")
        shown = fitted(standing.group.group, name_width)
        yield Text.assemble(f"{shown}  ", (bar(standing.estimate, scale, room), style), no_wrap=True)


def _ends(scale: Scale, room: int) -> str:
    low, high = figure(scale.low), figure(scale.high)
    return f"{low}{high:>{max(room - len(low), 1)}}"
