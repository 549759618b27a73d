"""launcher.log and train.log of one attempt as the one log that our readers take, and when its lines were written.

In: an attempt. Out: the lines, the launcher's first, and one row of arrivals for each line of the trainer that carries a stamp: a line was
written when its stamp says. Lines that both logs hold are taken once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seatrial.collect.original.local_clock import local_s
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.records.columns import ARRIVALS

# Lines that a second log must not tell again. TimingRank lines may stand in either log, and a step told twice does no harm there.
TOLD_ONCE = re.compile(r"(?<!Val )\bStep \d+: Loss |\bTiming\(window=|\bTimingETA ")


@dataclass(frozen=True, kw_only=True)
class MergedLog:
    """The text of launcher.log and of launcher_arrivals.csv."""

    log: str
    arrivals: str


def merge_logs(attempt: OriginalAttempt, zone_s: float) -> MergedLog:
    """Both logs in one; stamps become seconds since the epoch."""
    head = attempt.block.head if attempt.block else ()
    output = attempt.block.output if attempt.block else ()
    if attempt.segment is None:
        # The trainer's lines, if there are any, stand in what the launcher printed.
        return _merged(head, output, zone_s)
    own = set(attempt.segment.lines)
    has_steps = bool(attempt.segment.steps)
    beside = [line for line in output if line not in own and not (has_steps and TOLD_ONCE.search(line))]
    return _merged([*head, *beside], attempt.segment.lines, zone_s)


def _merged(before: Sequence[str], stamped: Sequence[str], zone_s: float) -> MergedLog:
    start_bytes = sum(_size(line) for line in before)
    rows = "".join(f"{row}\n" for row in (",".join(ARRIVALS), *_arrivals(stamped, start_bytes, zone_s)))
    return MergedLog(log="".join(f"{line}\n" for line in (*before, *stamped)), arrivals=rows)


def _arrivals(lines: Sequence[str], offset_bytes: int, zone_s: float) -> Iterator[str]:
    first_s: float | None = None
    for line in lines:
        offset_bytes += _size(line)
        at_s = local_s(line)
        if at_s is not None:
            first_s = at_s if first_s is None else first_s
            # Nobody kept a monotonic clock: the time since the first line stands for it.
            yield f"{offset_bytes},{at_s - zone_s:.6f},{at_s - first_s:.6f}"


def _size(line: str) -> int:
    return len(line.encode(errors="backslashreplace")) + 1
