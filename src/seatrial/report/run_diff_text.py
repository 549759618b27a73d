"""A `RunDiff` for people, and as one JSON value.

before  outputs/demo/mb8_r1/attempt-1   ok, 12.3 s
after   outputs/demo/mb16_r1/attempt-1  failed (cuda_oom), 3.1 s

settings
    micro_batch     8 → 16
versions
  * torch           2.12.0 → 2.13.0

* parts the fingerprints
Fingerprints differ: not averaged. Parted by torch.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from seatrial import units
from seatrial.records.attempt import Attempt
from seatrial.report.one_line import one_line
from seatrial.report.run_diff import Difference, RunDiff, RunSide
from seatrial.units import HASH_SHOWN

NARROWEST = 40
WIDEST_NAME = 24
NONE = "–"
ALIKE = "Nothing that is recorded of the two differs."
MASKED = "The hashes of the two differ, though no setting shown does: a value that is masked does, or how a number is written."


def diff_lines(diff: RunDiff, width: int) -> list[str]:
    """The whole text, no line wider than `width` but for what cannot be broken."""
    width = max(width, NARROWEST)
    lines = [*_heads(diff, width), "", *_sections(diff.differences, width)]
    if not diff.differences:
        lines.append(ALIKE)
    if any(difference.parts for difference in diff.differences):
        lines.append("* parts the fingerprints")
    if _differs_unseen(diff):
        lines += textwrap.wrap(MASKED, width)
    # Names and values are what files say, and files may hold what moves a cursor.
    return [one_line(line) for line in (*lines, *textwrap.wrap(diff.says, width))]


def diff_json(diff: RunDiff) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "before": _side(diff.before),
        "after": _side(diff.after),
        "fingerprints_equal": diff.fingerprints_equal,
        "may_be_averaged": diff.may_be_averaged,
        "parted_by": list(diff.parted_by),
        "says": diff.says,
        "differences": [
            {"section": one.section, "name": one.name, "before": one.before, "after": one.after, "parts": one.parts}
            for one in diff.differences
        ],
    }


def _differs_unseen(diff: RunDiff) -> bool:
    keys = {side.attempt.spec.group_key for side in (diff.before, diff.after)}
    return len(keys) > 1 and not any(one.section == "settings" or one.name == "script_sha256" for one in diff.differences)


def _side(side: RunSide) -> dict[str, Any]:
    attempt = side.attempt
    return {
        "folder": attempt.folder,
        "run": attempt.spec.run,
        "attempt": attempt.number,
        "hash": attempt.spec.hash,
        "group_key": attempt.spec.group_key,
        "fingerprint": attempt.provenance.fingerprint,
        "outcome": attempt.outcome.outcome.value if attempt.outcome else None,
        "duration_s": attempt.outcome.duration_s if attempt.outcome else None,
    }


def _heads(diff: RunDiff, width: int) -> Iterator[str]:
    attempts = {"before": diff.before.attempt, "after": diff.after.attempt}
    longest = max(len(attempt.folder) for attempt in attempts.values())
    endings = {word: _ending(attempt) for word, attempt in attempts.items()}
    # A path is never broken: somebody will paste it.
    fits = len("before") + longest + max(map(len, endings.values())) + 4 <= width
    for word, attempt in attempts.items():
        yield f"{word:<6}  {attempt.folder:<{longest}}  {endings[word]}" if fits else f"{word:<6}  {attempt.folder}"
        if not fits:
            yield f"        {endings[word]}"


def _ending(attempt: Attempt) -> str:
    ended = attempt.outcome
    if ended is None:
        return "unfinished"
    cause = "" if ended.cause.value == "none" else f" ({ended.cause.value})"
    return f"{ended.outcome.value}{cause}, {units.format_duration(ended.duration_s)}"


def _sections(differences: Sequence[Difference], width: int) -> Iterator[str]:
    column = min(WIDEST_NAME, max((len(difference.name) for difference in differences), default=0))
    for section, group in groupby(differences, key=lambda difference: difference.section):
        yield section
        for difference in group:
            yield from _lines(difference, column, width)
        yield ""


def _lines(difference: Difference, column: int, width: int) -> Iterator[str]:
    mark = "*" if difference.parts else " "
    before, after = (shown_value(difference.name, value) for value in (difference.before, difference.after))
    line = f"  {mark} {difference.name:<{column}}  {before} → {after}"
    if len(line) <= width:
        yield line
        return
    yield f"  {mark} {difference.name}"
    for sign, text in (("-", before), ("+", after)):
        yield from textwrap.wrap(text, width, initial_indent=f"      {sign} ", subsequent_indent="        ", break_on_hyphens=False)


def shown_value(name: str, value: Any) -> str:
    """A value of the record as people read it."""
    if value is None or value in ("", []):
        return NONE
    if name.endswith(("_sha256", "_commit_hash")):
        return str(value)[:HASH_SHOWN]
    if name == "memory_bytes":
        return units.format_bytes(value)
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(str(item) for item in value) if isinstance(value, list) else " ".join(str(value).split())
