"""What the slowest rank told of its start-up.

In: the step table of an attempt, and the head of the events file of the rank whose first step ended last. Out: `StartupFacts`. Only
lines before that rank's first step are read, so it costs nothing at any length of run or number of ranks. Of a run that ended before any
step it is the lowest rank that began.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from seatrial.collect.events.files import rank_in_name
from seatrial.collect.events.line import event_in, is_of
from seatrial.collect.file_parts import LONGEST_LINE_BYTES
from seatrial.collect.hosts.clocks import offset_of
from seatrial.files import open_file
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.events import SPANS
from seatrial.records.steps import StartupFacts
from seatrial.units import MIB

FURTHEST_BYTES = 64 * MIB
"""Of a file that begins with lines of others, no more is looked through."""
LARGEST_NUMBER = 1e15


def read_startup(attempt: Attempt, steps: pl.DataFrame) -> StartupFacts | None:
    """The facts of the rank that was ready last; None where it left no start event, or no time for its first step."""
    rank = _last_ready(steps)
    return None if rank is None else _told_by(attempt, rank)


def read_broken_startup(attempt: Attempt, sources: Sequence[Path]) -> StartupFacts | None:
    """The same where these events tell no step; None where no rank left a start event."""
    ranks = sorted(rank for rank in map(rank_in_name, sources) if rank >= 0)
    return next((facts for facts in (_told_by(attempt, rank) for rank in ranks) if facts is not None), None)


def _told_by(attempt: Attempt, rank: int) -> StartupFacts | None:
    start: dict[str, Any] | None = None
    spans: list[tuple[str, float, float]] = []
    for event in _before_first_step(AttemptPaths(Path(attempt.folder)).events(rank), attempt, rank):
        if event.get("kind") == "start":
            # A rank that was started anew in the same attempt: what came before belongs to its predecessor.
            start, spans = event, []
        elif event.get("kind") == "span" and event.get("name") in SPANS and _is_number(event.get("span_ms")) and _is_number(event.get("m")):
            spans.append((event["name"], event["span_ms"] / 1000.0, float(event["m"])))
    if start is None or not _is_number(start.get("t")):
        return None
    process_t, start_m = (float(start[name]) if _is_number(start.get(name)) else None for name in ("process_t", "m"))
    ahead_s = offset_of(attempt.nodes, rank)
    return StartupFacts(
        rank=rank,
        start_t=float(start["t"]) - ahead_s,
        start_m=start_m,
        process_t=None if process_t is None else process_t - ahead_s,
        spans=tuple(spans),
    )


def _last_ready(steps: pl.DataFrame) -> int | None:
    rank, step, t = (steps[name].to_numpy() for name in ("rank", "step", "t"))
    first = (step == step.min()) & ~np.isnan(t)
    return int(rank[first][np.argmax(t[first])]) if first.any() else None


def _before_first_step(path: Path, attempt: Attempt, rank: int) -> Iterator[dict[str, Any]]:
    """Events of this run, attempt and rank; lines that are torn or of another program are passed over, as the tables do."""
    try:
        with open_file(path) as source:
            while source.tell() < FURTHEST_BYTES and (line := source.readline(LONGEST_LINE_BYTES)):
                event = event_in(line)
                if event is None or not is_of(event, attempt.spec.run, attempt.number, rank):
                    continue
                if event.get("kind") == "step":
                    return
                yield event
    except OSError:
        return


def _is_number(value: object) -> bool:
    """Whether it can be counted with; what stands in a file may be NaN, or beyond any float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST_NUMBER < value < LARGEST_NUMBER
