"""What is said of a course of memory: every number as it was measured, and how to get what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.analyse import memory_words
from seatrial.analyse.memory_growth import Shape
from seatrial.records.health import MemoryCourse, MemoryVerdict


def course(**changes: Any) -> MemoryCourse:
    values: dict[str, Any] = {
        "kind": "host",
        "subject": "process tree",
        "verdict": MemoryVerdict.INCONCLUSIVE,
        "reason": "",
        "n": 1200,
        "first_t": 1000.0,
        "last_t": 1600.0,
        "slope_mib_per_min": 12.34,
        "slope_low": 11.8,
        "slope_high": 13.1,
    }
    return MemoryCourse(**{**values, **changes})


def test_too_few_samples_tell_how_long_to_run() -> None:
    assert memory_words.too_few(course(n=1), 30, 2.0, by_steps=False) == (
        "1 sample cannot tell a leak, 30 are needed: at one every 2 s run for at least 60 s, better 30 min, in which a leak of a few MiB "
        "per minute shows; or sample more often (telemetry.host_s)"
    )
    assert memory_words.too_few(course(n=5, kind="gpu"), 30, None, by_steps=True).startswith(
        "5 samples between the first step and the last cannot tell a leak, 30 are needed: at one every 2 s"
    )


def test_a_long_time_is_not_called_better() -> None:
    assert "better" in memory_words.too_few(course(), 30, 59.0, by_steps=False)
    found = memory_words.too_few(course(), 30, 60.0, by_steps=False)
    assert "run for at least 30 min; or sample" in found and "better" not in found


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Shape.FLAT, "does not grow: 12 MiB/min (12 to 13; 1,200 samples over 10m 00s)"),
        (Shape.STOPPED, "grew and stopped growing: nothing is added in the last third of what counts (1,200 samples over 10m 00s)"),
        (
            Shape.SLOWING,
            "grows by 12 MiB/min (12 to 13; 1,200 samples over 10m 00s), but more and more slowly, as a cache that fills does: run for at "
            "least 30 min to see whether it stops",
        ),
        (
            Shape.UNEVEN,
            "goes up and down too much to tell a leak: between 11.8 and 13.1 MiB/min (1,200 samples over 10m 00s); run for at least 30 "
            "min, with one workload and one stage only",
        ),
    ],
)
def test_every_shape_but_steady_growth(shape: Shape, words: str) -> None:
    assert memory_words.no_leak(course(), shape) == words


def test_a_long_course_is_told_to_run_three_times_as_long() -> None:
    assert "run for at least 60 min to see" in memory_words.no_leak(course(last_t=2200.0), Shape.SLOWING)
    assert "run for at least 3.0 h to see" in memory_words.no_leak(course(last_t=4600.0), Shape.SLOWING)


def test_growth_that_a_short_course_cannot_rule_out() -> None:
    told = memory_words.may_grow(course(slope_mib_per_min=0.1, slope_low=-1.0, slope_high=1.2, limit_mib=3072.0, last_mib=1024.0), 28.4)
    assert told == (
        "is not seen to grow: 0.1 MiB/min (-1 to 1.2; 1,200 samples over 10m 00s); but growth at the upper end of that would fill the "
        "2 GiB left in 28 h: run for at least 30 min to rule it out"
    )


@pytest.mark.parametrize(
    ("hours", "words"),
    [(0.02, "72 s"), (0.5, "30 min"), (2.9, "174 min"), (3.0, "3 h"), (71.9, "72 h"), (72.0, "3 days"), (24000.0, "1,000 days")],
)
def test_a_leak_with_what_is_left(hours: float, words: str) -> None:
    made = course(mib_per_1000_steps=40.0, limit_mib=1500.0, last_mib=1000.0, hours_left=hours)
    assert memory_words.leak(made) == (
        "grows by 12 MiB/min (12 to 13; 1,200 samples over 10m 00s), 40 MiB per 1,000 steps; 500 MiB are left: about " + words
    )


def test_a_leak_without_a_limit() -> None:
    assert memory_words.leak(course()).endswith("over 10m 00s); how much is left is not known")


def test_from_a_gibibyte_on_what_is_left_is_told_in_gibibytes() -> None:
    assert "; 1 GiB are left" in memory_words.leak(course(hours_left=1.0, limit_mib=1024.0, last_mib=0.0))
    assert "; 1023 MiB are left" in memory_words.leak(course(hours_left=1.0, limit_mib=1023.0))
    assert "; 0 MiB are left" in memory_words.leak(course(hours_left=1.0, limit_mib=10.0, last_mib=11.0))


@pytest.mark.parametrize(
    ("slope", "text"),
    [(0.0, "0"), (0.0123, "0.012"), (0.00001, "0.0000"), (0.5, "0.50"), (1.25, "1.2"), (12.34, "12"), (-1.26, "-1.3"), (1234.5, "1,234")],
)
def test_figures_have_two_digits_that_count(slope: float, text: str) -> None:
    assert memory_words.others_too(course(slope_mib_per_min=slope)).startswith(f"grows by {text} MiB/min (")


def test_a_job_that_has_just_begun_and_one_that_is_not_alone() -> None:
    assert memory_words.just_begun(course(), 5.0).endswith("may be a job that has just begun: run for at least 5 min, better 30 min")
    assert memory_words.others_too(course()).endswith("used this GPU meanwhile: run it again on a GPU of its own")
