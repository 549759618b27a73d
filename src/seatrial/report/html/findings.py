"""Findings as the page shows them: the criteria's, which decide, and what was found beside them.

In: summary.json. Out: for each finding its word, text, id, criterion, advice, and the numbers it rests on, as rows of a table.
"""

from __future__ import annotations

from typing import Any

from seatrial.records.codec import described
from seatrial.records.verdict import Criterion, Verdict
from seatrial.report.finding_text import criterion_text, value_text
from seatrial.report.html import loose
from seatrial.report.numbers import NONE, count

MOST_NUMBERS = 30
"""A finding over a thousand runs has as many numbers; `seatrial why` has them all."""
MARKS = {Verdict.PASS.value: "✓", Verdict.FAIL.value: "✗", Verdict.INCONCLUSIVE.value: "?"}
ORDER = (Verdict.FAIL.value, Verdict.INCONCLUSIVE.value, Verdict.PASS.value)
TITLES = {Verdict.FAIL.value: "Does not hold", Verdict.INCONCLUSIVE.value: "Cannot be said", Verdict.PASS.value: "Holds"}
COLUMNS = ("of", "what", "value", "window", "n", "file")

Row = dict[str, Any]


def criteria(summary: Row) -> list[Row]:
    """The findings that decide, in the plan's order."""
    return [_finding(row) for row in loose.objects(summary, "verdict", "findings")]


def statements(summary: Row) -> list[Row]:
    """What stands beside them, by what it says: `{"verdict", "title", "findings"}`, what does not hold first."""
    found = [_finding(row) for row in loose.objects(summary, "verdict", "statements")]
    by_verdict = {word: [one for one in found if one["verdict"] == word] for word in ORDER}
    return [{"verdict": word, "title": TITLES[word], "findings": of_word} for word, of_word in by_verdict.items() if of_word]


def _finding(row: Row) -> Row:
    verdict = loose.text(row, "verdict")
    criterion = described(Criterion, row.get("criterion")) if row.get("criterion") else None
    return {
        "id": loose.text(row, "id"),
        "verdict": verdict if verdict in MARKS else Verdict.INCONCLUSIVE.value,
        "mark": MARKS.get(verdict, MARKS[Verdict.INCONCLUSIVE.value]),
        "text": loose.text(row, "text"),
        "criterion": criterion_text(criterion) if criterion else "",
        "because": criterion.reason if criterion else "",
        "advice": [loose.text(advice, "text") for advice in loose.objects(row, "advice")],
        "evidence": _evidence(row),
    }


def _evidence(row: Row) -> Row | None:
    """The table of its numbers; None where it rests on none."""
    numbers = loose.objects(row, "evidence")
    if not numbers:
        return None
    metric = loose.text(row, "criterion", "metric")
    shown = [_number(one, metric) for one in numbers[:MOST_NUMBERS]]
    kept = [at for at in range(len(COLUMNS)) if any(cells[at] != NONE for cells in shown)]
    left_out = len(numbers) - len(shown)
    return {
        "title": count(len(numbers), "number"),
        "columns": [COLUMNS[at] for at in kept],
        "rows": [[cells[at] for at in kept] for cells in shown],
        "right": [at for at, column in enumerate(kept) if COLUMNS[column] in ("value", "n")],
        "more": f"and {count(left_out, 'number')} more: `seatrial why` with this id and --json lists them all" if left_out else "",
    }


def _number(one: Row, metric: str) -> list[str]:
    counted = loose.whole(one, "n")
    value = one.get("value")
    scalar = value if isinstance(value, (str, int, float, bool)) else None
    return [
        loose.text(one, "subject") or NONE,
        loose.text(one, "name") or metric or NONE,
        value_text(scalar, loose.text(one, "unit")),
        loose.text(one, "window") or NONE,
        NONE if counted is None else f"{counted:,}",
        loose.text(one, "file") or NONE,
    ]
