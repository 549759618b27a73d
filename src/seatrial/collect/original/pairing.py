"""Which row, which part of train.log and which block of launcher.log belong to one attempt of a run.

In: what each file tells, oldest first. Out: `OriginalAttempt`s, oldest first. Rows have no times; but a row says at which step its attempt
ended, and the newest block says when the newest attempt began. An attempt without a row was interrupted: the driver writes the row last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seatrial.collect.original.cells import whole
from seatrial.collect.original.launcher_log import Block
from seatrial.collect.original.manifest_rows import Row
from seatrial.collect.original.train_log import Segment

SPAN_SLACK_S = 120.0
"""A row's duration and the stamps of its lines are of two clocks, both in whole seconds."""


@dataclass(frozen=True, kw_only=True)
class OriginalAttempt:
    """One attempt as the files tell of it; None for what none of them tells."""

    row: Row | None = None
    segment: Segment | None = None
    block: Block | None = None

    @property
    def cells(self) -> dict[str, str]:
        """Everything that is said of it by column name; the row's word counts before that of the log."""
        return {**(self.block.cells if self.block else {}), **(self.row.cells if self.row else {})}

    @property
    def last_step(self) -> int | None:
        """The last step that it printed; the row's where no line of it is left."""
        printed = self.trainer_lines.last_step
        return whole(self.row.cells.get("last_step")) if printed is None and self.row else printed

    @property
    def trainer_lines(self) -> Segment:
        """What the trainer printed: its part of train.log, else what the launcher showed of it."""
        return self.segment or Segment(self.block.output if self.block else ())


def pair_attempts(rows: Sequence[Row], segments: Sequence[Segment], blocks: Sequence[Block]) -> list[OriginalAttempt]:
    """Every attempt that left a trace; [] where there is none."""
    newest_start = blocks[-1].start_local_s if blocks else None
    began_late = newest_start is not None and _is_over_before(segments, newest_start)
    found: list[OriginalAttempt] = []
    left = list(segments)
    if began_late and left and (not rows or rows[-1].is_success):
        # The newest start left nothing in train.log and no row of its own.
        found.append(OriginalAttempt())
    for number, row in enumerate(reversed(rows)):
        died_first = number == 0 and began_late and not row.is_success
        own = None if died_first else _own(row, left, len(rows) - number)
        if own is not None:
            found += [OriginalAttempt(segment=later) for later in reversed(left[own + 1 :])]
        found.append(OriginalAttempt(row=row, segment=None if own is None else left[own]))
        left = left if own is None else left[:own]
    found += [OriginalAttempt(segment=older) for older in reversed(left)]
    return _with_blocks(found or ([OriginalAttempt()] if blocks else []), blocks)[::-1]


def _is_over_before(segments: Sequence[Segment], start_local_s: float) -> bool:
    last_s = segments[-1].last_local_s if segments else None
    return last_s is not None and last_s < start_local_s


def _own(row: Row, left: Sequence[Segment], rows_left: int) -> int | None:
    """Place of the row's own segment, None where its attempt wrote nothing. More segments than rows: some attempts left no row."""
    surplus = len(left) - rows_left
    candidates = range(len(left) - 1, max(len(left) - 2 - max(surplus, 0), -1), -1)
    fitting = next((at for at in candidates if _fits(row, left[at])), None)
    if fitting is not None or not left:
        return fitting
    return len(left) - 1 if surplus >= 0 else None


def _fits(row: Row, segment: Segment) -> bool:
    last_step = whole(row.cells.get("last_step"))
    as_far = last_step is None or last_step == segment.last_step
    return as_far and (row.duration_s is None or segment.span_s <= row.duration_s + SPAN_SLACK_S)


def _with_blocks(newest_first: list[OriginalAttempt], blocks: Sequence[Block]) -> list[OriginalAttempt]:
    """The newest block is that of the newest attempt, and so on back."""
    own = [*reversed(blocks), *([None] * len(newest_first))]
    return [replace(attempt, block=block) for attempt, block in zip(newest_first, own, strict=False)]
