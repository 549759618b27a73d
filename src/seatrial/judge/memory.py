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
    at = course_evidence(run, worst)[0]
    return Reading(
        subject=name,
        value=worst.slope_mib_per_min if leaks else 0.0,
        unit=at.unit,
        file=at.file,
        window=at.window,
        n=at.n,
        detail=f"{worst.subject} {slope_text(worst)}" if leaks else "all of it stays level",
        unsettled=unsaid_text(unsaid[0]) if unsaid else "",
        further=tuple(evidence for course in courses for evidence in course_evidence(run, course)),
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


def course_evidence(run: MeasuredRun, course: MemoryCourse) -> tuple[Evidence, ...]:
    """The slope first; of a leak all that is said of it."""
    numbers: list[tuple[str, float | None, str]] = [(f"slope of {course.subject}", course.slope_mib_per_min, "MiB/min")]
    if course.verdict is MemoryVerdict.LEAK:
        told = (
            (f"slope of {course.subject}, lower end", course.slope_low, "MiB/min"),
            (f"slope of {course.subject}, upper end", course.slope_high, "MiB/min"),
            (f"growth of {course.subject} in 1,000 steps", course.mib_per_1000_steps, "MiB"),
            (f"limit of {course.subject}", course.limit_mib, "MiB"),
            (f"hours until {course.subject} is full", course.hours_left, "h"),
            (f"hours until {course.subject} is full, at the steepest", course.hours_low, "h"),
        )
        numbers += [number for number in told if number[1] is not None]
    seconds = course.last_t - course.first_t if course.first_t is not None and course.last_t is not None else None
    return tuple(
        Evidence(
            subject=run.attempt.spec.run,
            name=name,
            value=value,
            unit=unit,
            file=attempt_file(run, course.file) if course.file else FILES.per_run_metrics.name,
            window=f"{seconds:.0f} s after warm-up" if seconds is not None else "after warm-up",
            n=course.n,
        )
        for name, value, unit in numbers
    )
