"""Findings as the page shows them: the criteria's, which decide, and what was found beside them.

In: summary.json. Out: for each finding its word, text, id, criterion, advice, and the numbers it rests on, as rows of a table.
"""

from __future__ import annotations

from typing import Any

from seatrial.records.codec import described
from seatrial.records.verdict import Criterion, Verdict
from seatrial.report.digest.statements import DECIDES_NOTHING
from seatrial.report.finding_text import criterion_text, value_text
from seatrial.report.html import loose
from seatrial.report.numbers import NONE
from seatrial.wording import count

MOST_NUMBERS = 30
"""A finding over a thousand runs has as many numbers; `seatrial why` has them all."""
MARKS = {Verdict.PASS.value: "✓", Verdict.FAIL.value: "✗", Verdict.INCONCLUSIVE.value: "?"}
ORDER = (Verdict.FAIL.value, Verdict.INCONCLUSIVE.value, Verdict.PASS.value)
SAID = {Verdict.FAIL.value: ("does not hold", "do not hold"), Verdict.INCONCLUSIVE.value: ("cannot be said", "cannot be said")}
"""Of one, and of several."""
TO_LOOK_AT = "to look at"
TITLES = {Verdict.FAIL.value: "To look at", Verdict.INCONCLUSIVE.value: "Cannot be said", Verdict.PASS.value: "Holds"}
FAILURE = "failure:"
"""How the ids of statements on failed runs begin; a criterion may count the same runs."""
COLUMNS = ("of", "what", "value", "window", "n", "file")

Row = dict[str, Any]


def criteria(summary: Row) -> list[Row]:
    """The findings that decide: what does not hold, what cannot be said, what holds; each in the plan's order."""
    found = [_finding(row) for row in loose.objects(summary, "verdict", "findings")]
    return sorted(found, key=lambda one: ORDER.index(one["verdict"]))


def undecided(summary: Row) -> str:
    """Which criteria do not hold and which cannot be said, as one sentence; nothing where all hold."""
    found = loose.objects(summary, "verdict", "findings")
    parts: list[str] = []
    for word in (Verdict.FAIL.value, Verdict.INCONCLUSIVE.value):
        of_word = [row for row in found if loose.text(row, "verdict") == word]
        if of_word:
            of_all = "" if parts else f" of {len(found)} {'criterion' if len(found) == 1 else 'criteria'}"
            names = dict.fromkeys(loose.text(row, "criterion", "metric") or loose.text(row, "id") for row in of_word)
            parts.append(f"{len(of_word)}{of_all} {SAID[word][len(of_word) > 1]}: {', '.join(names)}")
    return f"{'; '.join(parts)}." if parts else ""


def statements(summary: Row) -> list[Row]:
    """What stands beside them, by what it says: `{"verdict", "title", "findings"}`, what does not hold first."""
    found = [_beside(_finding(row)) for row in loose.objects(summary, "verdict", "statements")]
    by_verdict = {word: [one for one in found if one["verdict"] == word] for word in ORDER}
    return [{"verdict": word, "title": TITLES[word], "findings": of_word} for word, of_word in by_verdict.items() if of_word]


def what_they_decide(summary: Row) -> str:
    """That statements decide nothing: left out where failed runs are among them and the verdict is FAIL, as a criterion may count those."""
    failed = any(loose.text(row, "id").startswith(FAILURE) for row in loose.objects(summary, "verdict", "statements"))
    return "" if failed and loose.text(summary, "verdict", "verdict") == Verdict.FAIL.value else DECIDES_NOTHING


def _beside(finding: Row) -> Row:
    """What decides nothing does not say FAIL in red."""
    return {**finding, "word": TO_LOOK_AT, "class": "look", "mark": "!"} if finding["verdict"] == Verdict.FAIL.value else finding


def _finding(row: Row) -> Row:
    told = loose.text(row, "verdict")
    verdict = told if told in MARKS else Verdict.INCONCLUSIVE.value
    criterion = described(Criterion, row.get("criterion")) if row.get("criterion") else None
    return {
        "id": loose.text(row, "id"),
        "verdict": verdict,
        "word": verdict,
        "class": verdict.lower(),
        "mark": MARKS[verdict],
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
