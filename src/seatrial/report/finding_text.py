"""Findings as lines for a terminal and as JSON values: `seatrial why`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.core.text import count, join_names
from seatrial.records.codec import to_json
from seatrial.records.verdict import Evidence, Finding
from seatrial.report.text import one_line
from seatrial.report.view.problems import MARKS, criterion_text, value_text, word_of

# A finding over a thousand runs has as many numbers; --json lists all.
MAX_NUMBERS = 8
MAX_FILES = 4
LABEL_COLUMNS = 10


@dataclass(frozen=True, kw_only=True)
class TracedNumber:
    """A number, how it is computed, and its raw files, relative to the campaign's folder."""

    evidence: Evidence
    computed: str
    raw: tuple[str, ...]


def findings_lines(findings: Sequence[Finding], width: int) -> Iterator[str]:
    """Every finding: its id and its text."""
    for finding in findings:
        yield f"{MARKS[word_of(finding)]} {one_line(finding.id)}  {word_of(finding)}"
        yield from _wrapped(finding.text, width, "    ")


def finding_lines(finding: Finding, numbers: Sequence[TracedNumber], command: str, width: int) -> Iterator[str]:
    """One finding in full."""
    yield f"{one_line(finding.id)}: {word_of(finding)}"
    yield from _wrapped(finding.text, width, "")
    if finding.criterion:
        yield from _labelled("criterion", criterion_text(finding.criterion), width)
        if finding.criterion.reason:
            yield from _labelled("because", finding.criterion.reason, width)
    for advice in finding.advice:
        yield from _labelled("try", f"{advice.text} [{advice.id}]", width)
    yield ""
    if not numbers:
        yield "No numbers: the text says what is missing."
    for number in numbers[:MAX_NUMBERS]:
        yield from _number(finding, number, width)
    if len(numbers) > MAX_NUMBERS:
        yield f"and {count(len(numbers) - MAX_NUMBERS, 'number')} more: --json has them all"
    yield from _labelled("recompute", command, width)


def _number(finding: Finding, number: TracedNumber, width: int) -> Iterator[str]:
    evidence = number.evidence
    name = evidence.name or (finding.criterion.metric if finding.criterion else finding.kind)
    yield from _wrapped(f"{evidence.subject}: {name} = {value_text(evidence.value, evidence.unit)}", width, "")
    yield from _labelled("file", evidence.file or "none", width)
    yield from _labelled("window", evidence.window or "whole", width)
    yield from _labelled("n", "not counted" if evidence.n is None else str(evidence.n), width)
    yield from _labelled("computed", number.computed, width)
    none = "no file that is there: its files are gone, or those of the other campaign or of history are"
    yield from _labelled("made of", join_names(number.raw, MAX_FILES) if number.raw else none, width)
    yield ""


def _labelled(label: str, text: str, width: int) -> Iterator[str]:
    lines = list(_wrapped(text, width, " " * (LABEL_COLUMNS + 2)))
    yield f"  {label:{LABEL_COLUMNS}}{lines[0].strip()}" if lines else f"  {label}"
    yield from lines[1:]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    # Names of runs and files are copied and pasted: none is broken.
    return textwrap.wrap(
        one_line(text), max(width, 40), initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def finding_json(finding: Finding, numbers: Sequence[TracedNumber], command: str) -> dict[str, Any]:
    """The finding with every number, for programs."""
    document: dict[str, Any] = to_json(finding)
    document["numbers"] = [{**to_json(one.evidence), "computed": one.computed, "raw": list(one.raw)} for one in numbers]
    document["remake"] = command
    return document
