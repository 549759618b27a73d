"""Failures, health and cautions as the page shows them.

In: summary.json. Out: for each failure its cause, runs, what to do and the lines that tell most; facts on how the runs were; cautions.
"""

from __future__ import annotations

from typing import Any

from seatrial.report.digest.cautions import TOLD_ELSEWHERE
from seatrial.report.digest.failures import remarks_of, shortest_to_longest
from seatrial.report.html import loose
from seatrial.wording import MOST_NAMED, named

Row = dict[str, Any]


def failures(summary: Row) -> list[Row]:
    """One for runs that ended the same way for the same reason."""
    return [_failure(row) for row in loose.objects(summary, "failures")]


def _failure(row: Row) -> Row:
    runs = loose.words(row, "runs")
    telling = loose.words(row, "telling")
    return {
        "cause": loose.text(row, "cause") or "unknown",
        "runs": named(runs),
        "all_runs": runs if len(runs) > MOST_NAMED else [],
        "ended": _ended(row),
        "detail": loose.text(row, "detail"),
        "action": loose.text(row, "action"),
        "remarks": list(remarks_of(loose.text(row, "fault"), loose.words(row, "fits"))),
        "telling": telling,
        "log_tail": loose.words(row, "log_tail"),
        "first_run": runs[0] if runs else "",
    }


def _ended(row: Row) -> str:
    """How and when; of several runs the shortest and the longest time."""
    after = shortest_to_longest(loose.number(row, "duration_s"), loose.number(row, "longest_s"))
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
    found = [row for row in loose.objects(summary, "cautions") if loose.text(row, "kind") not in TOLD_ELSEWHERE]
    return [_caution(row) for row in found]


def _caution(row: Row) -> Row:
    subjects = loose.words(row, "subjects")
    return {
        "kind": loose.text(row, "kind").replace("_", " "),
        "text": loose.text(row, "text"),
        "subjects": named(subjects),
        "all": subjects if len(subjects) > MOST_NAMED else [],
    }
