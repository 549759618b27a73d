"""What was found in a run beside its speed, as cells: FOUND_COLUMNS of the per-run table.

In: what was measured of a run. Out: column → value; a column of something that was not looked at is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from seatrial.records.health import MemoryCourse, MemoryVerdict
from seatrial.records.measure import Cell, RunMeasure


def found_cells(measure: RunMeasure) -> dict[str, Cell]:
    """Every one of FOUND_COLUMNS that is known of the run."""
    cells: dict[str, Cell] = dict(chain(_slow_steps(measure), _last_steps(measure), _straggler(measure)))
    cells.update(_words(measure))
    for kind in ("host", "gpu"):
        course = steepest([course for course in measure.memory if course.kind == kind])
        cells.update(_memory(kind, course) if course else ())
    return cells


def steepest(courses: list[MemoryCourse]) -> MemoryCourse | None:
    """A leak before anything else, then what grows fastest; None where there is none."""
    return max(courses, key=lambda course: (course.verdict is MemoryVerdict.LEAK, course.slope_mib_per_min or 0.0), default=None)


def _slow_steps(measure: RunMeasure) -> Iterator[tuple[str, Cell]]:
    if measure.slow_steps:
        yield "slow_steps", measure.slow_steps.count
        yield "slow_steps_time_share", measure.slow_steps.time_share


def _last_steps(measure: RunMeasure) -> Iterator[tuple[str, Cell]]:
    last = measure.last_steps
    if last:
        yield from {
            "last50_n": last.n,
            "last50_mean_ms": last.mean_ms,
            "last50_stdev_ms": last.stdev_ms,
            "last50_per_sec": last.per_s,
        }.items()


def _memory(kind: str, course: MemoryCourse) -> dict[str, Cell]:
    return {
        f"{kind}_memory": course.verdict.value,
        f"{kind}_slope_mib_per_min": course.slope_mib_per_min,
        f"{kind}_slope_low": course.slope_low,
        f"{kind}_slope_high": course.slope_high,
        f"{kind}_mib_per_1000_steps": course.mib_per_1000_steps,
        f"{kind}_hours_left": course.hours_left,
    }


def _straggler(measure: RunMeasure) -> Iterator[tuple[str, Cell]]:
    found = measure.straggler
    if found:
        yield from {
            "straggler": found.verdict.value,
            "straggler_rank": found.rank,
            "straggler_score": found.score,
            "straggler_phase": found.phase or None,
            "straggler_held_up_ms": found.held_up_ms,
            "straggler_n": found.n,
        }.items()


def _words(measure: RunMeasure) -> dict[str, Cell]:
    return {
        "uneven_causes": "+".join(cause.kind for cause in measure.uneven) or None,
        "debug_settings": "+".join(f"{setting.name}={setting.value}" for setting in measure.debug) or None,
        "slow_signs": "+".join(sign.id for sign in measure.slow_signs) or None,
    }
