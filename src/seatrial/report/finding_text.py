"""`seatrial why`, in words: all findings of a verdict, or one with every number it rests on.

In: findings, and the numbers of one with the files behind them. Out: lines of text for a terminal, and plain values for JSON.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from seatrial.records.codec import to_json
from seatrial.records.measure import Cell
from seatrial.records.verdict import Criterion, Evidence, Finding, Verdict
from seatrial.report.numbers import figure
from seatrial.report.one_line import one_line
from seatrial.wording import count, named

# A finding over a thousand runs has as many numbers; --json has them all.
MOST_NUMBERS = 8
MOST_FILES = 4
LABEL = 10
MARKS = {Verdict.PASS: "+", Verdict.FAIL: "x", Verdict.INCONCLUSIVE: "?"}

Number = tuple[Evidence, str, Sequence[str]]
"""Evidence, how it is computed, the raw files it was made of."""


def listing(findings: Sequence[Finding], width: int) -> Iterator[str]:
    """Every finding: its id, then its text."""
    for finding in findings:
        yield f"{MARKS[finding.verdict]} {one_line(finding.id)}  {finding.verdict.value}"
        yield from _wrapped(finding.text, width, "    ")


def explained(finding: Finding, numbers: Sequence[Number], command: str, width: int) -> Iterator[str]:
    """One finding in full."""
    yield f"{one_line(finding.id)}: {finding.verdict.value}"
    yield from _wrapped(finding.text, width, "")
    if finding.criterion:
        yield from _labelled("criterion", criterion_text(finding.criterion), width)
        if finding.criterion.reason:
            yield from _labelled("because", finding.criterion.reason, width)
    for advice in finding.advice:
        yield from _labelled("try", f"{advice.text} [{advice.id}]", width)
    yield ""
    if not numbers:
        yield "It rests on no number: the text says what is missing."
    for number in numbers[:MOST_NUMBERS]:
        yield from _number(finding, number, width)
    if len(numbers) > MOST_NUMBERS:
        yield f"and {count(len(numbers) - MOST_NUMBERS, 'number')} more: --json has them all"
    yield from _labelled("remake", command, width)


def criterion_text(criterion: Criterion) -> str:
    """'samples_per_s, scope winner, at least 1,300 samples/s, against mb16, from stage1_speed'."""
    unit = f" {criterion.unit}" if criterion.unit and criterion.unit != "ratio" else ""
    parts = [criterion.metric, f"scope {criterion.scope}"]
    parts += [f"at least {criterion.at_least:,.10g}{unit}"] if criterion.at_least is not None else []
    parts += [f"at most {criterion.at_most:,.10g}{unit}"] if criterion.at_most is not None else []
    parts += [f"against {criterion.baseline.shown}"] if criterion.baseline and criterion.baseline.text else []
    parts += [f"from {criterion.ready}"] if criterion.ready else []
    return ", ".join(parts)


def _number(finding: Finding, number: Number, width: int) -> Iterator[str]:
    evidence, computed, raw = number
    name = evidence.name or (finding.criterion.metric if finding.criterion else finding.kind)
    yield from _wrapped(f"{evidence.subject}: {name} = {value_text(evidence.value, evidence.unit)}", width, "")
    yield from _labelled("file", evidence.file or "none", width)
    yield from _labelled("window", evidence.window or "whole", width)
    yield from _labelled("n", "not counted" if evidence.n is None else str(evidence.n), width)
    yield from _labelled("computed", computed, width)
    yield from _labelled("made of", _files(raw), width)
    yield ""


def value_text(value: Cell, unit: str) -> str:
    """'1,270 samples/s', 'none', 'true'."""
    if value is None:
        return "none"
    shown = str(value).lower() if isinstance(value, bool) else figure(value) if isinstance(value, float) else str(value)
    return f"{one_line(shown)} {unit}".rstrip()


def _files(raw: Sequence[str]) -> str:
    if not raw:
        return "no file that is there: its files are gone, or those of the other campaign or of history are"
    return named(raw, MOST_FILES)


def _labelled(label: str, text: str, width: int) -> Iterator[str]:
    lines = list(_wrapped(text, width, " " * (LABEL + 2)))
    yield f"  {label:{LABEL}}{lines[0].strip()}" if lines else f"  {label}"
    yield from lines[1:]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    # Names of runs and files are copied and pasted: none is broken in two.
    return textwrap.wrap(
        one_line(text), max(width, 40), initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def explained_json(finding: Finding, numbers: Sequence[Number], command: str) -> dict[str, Any]:
    """The same for programs, nothing left out."""
    told: dict[str, Any] = to_json(finding)
    told["numbers"] = [{**to_json(evidence), "computed": computed, "raw": list(raw)} for evidence, computed, raw in numbers]
    told["remake"] = command
    return told
