"""What is said of a course of memory.

In: `MemoryCourse` with its figures, and its shape. Out: one sentence each, without a full stop, that follows the name of what it is about:
what was seen, over how many samples and how long, and how to get what is missing.
"""

from __future__ import annotations

import math

from seatrial.analyse.memory_growth import Shape
from seatrial.records.health import MemoryCourse
from seatrial.units import format_duration

MIB_PER_GIB = 1024
RUN_MIN = 30.0
"""What a run is told to last when more is needed: in half an hour a leak of a few MiB per minute shows."""
USUAL_INTERVAL_S = 2.0


def too_few(course: MemoryCourse, least: int, interval_s: float | None, *, by_steps: bool) -> str:
    interval_s = interval_s or USUAL_INTERVAL_S
    between = " between the first step and the last" if by_steps else ""
    least_min = least * interval_s / 60
    better = f", better {_about(RUN_MIN)}, in which a leak of a few MiB per minute shows" if least_min < RUN_MIN else ""
    told = "1 sample" if course.n == 1 else f"{course.n} samples"
    return (
        f"{told}{between} cannot tell a leak, {least} are needed: at one every {interval_s:.3g} s run for at least "
        f"{_about(least_min)}{better}; or sample more often (telemetry.{course.kind}_s)"
    )


def no_leak(course: MemoryCourse, shape: Shape) -> str:
    """Of every shape but steady growth."""
    if shape is Shape.FLAT:
        return f"does not grow: {_flat(course)}"
    if shape is Shape.STOPPED:
        return f"grew and stopped growing: nothing is added in the last third of what counts ({_window(course)})"
    if shape is Shape.SLOWING:
        return f"{_grows(course)}, but more and more slowly, as a cache that fills does: run for {_longer(course)} to see whether it stops"
    low, high = course.slope_low or 0.0, course.slope_high or 0.0
    return (
        f"goes up and down too much to tell a leak: between {low:.3g} and {high:.3g} MiB/min ({_window(course)}); run for "
        f"{_longer(course)}, with one workload and one stage only"
    )


def may_grow(course: MemoryCourse, full_h: float) -> str:
    """Where no growth is seen, but so short a course could not show one that matters."""
    return (
        f"is not seen to grow: {_flat(course)}; but growth at the upper end of that would fill the {_left(course)} left in "
        f"{_time(full_h)}: run for {_longer(course)} to rule it out"
    )


def others_too(course: MemoryCourse) -> str:
    return f"{_grows(course)}, but processes that are not the run's own used this GPU meanwhile: run it again on a GPU of its own"


def just_begun(course: MemoryCourse, least_min: float) -> str:
    longer = f"run for at least {_about(least_min)}, better {_about(RUN_MIN)}"
    return f"{_grows(course)}, which so early may be a job that has just begun: {longer}"


def leak(course: MemoryCourse) -> str:
    by_step = "" if course.mib_per_1000_steps is None else f", {_figure(course.mib_per_1000_steps)} MiB per 1,000 steps"
    if course.hours_left is None:
        return f"{_grows(course)}{by_step}; how much is left is not known"
    return f"{_grows(course)}{by_step}; {_left(course)} are left: about {_time(course.hours_left)}"


def _grows(course: MemoryCourse) -> str:
    slope, low, high = course.slope_mib_per_min or 0.0, course.slope_low or 0.0, course.slope_high or 0.0
    return f"grows by {_figure(slope)} MiB/min ({_figure(low)} to {_figure(high)}; {_window(course)})"


def _flat(course: MemoryCourse) -> str:
    slope, low, high = course.slope_mib_per_min or 0.0, course.slope_low or 0.0, course.slope_high or 0.0
    return f"{slope:.2g} MiB/min ({low:.2g} to {high:.2g}; {_window(course)})"


def _window(course: MemoryCourse) -> str:
    return f"{course.n:,} samples over {format_duration((course.last_t or 0.0) - (course.first_t or 0.0))}"


def _longer(course: MemoryCourse) -> str:
    return f"at least {_about(max(RUN_MIN, 3 * ((course.last_t or 0.0) - (course.first_t or 0.0)) / 60))}"


def _about(minutes: float) -> str:
    if minutes < 2:
        return f"{minutes * 60:.0f} s"
    return f"{minutes:.0f} min" if minutes < 180 else f"{minutes / 60:.1f} h"


def _time(hours: float) -> str:
    return _about(hours * 60) if hours < 3 else f"{hours:.0f} h" if hours < 72 else f"{hours / 24:,.0f} days"


def _left(course: MemoryCourse) -> str:
    mib = max(0.0, (course.limit_mib or 0.0) - (course.last_mib or 0.0))
    return f"{mib:.0f} MiB" if mib < MIB_PER_GIB else f"{mib / MIB_PER_GIB:.3g} GiB"


def _figure(value: float) -> str:
    digits = max(0, 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 4)}f}"
