"""Failures, health and cautions as the page shows them.

In: summary.json. Out: for each failure its cause, runs, what to do and the lines that tell most; facts on how the runs were; cautions.
"""

from __future__ import annotations

from typing import Any

from seatrial import units
from seatrial.records.original_names import MADE_FROM
from seatrial.records.outcome import Fault
from seatrial.report.digest import MOST_NAMED, named
from seatrial.report.failures import RUN_AGAIN, WHAT_FITS
from seatrial.report.html import loose

Row = dict[str, Any]


def failures(summary: Row) -> list[Row]:
    """One for runs that ended the same way for the same reason."""
    return [_failure(row) for row in loose.objects(summary, "failures")]


def _failure(row: Row) -> Row:
    runs = loose.words(row, "runs")
    spoilt = loose.text(row, "fault") == Fault.INFRASTRUCTURE.value
    telling = loose.words(row, "telling")
    return {
        "cause": loose.text(row, "cause") or "unknown",
        "runs": named(runs),
        "all_runs": runs if len(runs) > MOST_NAMED else [],
        "ended": _ended(row),
        "detail": loose.text(row, "detail"),
        "action": loose.text(row, "action"),
        "remarks": [*([RUN_AGAIN] if spoilt else []), *loose.words(row, "fits")],
        "telling": telling,
        "log_tail": loose.words(row, "log_tail"),
        "first_run": runs[0] if runs else "",
    }


def _ended(row: Row) -> str:
    """How and when; of several runs the shortest and the longest time."""
    times = [found for key in ("duration_s", "longest_s") if (found := loose.number(row, key)) is not None]
    after = " to ".join(dict.fromkeys(map(units.format_duration, times)))
    return f"Ended {loose.text(row, 'outcome')} after {after}." if after else f"Ended {loose.text(row, 'outcome')}."


def in_short(told: list[Row]) -> str:
    """What failed, for the head of the page; nothing where nothing did."""
    causes = list(dict.fromkeys(row["cause"] for row in told))
    return f"What failed, and what to do: {named(causes)}" if causes else ""


def health(summary: Row) -> Row:
    """Facts in sentences, and the warnings that mean nothing."""
    harmless = loose.objects(summary, "health", "harmless")
    return {
        "facts": loose.words(summary, "sentences", "health"),
        "harmless": [
            [loose.text(one, "id"), str(loose.whole(one, "runs")), str(loose.whole(one, "lines")), loose.text(one, "meaning")]
            for one in harmless
        ],
    }


def cautions(summary: Row) -> list[Row]:
    """What to be warned of; the origin heads the page, and what fits stands at the failures."""
    found = [row for row in loose.objects(summary, "cautions") if loose.text(row, "kind") not in (MADE_FROM, WHAT_FITS)]
    return [_caution(row) for row in found]


def _caution(row: Row) -> Row:
    subjects = loose.words(row, "subjects")
    return {
        "kind": loose.text(row, "kind").replace("_", " "),
        "text": loose.text(row, "text"),
        "subjects": named(subjects),
        "all": subjects if len(subjects) > MOST_NAMED else [],
    }
