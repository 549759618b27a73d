"""How much a line of a failed run's log counts when its cause is looked for.

In: lines parted from their marks. Out: a `Weight` for each. Python prints tracebacks of what it passes over (`Exception ignored in …`,
`--- Logging error ---`), a thread may die and the run live on, a warning tells of what was dealt with, and a rank that takes further steps
has not died of what it printed before.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.collect.failure.telling_lines import EXCEPTION, TROUBLE
from seatrial.collect.failure.tracebacks import CHAINED, HEAD, is_indented
from seatrial.collect.logs.line_marks import MarkedLine, without_host


class Weight(enum.IntEnum):
    """The heavier counts first."""

    NOTHING = 0
    """Python itself says that it passes over it."""
    PASSED = 1
    """A warning, or the run went on after it."""
    DOUBTFUL = 2
    """A thread's: it may have died without harm."""
    FULL = 3


PASSED_OVER = re.compile(r"^Exception ignored (?:in|on)\b|^--- Logging error ---")
IN_THREAD = re.compile(r"^Exception in thread ")
# What logging prints behind the traceback of its own error.
OF_LOGGING = re.compile(r"^(?:Call stack:|Message: |Arguments: )")
# NCCL calls everything so, what ends a run included.
WARNING = re.compile(r"^.{0,80}?(?<!NCCL )\b(?:WARN|WARNING)\b|^\[?W\d{4} \d\d:")
# A bar does not count: it is drawn once more when the run is over. Nor does wandb's summary of a run that has ended.
STEP = re.compile(r"\b(?:step|iter|iteration)s?\b\W{0,4}\d|\bTiming(?:ETA|Rank)\b|^\{'loss': ", re.IGNORECASE)
SUMMARY = "wandb: "
# Without marks a rank that has not yet noticed the failure of another one may print the step it was in.
STEPS_OF_NO_ONE = 2


@dataclass
class _Block:
    """A traceback under a heading that says what it is worth."""

    weight: Weight
    has_begun: bool = False
    has_ended: bool = False

    def takes(self, text: str) -> bool:
        """Whether the line belongs to it."""
        if CHAINED.search(text):
            self.has_ended = False
            return True
        if is_indented(text) or OF_LOGGING.match(text):
            return True
        if self.has_ended or not (self.has_begun or text.startswith(HEAD)):
            return False
        self.has_ended = self.has_begun and not text.startswith(HEAD)
        self.has_begun = True
        return True


def weights(lines: Sequence[MarkedLine]) -> list[Weight]:
    """That of each line."""
    return [min(pair) for pair in zip(_by_blocks(lines), _by_what_followed(lines), strict=True)]


def _by_blocks(lines: Sequence[MarkedLine]) -> list[Weight]:
    blocks: dict[str, _Block] = {}
    found = []
    for line in lines:
        if opened := _opened(line.text):
            blocks[line.source] = opened
        elif line.source in blocks and not blocks[line.source].takes(line.text):
            del blocks[line.source]
        block = blocks.get(line.source)
        found.append(block.weight if block else Weight.FULL)
    return found


def _opened(text: str) -> _Block | None:
    if PASSED_OVER.match(text):
        return _Block(Weight.NOTHING)
    return _Block(Weight.DOUBTFUL) if IN_THREAD.match(text) else None


def _by_what_followed(lines: Sequence[MarkedLine]) -> list[Weight]:
    """Backwards, with the steps that each source took after a line."""
    steps: Counter[str] = Counter()
    found = []
    for line in reversed(lines):
        who = " ".join(dict.fromkeys(line.source.split()))
        went_on = steps[who] >= (1 if without_host(who) else STEPS_OF_NO_ONE)
        found.append(Weight.PASSED if went_on or _is_warning(line) else Weight.FULL)
        steps[who] += _is_step(line.text)
    return found[::-1]


def _is_warning(line: MarkedLine) -> bool:
    return bool(WARNING.match(line.text) or "WARNING" in line.source)


def _is_step(text: str) -> bool:
    if is_indented(text) or text.startswith(SUMMARY) or not STEP.search(text):
        return False
    return not (EXCEPTION.match(text) or TROUBLE.search(text) or WARNING.match(text))
