"""The steps of a large log, read from end to end in bounded memory, with the format that fits its beginning and end.

In: a file and the `Reading` of its beginning and end. Out: a `StepTally`: first and last step, number of lines, losses, how often the job
or its numbers restarted. What counts as a step is what logs.steps.number_steps, which needs all lines at once, counts.

Lines that differ in digits only have their numbers in the same places, so expressions are searched once per shape of line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seatrial.collect.logs.bounded_lines import line_blocks
from seatrial.collect.logs.line_relevance import SAME_DIGIT
from seatrial.collect.logs.steps import NAMED_EPOCH, Reading
from seatrial.core.files import open_file
from seatrial.core.log_lines import LARGEST_STEP, LOG_FORMATS, LONGEST_LINE, RANK_MARK, STEP_AND_LOSS, compile_patterns, parse_line
from seatrial.core.text import MIB

# The end of an attempt, where the step numbers restart after it.
ATTEMPT_ENDS = re.compile(rb"Traceback \(most recent call last\):|\b(?:[Rr]estarting|[Rr]etrying|[Rr]esuming)\b")
# Formats with everything about a step in one line and no digit in their expressions.
IN_ONE_LINE = {fmt.name: fmt for fmt in (*(LOG_FORMATS[name] for name in ("seed", "torchtitan", "nanogpt", "megatron")), STEP_AND_LOSS)}
MAX_SHAPES = 20_000
LONGEST_SHAPE = 1000
# Bytes for which a line is read part by part: a progress bar, colours.
ODD = (b"\r", b"\x1b")


class StepTally:
    """Follows step numbers, and keeps what a summary shows of them."""

    def __init__(self, *, interval: int | None) -> None:
        """`interval`: steps from one line to the next; None where numbers may not restart."""
        self._interval = interval
        self._newest: int | None = None
        self._first_number = self._before = 0
        self._epoch: int | None = None
        self._is_broken_off = False
        self.num_restarts = self.num_started_over = 0
        self._forget()

    def _forget(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.num_lines = self.num_nan = 0
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self.lowest_loss: float | None = None
        self.nan_from: int | None = None

    def facts(self) -> dict[str, Any]:
        """The facts by their names in a summary."""
        names = ("first", "last", "num_lines", "first_loss", "last_loss", "lowest_loss", "nan_from", "num_nan", "num_restarts")
        return {name: getattr(self, name) for name in (*names, "num_started_over")}

    def break_off(self) -> None:
        """A line reports that an attempt ended or another one begins."""
        self._is_broken_off = True

    def take(self, number: int, loss: float | None, epoch: int | None) -> None:
        """The next line with a step; `epoch` is the last one named."""
        newest = self._newest
        if newest is None:
            self._first_number = number
        elif number <= newest:
            if number == newest or self._interval is None or number > self._first_number + self._interval:
                # A late line of another process.
                return
            self._restart(number, newest, is_epoch=epoch is not None and (self._epoch is None or epoch > self._epoch))
        self._newest, self._epoch, self._is_broken_off = number, epoch, False
        self.add(self._before + number, loss)

    def _restart(self, number: int, newest: int, *, is_epoch: bool) -> None:
        self._first_number = number
        if is_epoch:
            self._before += newest + max(self._interval or 0, 1) - number
            return
        self._before = 0
        if self._is_broken_off:
            self._forget()
            self.num_restarts, self.num_started_over = self.num_restarts + 1, 0
        else:
            self.num_started_over += 1

    def add(self, step: int, loss: float | None) -> None:
        """A step that counts."""
        self.num_lines += 1
        if self.last is None or step > self.last:
            self.last = step
        if self.first is None:
            self.first = step
        if loss is None:
            return
        if not math.isfinite(loss):
            self.num_nan += 1
            self.nan_from = step if self.nan_from is None else self.nan_from
            return
        self.nan_from = None
        if self.first_loss is None:
            self.first_loss = loss
        self.last_loss = loss
        if self.lowest_loss is None or loss < self.lowest_loss:
            self.lowest_loss = loss


class _FieldSpans(NamedTuple):
    """What a line of one shape holds, and where."""

    ends: bool = False
    epoch: tuple[int, int] | None = None
    step: tuple[int, int] | None = None
    loss: tuple[int, int] | None = None


NOTHING = _FieldSpans()


def tally_steps(path: Path, reading: Reading) -> StepTally | None:
    """Steps of all lines of the reading's rank; None for a format whose steps need several lines at once."""
    if reading.name not in IN_ONE_LINE or reading.bar is not None:
        return None
    tally = StepTally(interval=reading.numbered.interval)
    lines = _Lines(compile_patterns(IN_ONE_LINE[reading.name].lines), reading.rank)
    with open_file(path) as source:
        size = source.seek(0, 2)
        source.seek(0)
        for block in line_blocks(source, size, MIB):
            for line in block.split(b"\n"):
                lines.read(line, tally)
    return tally


class _Lines:
    """Reads line by line, with a cache of some thousands of shapes."""

    def __init__(self, patterns: Sequence[re.Pattern[str]], rank: int | None) -> None:
        self._patterns = patterns
        self._mark = b"" if rank is None else b"[rank%d]:" % rank
        self._own: dict[bytes, _FieldSpans | None] = {}
        self._others: dict[bytes, _FieldSpans | None] = {}
        self._epoch: int | None = None

    def read(self, line: bytes, tally: StepTally) -> None:
        is_own = line.startswith(self._mark) if self._mark else not line.startswith(b"[rank")
        shapes = self._own if is_own else self._others
        key = line.translate(SAME_DIGIT)
        spans = shapes.get(key, NOTHING)
        if spans is NOTHING and key not in shapes:
            spans = self._find(line, is_own=is_own)
            if len(key) <= LONGEST_SHAPE:
                if len(shapes) >= MAX_SHAPES:
                    shapes.clear()
                shapes[key] = spans
        if spans is None:
            self._read_parts(line, tally)
        elif spans is not NOTHING:
            self._take(line, spans, tally)

    def _take(self, line: bytes, spans: _FieldSpans, tally: StepTally) -> None:
        if spans.ends:
            tally.break_off()
        if spans.epoch is not None:
            self._epoch = int(line[spans.epoch[0] : spans.epoch[1]])
        if spans.step is not None:
            number = int(line[spans.step[0] : spans.step[1]].replace(b",", b""))
            loss = None if spans.loss is None else float(line[spans.loss[0] : spans.loss[1]])
            if number <= LARGEST_STEP:
                tally.take(number, loss, self._epoch)

    def _find(self, line: bytes, *, is_own: bool) -> _FieldSpans | None:
        """The fields of the line; None for an odd line, which is read part by part."""
        if is_own and (not line.isascii() or any(byte in line for byte in ODD)):
            return None
        ends = ATTEMPT_ENDS.search(line) is not None
        if not is_own:
            return _FieldSpans(ends=True) if ends else NOTHING
        text = line.decode("ascii")
        mark = RANK_MARK.match(text)
        begin = mark.end() if mark else 0
        found: dict[str, tuple[int, int]] = {}
        for pattern in self._patterns:
            if match := pattern.search(text[begin : begin + LONGEST_LINE]):
                spans = ((name, match.span(name)) for name in ("step", "loss") if name in pattern.groupindex and match[name] is not None)
                found |= {name: (first + begin, last + begin) for name, (first, last) in spans}
        epoch = NAMED_EPOCH.search(text, begin) if "poch" in text else None
        fields = _FieldSpans(ends=ends, epoch=epoch.span(1) if epoch else None, step=found.get("step"), loss=found.get("loss"))
        return NOTHING if fields == NOTHING else fields

    def _read_parts(self, line: bytes, tally: StepTally) -> None:
        if ATTEMPT_ENDS.search(line):
            tally.break_off()
        for text in self._parts(line):
            if named := NAMED_EPOCH.search(text):
                self._epoch = int(named[1])
            values, _ = parse_line(text, self._patterns)
            if "step" in values:
                tally.take(int(values["step"]), values.get("loss"), self._epoch)

    def _parts(self, line: bytes) -> Iterator[str]:
        """Parts between carriage returns; what follows one keeps the rank."""
        for part in line.split(b"\r"):
            text = part.decode("utf-8", errors="replace")
            mark = RANK_MARK.match(text)
            yield text[mark.end() :] if mark else text
