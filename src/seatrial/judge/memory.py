"""Memory that grows, as numbers a verdict rests on.

In: a run and its courses of memory. Out: the slope as evidence and in words, and the reading of `leak_mib_per_min`.
"""

from __future__ import annotations

from seatrial.judge.reading import FILES, Reading, attempt_file, missing
from seatrial.records.health import MemoryCourse, MemoryVerdict
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Evidence

NO_SAMPLES = "no samples of memory; leave `telemetry` on and run longer"


def leak_reading(run: MeasuredRun) -> Reading:
    """The growth of what leaks fastest; 0 where everything stays level."""
    name = run.attempt.spec.run
    courses = run.measure.memory if run.measure else ()
    leaks = [course for course in courses if course.verdict is MemoryVerdict.LEAK and course.slope_mib_per_min is not None]
    unsaid = [course for course in courses if course.verdict is MemoryVerdict.INCONCLUSIVE]
    if not leaks and (unsaid or not courses):
        return missing(name, f"{name}: {unsaid_text(unsaid[0]) if unsaid else NO_SAMPLES}", FILES.per_run_metrics.name)
    worst = max(leaks, key=lambda course: course.slope_mib_per_min or 0.0, default=courses[0])
    at = slope_evidence(run, worst)
    return Reading(
        subject=name,
        value=worst.slope_mib_per_min if leaks else 0.0,
        unit=at.unit,
        file=at.file,
        window=at.window,
        n=at.n,
        detail=f"{worst.subject} {slope_text(worst)}" if leaks else "all of it stays level",
        unsettled=unsaid_text(unsaid[0]) if unsaid else "",
        further=tuple(slope_evidence(run, course) for course in courses),
    )


def slope_text(course: MemoryCourse) -> str:
    """'grows by 12.1 MiB/min (11.8 to 12.4)'."""
    if course.slope_mib_per_min is None:
        return "grows"
    ends = f" ({course.slope_low:.4g} to {course.slope_high:.4g})" if course.slope_low is not None and course.slope_high is not None else ""
    return f"grows by {course.slope_mib_per_min:.4g} MiB/min{ends}"


def unsaid_text(course: MemoryCourse) -> str:
    """Why nothing can be said of it."""
    return f"{course.subject}: {course.reason.rstrip('.')}"


def slope_evidence(run: MeasuredRun, course: MemoryCourse) -> Evidence:
    seconds = course.last_t - course.first_t if course.first_t is not None and course.last_t is not None else None
    return Evidence(
        subject=run.attempt.spec.run,
        name=f"slope of {course.subject}",
        value=course.slope_mib_per_min,
        unit="MiB/min",
        file=attempt_file(run, course.file) if course.file else FILES.per_run_metrics.name,
        window=f"{seconds:.0f} s after warm-up" if seconds is not None else "after warm-up",
        n=course.n,
    )
