"""The ranking as the page shows it: a table of the main lane and one of what is off it, with the reasons.

In: summary.json. Out: columns, rows of text, and sentences. Figures are formatted as in every other report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seatrial import units
from seatrial.records.measure import Estimate
from seatrial.report.digest.standings import (
    ALONE,
    CANNOT_WIN,
    LEADS,
    NO_INTERVAL,
    NOT_ENDED,
    NOT_RUN,
    OFF_LANE,
    OFF_LANE_TITLE,
    SHOWN_NOTES,
    TIED,
    WINNER,
    how_figures_are_read,
    told_reasons,
)
from seatrial.report.html import loose
from seatrial.report.html.summary_tables import axis_names, standings, unit_of
from seatrial.report.numbers import NONE, figure, interval, level, margin, ratio
from seatrial.wording import count, named

MOST_NAMED = 6
NOT_PROVEN = SHOWN_NOTES[LEADS]
NOTE_CLASSES = {
    WINNER: "good", LEADS: "open", TIED: "open", NO_INTERVAL: "open", CANNOT_WIN: "bad", OFF_LANE: "quiet", NOT_RUN: "quiet",
    NOT_ENDED: "quiet", ALONE: "",
}  # fmt: skip
SPELT = {"p90/p50": "wall p90/p50"}
"""Beside criteria over the seeds' phases a ratio must say of what it is."""
FIXED = ("#", "group", "note", "95 % interval", "to best", "p90/p50", "start-up", "runs", "window", "n")

Row = dict[str, Any]


def ranking_tables(summary: Row) -> list[Row]:
    """A table for each lane that has groups; a row is its cells, the class of its note and whether it won."""
    placed = standings(summary)
    main = [row for row in placed if row.get("lane") is not False]
    aside = [row for row in placed if row.get("lane") is False]
    both = (("Main lane" if aside else "", main), (OFF_LANE_TITLE, aside))
    return [_table(summary, title, rows) for title, rows in both if rows]


def _table(summary: Row, title: str, rows: Sequence[Row]) -> Row:
    axes = axis_names(rows)
    # What one looks for comes first, so that a phone shows it without scrolling.
    columns = ["#", "group", "note", unit_of(summary) or "figure", "95 % interval", "to best"]
    columns += [*(f"{name} (axis)" if name in FIXED else name for name in axes), "p90/p50", "start-up", "runs", "window", "n"]
    after_axes = 6 + len(axes)
    return {
        "title": title,
        "columns": columns,
        "titles": [SPELT.get(column, column) for column in columns],
        "rows": [{"cells": _cells(row, axes), "class": note_class(row), "won": _note(row).startswith(WINNER)} for row in rows],
        "right": [0, 3, 4, 5, after_axes, after_axes + 1, len(columns) - 1],
        "wraps": [5, len(columns) - 2],
        "name": 1,
        "note": 2,
    }


def _cells(row: Row, axes: Sequence[str]) -> list[str]:
    values = loose.mapping(row, "axes")
    has_figure = loose.number(row, "value") is not None
    return [
        _whole(row, "rank"),
        loose.text(row, "group"),
        shown_note(row),
        figure(loose.number(row, "value")),
        interval(estimate_of(row)),
        _to_best(row),
        *(level(values.get(name)) for name in axes),
        ratio(loose.number(row, "p90_over_p50")),
        units.format_duration(loose.number(row, "startup_s")),
        loose.text(row, "runs_text") or _whole(row, "runs"),
        (loose.text(row, "window") or NONE) if has_figure else NONE,
        _whole(row, "n") if has_figure else NONE,
    ]


def estimate_of(row: Row) -> Estimate | None:
    """The figure ranked by; None where the group has none."""
    mean = loose.number(row, "value")
    return None if mean is None else Estimate(mean=mean, low=loose.number(row, "low"), high=loose.number(row, "high"))


def _to_best(row: Row) -> str:
    mean, low, high = (loose.number(row, name) for name in ("ratio", "ratio_low", "ratio_high"))
    if mean is None or (mean == 1 and low is None):
        return NONE if mean is None else "1"
    return f"{ratio(mean)} ({ratio(low)} to {ratio(high)})" if low is not None else f"{ratio(mean)} ({NO_INTERVAL})"


def _whole(row: Row, name: str) -> str:
    found = loose.whole(row, name)
    return NONE if found is None else f"{found:,}"


def _note(row: Row) -> str:
    return loose.text(row, "note")


def shown_note(row: Row) -> str:
    """The note, which says of the first of an undecided ranking that nothing is proven."""
    note = _note(row)
    return note.replace(LEADS, NOT_PROVEN, 1) if note.startswith(LEADS) and not note.startswith(NOT_PROVEN) else note


def note_class(row: Row) -> str:
    """How the row stands out: what a note says is said in words too."""
    return next((shown for note, shown in NOTE_CLASSES.items() if _note(row).startswith(note)), "")


def reasons(summary: Row) -> list[str]:
    """Why groups stand where they do; those with the same reason in one sentence."""
    placed = ((loose.text(row, "group"), _note(row).split(",")[0], loose.text(row, "reason")) for row in standings(summary))
    return [f"{named(groups, MOST_NAMED)}: {told}" for groups, told in told_reasons(placed)]


def how_it_is_read(summary: Row) -> str:
    """Which way is better, and what the figures are."""
    return how_figures_are_read(higher_is_better=loose.mapping(summary, "ranking").get("higher_is_better") is not False)


def key_figures(summary: Row) -> list[tuple[str, str, str]]:
    """What one looks for first: name, figure, what it is."""
    first = next((row for row in standings(summary) if _note(row).startswith((WINNER, LEADS, ALONE))), None)
    tiles = []
    if first:
        value = f"{figure(loose.number(first, 'value'))} {unit_of(summary)}"
        window = loose.text(first, "window") or "whole run"
        title = shown_note(first).split(", debug")[0].capitalize()
        tiles.append((title, loose.text(first, "group"), f"by {_metric(summary)}, {_counted(first)}"))
        tiles.append(("Its figure", value, f"{margin(estimate_of(first)) or NO_INTERVAL}, {window}"))
        tiles.append(("Its wall p90/p50", ratio(loose.number(first, "p90_over_p50")), f"step time, {window}"))
    ended = loose.text(summary, "verdict", "notes", "runs")
    if ended:
        head, _, rest = ended.partition(", ")
        tiles.append(("Runs", head, rest))
    return tiles


def _metric(summary: Row) -> str:
    return loose.text(summary, "ranking", "metric") or unit_of(summary) or "the ranked figure"


def _counted(row: Row) -> str:
    """How much a group's figure rests on."""
    steps, runs = loose.whole(row, "n"), loose.whole(row, "runs")
    return ", ".join([*([f"n = {steps:,}"] if steps is not None else []), *([count(runs, "run")] if runs is not None else [])])
