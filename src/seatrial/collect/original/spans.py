"""When an attempt ran.

In: the attempt as the original scripts' files tell of it, and how far their clock was ahead of UTC; or the times of its samples. Out: a
`Span`: the driver's own start and duration, the stamps of train.log where it tells none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.paths import ATTEMPT_FILES


@dataclass(frozen=True, kw_only=True)
class Span:
    """When an attempt began and ended, seconds since the epoch; None where no file tells."""

    first_t: float | None = None
    last_t: float | None = None
    duration_s: float = 0.0
    source: str = ""
    """The file that told it."""

    def covers(self, t: float, slack_s: float = 0.0) -> bool:
        """Whether a moment lies in it; a side that is not known is open."""
        return (self.first_t is None or t >= self.first_t - slack_s) and (self.last_t is None or t <= self.last_t + slack_s)


def span_of(attempt: OriginalAttempt, zone_s: float) -> Span:
    """By the attempt's logs and row."""
    segment, row = attempt.segment, attempt.row
    start_s = attempt.block.start_local_s if attempt.block else None
    first_s, last_s = (segment.first_local_s, segment.last_local_s) if segment else (None, None)
    began_s = first_s if start_s is None else start_s
    duration_s = row.duration_s if row else None
    if duration_s is None:
        duration_s = max(last_s - began_s, 0.0) if last_s is not None and began_s is not None else 0.0
    if start_s is None and last_s is not None:
        # The launcher's start is not told: it lies one duration before its end.
        began_s = min(began_s if began_s is not None else last_s, last_s - duration_s)
    if began_s is None:
        return Span(duration_s=duration_s)
    return Span(
        first_t=began_s - zone_s,
        last_t=max(began_s + duration_s, last_s or began_s) - zone_s,
        duration_s=duration_s,
        source=(ATTEMPT_FILES.train_log if start_s is None else ATTEMPT_FILES.launcher_log).name,
    )


def span_of_samples(times: Iterable[float], source: str) -> Span | None:
    """By the first and the last sample that the driver took of it; None without samples."""
    known = list(times)
    if not known:
        return None
    return Span(first_t=min(known), last_t=max(known), duration_s=max(known) - min(known), source=source)
