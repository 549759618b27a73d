"""How a run's step time drifted, for the leak diagnosis.

In: timing_points.csv of a campaign, or the lines of the run's trainer where no such table speaks of the run. Out: mean iter p50 of the
tail and how much larger that is than the head's, after the warm-up, over the points of this one run; of a run whose attempts were
appended to each other, over those of the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seatrial.collect.logs.seed_lines import read_seed_lines
from seatrial.collect.logs.source import StampedLine
from seatrial.collect.original.cells import number, whole
from seatrial.collect.original.manifest_rows import RunKey
from seatrial.collect.original.train_log import restarts
from seatrial_runbooks.stage1.csv_rows import Cells, TableReader
from seatrial_runbooks.stage1.leak_arithmetic import LEAST_VALUES, after_warm_up, tail_mean, tail_over_head_pct

ITER_P50 = "iter_ms_p50"


class Point(NamedTuple):
    """One timing point."""

    step: float | None
    iter_ms: float | None


Points = dict[RunKey, dict[str, list[Point]]]
"""By run, then by attempt, which is empty where the table does not tell it."""


@dataclass(frozen=True, kw_only=True)
class IterDrift:
    """None where there is no figure; the note says from what, or why not."""

    note: str
    tail_ms: float | None = None
    drift_pct: float | None = None


def read_points(path: Path) -> Points:
    """Every point of a campaign's table; {} where there is none."""
    found: Points = {}
    for row in TableReader(path):
        key = run_key(row)
        if key is not None:
            point = Point(number(row.get("step")), _positive(row.get(ITER_P50)))
            found.setdefault(key, {}).setdefault(row.get("attempt", ""), []).append(point)
    return found


def run_key(row: Cells) -> RunKey | None:
    """Which run a row speaks of; None for one that cannot be."""
    repeat = whole(row.get("repeat"))
    return None if repeat is None else (row.get("group", ""), repeat)


def points_of(row: Cells, points: Points) -> Sequence[Point]:
    """Those of the attempt that a manifest's row speaks of; where one of both does not tell the attempt, those of the last."""
    key, attempt = run_key(row), row.get("attempt", "")
    own = points.get(key, {}) if key is not None else {}
    known = max(own, key=lambda name: number(name) or 0.0, default="") if not attempt else attempt if attempt in own else ""
    found = own.get(known, [])
    begins = max((at for _, at in restarts(point.step for point in found)), default=0)
    return found[begins:]


def log_points(lines: Sequence[str]) -> list[Point]:
    """The same from the `Timing` lines of one attempt."""
    read = read_seed_lines([StampedLine(None, line, math.nan, math.nan) for line in lines]).points
    return [Point(float(point.step), _positive(str(point.values.get(ITER_P50)))) for point in read]


def iter_drift(points: Sequence[Point], source: str) -> IterDrift:
    """Tail against head of the points that have a value."""
    values = [point.iter_ms for point in points if point.iter_ms is not None]
    if not values:
        return IterDrift(note=f"iter: no figures: {source} has no timing point of this run")
    left = after_warm_up(values)
    drift_pct = tail_over_head_pct(values)
    if drift_pct is None:
        note = f"iter: {source}: no drift: {len(left)} timing points are left after the warm-up, at least {LEAST_VALUES} are needed"
    else:
        note = f"iter: {source}: {len(left)} timing points after the warm-up"
    return IterDrift(note=note, tail_ms=tail_mean(left), drift_pct=drift_pct)


def _positive(text: str | None) -> float | None:
    value = number(text)
    return value if value is not None and value > 0 else None
