"""Leaks distinguished from caches, steps, ramps and saw-teeth."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.memory_leaks import Shape, find_growth, memory_trends
from seatrial.records.measure import MemoryTrend, MemoryVerdict
from seatrial.records.telemetry import TelemetryTables
from tests.unit.analyse.factory import STARTED_T, assert_golden

LEAK, PLATEAU, INCONCLUSIVE = MemoryVerdict.LEAK, MemoryVerdict.PLATEAU, MemoryVerdict.INCONCLUSIVE
AT_S = np.arange(0, 1800, 2.0)
PART = AT_S / AT_S[-1]
GIB_KIB = 1024.0**2


def noise(count: int, width: float = 3.0) -> np.ndarray:
    return np.random.default_rng(count).normal(0, width, count)


def steps_of(length_s: float, step_s: float = 0.5) -> pl.DataFrame:
    step = np.arange(int(length_s / step_s) + 1)
    return pl.DataFrame({"rank": 0 * step, "step": step, "t": STARTED_T + step * step_s})


NO_STEPS = pl.DataFrame(schema={"rank": pl.Int64, "step": pl.Int64, "t": pl.Float64})


def host(mib: np.ndarray, at_s: np.ndarray = AT_S, **columns: object) -> TelemetryTables:
    cells = {"epoch_sec": STARTED_T + at_s, "rss_kib": mib * 1024, "mem_available_kib": 12 * GIB_KIB}
    return TelemetryTables(host=pl.DataFrame({**cells, **columns}))


def only(courses: tuple[MemoryTrend, ...]) -> MemoryTrend:
    assert len(courses) == 1
    return courses[0]


def judged(mib: np.ndarray) -> MemoryTrend:
    return only(memory_trends(host(mib), steps_of(1800)))


def test_a_leak_is_reported_with_its_rate_by_time_and_by_steps_and_the_time_that_is_left() -> None:
    found = judged(4000 + AT_S / 60 * 5 + noise(900))
    assert found.verdict is LEAK
    assert found.slope_mib_per_min == pytest.approx(5, abs=0.3)
    assert found.slope_low < 5 < found.slope_high
    assert found.mib_per_1000_steps == pytest.approx(1000 / 120 * 5, rel=0.05)
    assert found.hours_left == pytest.approx(12 * 1024 / 5 / 60, rel=0.05)
    assert found.hours_low < found.hours_left
    assert (found.kind, found.subject, found.file, found.n) == ("host", "process tree", "host_telemetry.csv", 900)


def test_a_leak_shows_under_warm_up_and_saw_teeth() -> None:
    top = 3000 * np.clip(PART / 0.15, 0, 1) + 200 * ((AT_S / 90) % 1)
    found = judged(4000 + AT_S / 60 * 5 + top + noise(900))
    assert found.verdict is LEAK
    assert found.first_t > STARTED_T + 100
    assert found.slope_mib_per_min == pytest.approx(5, rel=0.2)


@pytest.mark.parametrize(
    "course",
    {
        "cache": 2000 * (1 - np.exp(-PART / 0.08)),
        "early ramp": 3000 * np.clip(PART / 0.25, 0, 1),
        "step": 700.0 * (PART > 0.45),
        "saw-tooth": 500 * ((AT_S / 100) % 1),
        "nothing": 0 * PART,
        "drop": -500.0 * (PART > 0.3),
    }.items(),
    ids=lambda item: item[0],
)
def test_what_stops_or_comes_back_is_a_plateau(course: tuple[str, np.ndarray]) -> None:
    found = judged(4000 + course[1] + noise(900))
    assert found.verdict is PLATEAU
    assert found.hours_left is None


@pytest.mark.parametrize(
    "course",
    {
        "slow cache": 5000 * (1 - np.exp(-PART * 3)),
        "late ramp": 3000 * np.clip(PART / 0.7, 0, 1),
        "steps": 300.0 * sum((place < PART).astype(float) for place in (0.1, 0.35, 0.6, 0.9)),
        "slow saw-tooth": 900 * ((PART * 3) % 1),
        "one tooth to go": 900 * np.where(PART < 0.35, PART / 0.35, (PART - 0.35)),
    }.items(),
    ids=lambda item: item[0],
)
def test_growth_that_slows_or_jumps_is_no_leak(course: tuple[str, np.ndarray]) -> None:
    assert judged(4000 + course[1] + noise(900)).verdict is not LEAK


def test_half_a_minute_is_enough_where_a_leak_goes_with_the_steps() -> None:
    at_s = np.arange(0, 25, 0.2)
    mib = 30 + at_s * 10 + noise(len(at_s), 0.2)
    assert only(memory_trends(host(mib, at_s), steps_of(25, 0.05))).verdict is LEAK
    found = only(memory_trends(host(mib, at_s), steps_of(25, 2.0)))
    assert found.verdict is INCONCLUSIVE


def test_half_a_minute_without_growth_is_no_plateau_where_the_memory_could_still_be_full_in_a_day() -> None:
    at_s = np.arange(0, 25, 0.2)
    mib = 4000 + noise(len(at_s), 15.0)
    found = only(memory_trends(host(mib, at_s), steps_of(25, 0.05)))
    assert (found.verdict, found.hours_left) == (INCONCLUSIVE, None)
    unknown = TelemetryTables(host=host(mib, at_s).host.drop("mem_available_kib"))
    assert only(memory_trends(unknown, steps_of(25, 0.05))).verdict is PLATEAU


def test_samples_outside_the_steps_do_not_count() -> None:
    at_s = np.arange(-300, 2100, 2.0)
    mib = np.where(at_s < 0, 100 + (at_s + 300) * 10, np.where(at_s > 1800, 50.0, 4000)) + noise(len(at_s))
    found = only(memory_trends(host(mib, at_s), steps_of(1800)))
    assert (found.verdict, found.n) == (PLATEAU, 901)
    assert found.last_mib == pytest.approx(4000, abs=20)


def test_without_step_times_the_ends_of_the_processes_are_left_out_and_no_growth_per_step_is_given() -> None:
    mib = 4000 + AT_S / 60 * 20 + noise(900)
    mib[-5:] = 3.0
    found = only(memory_trends(host(mib), NO_STEPS))
    assert (found.verdict, found.mib_per_1000_steps, found.n) == (LEAK, None, 895)


def test_the_hand_written_samplers_column_is_used_instead() -> None:
    mib = 4000 + AT_S / 60 * 20 + noise(900)
    empty = pl.Series([None] * len(mib), dtype=pl.Float64)
    found = only(memory_trends(host(mib, rss_kib=empty, train_rss_kib=mib * 1024), steps_of(1800)))
    assert found.verdict is LEAK
    assert memory_trends(host(mib, rss_kib=empty), steps_of(1800)) == ()


def test_the_limit_is_the_hosts_whole_memory_where_the_free_memory_is_unknown() -> None:
    mib = 4000 + AT_S / 60 * 20 + noise(900)
    table = host(mib).host
    assert table is not None
    by_total = TelemetryTables(host=table.drop("mem_available_kib").with_columns(mem_total_kib=pl.lit(16 * GIB_KIB)))
    assert only(memory_trends(by_total, steps_of(1800))).limit_mib == 16 * 1024
    unknown = only(memory_trends(TelemetryTables(host=table.drop("mem_available_kib")), steps_of(1800)))
    assert (unknown.verdict, unknown.hours_left, unknown.limit_mib) == (LEAK, None, None)


def gpu(foreign: float = 0.0) -> TelemetryTables:
    rows = [pl.DataFrame({"epoch_sec": STARTED_T + AT_S, "gpu_index": float(index), "mem_used_mib": used}) for index, used in (
        (0, 30_000 + 2 * np.floor(AT_S / 24)), (1, np.full(len(AT_S), 30_000.0)))]  # fmt: skip
    table = pl.concat(rows).sort("epoch_sec").with_columns(mem_total_mib=pl.lit(81_920.0), foreign_process_count=pl.lit(foreign))
    return TelemetryTables(gpu=table)


def test_every_gpu_has_its_course() -> None:
    leaks, holds = memory_trends(gpu(), steps_of(1800))
    assert (leaks.subject, leaks.verdict, leaks.limit_mib) == ("GPU 0", LEAK, 81_920)
    assert leaks.slope_mib_per_min == pytest.approx(5, rel=0.1)
    assert (holds.subject, holds.verdict, holds.slope_mib_per_min) == ("GPU 1", PLATEAU, 0)


def test_nothing_sampled_is_no_course() -> None:
    assert memory_trends(TelemetryTables(), NO_STEPS) == ()
    assert memory_trends(host(np.empty(0), np.empty(0)), NO_STEPS) == ()


def test_a_gap_and_a_single_torn_sample_change_nothing() -> None:
    mib = 4000 + AT_S / 60 * 5 + noise(900)
    mib[[300, 700]] = 100.0
    kept = (AT_S < 600) | (AT_S > 760)
    assert only(memory_trends(host(mib[kept], AT_S[kept]), steps_of(1800))).verdict is LEAK


@pytest.mark.parametrize("t", [np.full(100, STARTED_T), STARTED_T + np.arange(100.0)])
def test_odd_times_are_no_error(t: np.ndarray) -> None:
    table = pl.DataFrame({"epoch_sec": t, "rss_kib": np.full(100, 4096.0)})
    assert only(memory_trends(TelemetryTables(host=table), NO_STEPS)).verdict is not LEAK


def test_sentences() -> None:
    """Every sentence on memory, whole."""
    minutes, half = AT_S / 60, np.arange(0, 25, 0.2)
    early = 30 + half * 10 + noise(len(half), 0.2)
    alone = TelemetryTables(host=host(4000 + minutes * 20 + noise(900)).host.drop("mem_available_kib"))
    cases = {
        "leak": host(4000 + minutes * 5 + noise(900)),
        "fast leak": host(4000 + minutes * 200 + noise(900), mem_available_kib=0.9 * GIB_KIB),
        "slow leak": host(4000 + minutes * 0.5 + noise(900, 0.1), mem_available_kib=512 * GIB_KIB),
        "leak without a limit": alone,
        "nearly full": host(4000 + minutes * 20 + noise(900), mem_available_kib=0.0),
        "flat": host(4000 + noise(900)),
        "stopped": host(4000 + 3000 * np.clip(PART / 0.58, 0, 1) + noise(900)),
        "slowing": host(4000 + 5000 * (1 - np.exp(-PART * 3)) + noise(900)),
        "slowing for hours": host(4000 + 5000 * (1 - np.exp(-PART * 3)) + noise(900), AT_S * 3),
        "varying": host(4000 + 900 * ((PART * 3) % 1) + noise(900)),
        "may grow": host(4000 + noise(len(half), 15.0), half),
        "one sample": host(np.array([1000.0]), AT_S[:1]),
        "few samples": host(np.linspace(1000, 2000, 40), AT_S[:40]),
        "few and far": host(np.linspace(1000, 2000, 40), AT_S[:40] * 20),
        "starting up": host(early, half),
        "gpus": gpu(),
        "shared gpus": gpu(foreign=1.0),
    }
    lines = []
    for name, samples in cases.items():
        steps = steps_of(25, 2.0) if name == "starting up" else steps_of(6000)
        lines += [f"{name}: {trend.verdict.value}: {trend.subject} {trend.reason}" for trend in memory_trends(samples, steps)]
    lines += [f"without steps: {trend.reason}" for trend in memory_trends(cases["few samples"], NO_STEPS)]
    assert_golden("memory_leaks", lines)


AT_MIN = np.linspace(0, 30, 900)
NOISE = np.random.default_rng(2).normal(0, 2, 900)


@pytest.mark.parametrize(
    ("course", "shape"),
    [
        (5 * AT_MIN, Shape.STEADY),
        (20 * np.floor(AT_MIN / 4), Shape.STEADY),
        (0 * AT_MIN, Shape.FLAT),
        (4000 * (1 - np.exp(-AT_MIN / 10)), Shape.SLOWING),
        (4000 * np.clip(AT_MIN / 17, 0, 1), Shape.STOPPED),
        (900 * ((AT_MIN / 12) % 1), Shape.UNEVEN),
    ],
    ids=["leak", "leak in segments", "flat", "cache", "ramp that ends", "two teeth"],
)
def test_shapes(course: np.ndarray, shape: Shape) -> None:
    found = find_growth(AT_MIN, 4000 + course + NOISE)
    assert found is not None
    assert found.shape is shape


def test_a_day_of_samples_is_judged_as_an_hours() -> None:
    at_min = np.linspace(0, 1440, 43_200)
    found = find_growth(at_min, 9000 + 0.5 * at_min + np.random.default_rng(3).normal(0, 5, len(at_min)))
    assert found is not None
    assert found.shape is Shape.STEADY
    assert found.slope.value == pytest.approx(0.5, rel=0.02)
