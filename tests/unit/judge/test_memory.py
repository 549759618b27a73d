"""Memory that grows, as numbers a verdict rests on."""

from __future__ import annotations

import dataclasses

from seatrial.judge.memory import NO_SAMPLES, course_evidence, leak_reading, slope_text, unsaid_text
from seatrial.judge.reading import Reading
from seatrial.records.health import MemoryCourse, MemoryVerdict
from tests.unit.judge.campaigns import changed, clean_runs, course

LEVEL, LEAK, UNSAID = course(MemoryVerdict.PLATEAU), course(MemoryVerdict.LEAK), course(MemoryVerdict.INCONCLUSIVE)


def read(*memory: MemoryCourse) -> Reading:
    return leak_reading(changed(clean_runs()[0], memory=memory))


def test_the_fastest_leak_counts() -> None:
    slow = dataclasses.replace(LEAK, subject="GPU 1", slope_mib_per_min=2.0)
    found = read(LEVEL, slow, LEAK)
    assert (found.value, found.unit, found.window, found.n) == (12.5, "MiB/min", "600 s after warm-up", 300)
    assert found.detail == "process tree grows by 12.5 MiB/min (12 to 13)" and found.unsettled == ""
    assert found.file == "mb16_nw2_r1/attempt-1/host_telemetry.csv" and len(found.further) == 15


def test_level_memory_is_a_growth_of_nothing() -> None:
    found = read(LEVEL, LEVEL)
    assert (found.value, found.detail, found.missing) == (0.0, "all of it stays level", "")


def test_what_cannot_be_said_is_missing_unless_something_leaks() -> None:
    assert read().missing == f"mb16_nw2_r1: {NO_SAMPLES}"
    assert read(LEVEL, UNSAID).missing == "mb16_nw2_r1: process tree: Too few samples: 12 in 20 s; run at least 5 minutes"
    found = read(UNSAID, LEAK)
    assert found.value == 12.5 and found.unsettled == unsaid_text(UNSAID)
    without_slope = dataclasses.replace(LEAK, slope_mib_per_min=None)
    assert read(without_slope, UNSAID).missing != "" and leak_reading(dataclasses.replace(clean_runs()[0], measure=None)).missing != ""


def test_slopes_in_words() -> None:
    assert slope_text(dataclasses.replace(LEAK, slope_low=None)) == "grows by 12.5 MiB/min"
    assert slope_text(dataclasses.replace(LEAK, slope_high=None)) == "grows by 12.5 MiB/min"
    assert slope_text(dataclasses.replace(LEAK, slope_mib_per_min=None)) == "grows"


def test_evidence_is_the_slope_and_of_a_leak_all_that_is_known() -> None:
    run = clean_runs()[0]
    assert [one.name for one in course_evidence(run, LEVEL)] == ["slope of process tree"]
    known = course_evidence(run, dataclasses.replace(LEAK, limit_mib=None, hours_left=None, hours_low=None))
    assert [(one.name, one.value, one.unit) for one in known] == [
        ("slope of process tree", 12.5, "MiB/min"),
        ("slope of process tree, lower end", 12.0, "MiB/min"),
        ("slope of process tree, upper end", 13.0, "MiB/min"),
        ("growth of process tree in 1,000 steps", 40.0, "MiB"),
    ]
    (bare,) = course_evidence(run, dataclasses.replace(LEVEL, first_t=None, file=""))
    assert (bare.window, bare.file, bare.subject) == ("after warm-up", "per_run_metrics.csv", "mb16_nw2_r1")
