"""Throttled GPUs and GPUs that do not work together."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.gpu_throttling import MIN_CLOCK_SAMPLES, clock_causes, gpu_causes
from seatrial.analyse.telemetry_summary import WindowSpan
from seatrial.records.measure import JitterCause
from seatrial.records.telemetry import GPUS_A_HOST
from tests.unit.analyse.factory import golden
from tests.unit.analyse.test_step_jitter import causes as causes_test_uneven
from tests.unit.analyse.test_step_jitter import gpu_rows, gpus

SENTENCES = golden("gpu_throttling")


def rows(*reasons: str | None, **columns: list[float | None]) -> pl.DataFrame:
    return pl.DataFrame({"throttle_reasons": list(reasons), **columns}, schema_overrides={"throttle_reasons": pl.String})


def causes(table: pl.DataFrame, gpu: list[float] | None = None, **changes: Any) -> list[JitterCause]:
    index = np.zeros(len(table)) if gpu is None else np.array(gpu, dtype=np.float64)
    return list(clock_causes(table, index, WindowSpan(), **changes))


def test_no_reasons_no_causes() -> None:
    assert (
        causes(pl.DataFrame({"power_w": [1.0] * 20}))
        == []
        == causes(rows(*[None] * 20))
        == causes(rows(*["applications_clocks_setting"] * 20))
    )
    assert causes(rows(*["sw_thermal_slowdown"] * 20), [float("nan")] * 20) == []


def test_heat_is_reported_with_what_was_seen_meanwhile() -> None:
    table = rows(
        *["sw_thermal_slowdown"] * 5,
        *[""] * 15,
        temp_c=[90.0] * 5 + [60.0] * 15,
        power_w=[200.0] * 5 + [300.0] * 15,
        power_limit_w=[400.0] * 20,
        sm_clock_mhz=[1000.0] * 5 + [1800.0] * 15,
    )
    (found,) = causes(table)
    assert found.text in SENTENCES
    assert (found.kind, found.file, found.n, found.strength) == ("thermal", "gpu_telemetry.csv", 20, 0.25)
    assert found.numbers["sm_clock_free_mhz"] == 1800.0 and found.numbers["held_ratio"] == 0.25 and found.numbers["gpus"] == 1


def test_what_is_unknown_is_left_out() -> None:
    (found,) = causes(rows(*["hw_slowdown"] * 20))
    assert found.kind == "throttling" and found.text in SENTENCES


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("hw_slowdown", "throttling"),
        ("sw_power_cap", "power_cap"),
        ("hw_power_brake_slowdown+hw_slowdown", "power_cap"),
        ("hw_slowdown+hw_thermal_slowdown", "thermal"),
        ("sw_power_cap+sw_thermal_slowdown", "thermal"),
    ],
)
def test_the_particular_word_counts(reason: str, kind: str) -> None:
    (found,) = causes(rows(*[reason] * 20))
    assert found.kind == kind and found.numbers["reasons"] == "+".join(sorted(reason.split("+")))


@pytest.mark.parametrize(
    ("reason", "count", "is_cause"), [("sw_thermal_slowdown", 1, True), ("sw_power_cap", 3, False), ("sw_power_cap", 4, True)]
)
def test_a_healthy_card_touches_its_power_limit_now_and_then_and_is_never_too_hot(reason: str, count: int, is_cause: bool) -> None:
    assert bool(causes(rows(*[reason] * count, *[""] * (20 - count)))) is is_cause


def test_of_few_samples_nothing_is_found() -> None:
    assert causes(rows(*["sw_thermal_slowdown"] * (MIN_CLOCK_SAMPLES - 1))) == []
    assert len(causes(rows(*["sw_thermal_slowdown"] * MIN_CLOCK_SAMPLES))) == 1


def test_the_gpu_that_shows_it_most_represents_all() -> None:
    table = rows(*["sw_thermal_slowdown"] * 10, *["sw_thermal_slowdown"] * 5, *[""] * 5, *[""] * 10)
    (found,) = causes(table, [1.0] * 10 + [0.0] * 10 + [2.0] * 10)
    assert found.text in SENTENCES
    assert found.numbers["gpus"] == 2 and found.n == 10
    (named,) = causes(table, [float(GPUS_A_HOST)] * 10 + [0.0] * 20, hosts=("node1", "node2"))
    assert named.numbers["gpu"] == "node2:0"


@pytest.mark.parametrize(
    ("power_w", "limit_w", "words"),
    [
        (359.0, 400.0, "the node or the rack limits it"),
        (360.0, 400.0, "Raise the limit where it is below the GPU's default"),
        (None, 400.0, "Raise the limit"),
        (100.0, None, "Raise the limit"),
    ],
)
def test_what_to_do_about_power(power_w: float | None, limit_w: float | None, words: str) -> None:
    (found,) = causes(rows(*["sw_power_cap"] * 20, power_w=[power_w] * 20, power_limit_w=[limit_w] * 20))
    assert words in found.text and found.strength == 0.5


def test_several_kinds_are_several_causes_the_gravest_first() -> None:
    found = causes(rows(*["hw_slowdown"] * 10, *["sw_power_cap"] * 5, *["sw_thermal_slowdown"] * 5))
    assert [cause.kind for cause in found] == ["thermal", "power_cap", "throttling"]


COUNT = 60


def some(word: str, count: int, of: int = COUNT) -> list[str]:
    return [word] * count + [""] * (of - count)


@pytest.mark.parametrize("words", ["hw_slowdown+hw_thermal_slowdown", "sw_power_cap+sw_thermal_slowdown"])
def test_heat_is_heat_whatever_other_reason_is_set(words: str) -> None:
    found = causes_test_uneven(gpu=gpus(*(gpu_rows(index, reasons=some(words, 12), temp_c=91.0) for index in range(3))))
    assert list(found) == ["thermal"]
    assert found["thermal"].text in SENTENCES


def in_turns(count: int = COUNT, period: int = 6) -> tuple[pl.DataFrame, pl.DataFrame]:
    first = np.where(np.arange(count) // period % 2 == 0, 98.0, 4.0)
    return gpu_rows(0, count, util_gpu_pct=first), gpu_rows(1, count, util_gpu_pct=102.0 - first)


def test_gpus_that_work_in_turns() -> None:
    found = causes_test_uneven(gpu=gpus(*in_turns()))
    assert list(found) == ["anti_correlated_gpus"]
    numbers = found["anti_correlated_gpus"].numbers
    assert numbers["rank_correlation"] == pytest.approx(-1.0) and numbers["extreme_imbalance_ratio"] == 1.0
    assert numbers["gpu_util_gap_mean_pct"] == pytest.approx(94.0)
    assert found["anti_correlated_gpus"].text in SENTENCES


def test_turns_without_extremes_are_found_among_eight() -> None:
    rng = np.random.default_rng(4)
    swing = np.repeat(rng.uniform(-35, 35, 75), 4)
    busy = [gpu_rows(index, 300) for index in range(6)]
    pair = [gpu_rows(6 + place, 300, util_gpu_pct=50 + way * swing + rng.normal(0, 5, 300)) for place, way in enumerate((1, -1))]
    numbers = causes_test_uneven(gpu=gpus(*busy, *pair), steps=None)
    # Two ranks, eight GPUs, all of them at work.
    assert (numbers["anti_correlated_gpus"].numbers["gpu_a"], numbers["anti_correlated_gpus"].numbers["gpu_b"]) == (6, 7)


def test_gpus_that_swing_each_for_itself_are_rarely_taken_for_turns() -> None:
    false_alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        # Each level lasts for five samples, as phases of a loader do.
        parts = [gpu_rows(index, 100, util_gpu_pct=np.repeat(rng.uniform(20, 85, 20), 5)) for index in range(2)]
        false_alarms += bool(list(gpu_causes(gpus(*parts), WindowSpan(), 2)))
    assert false_alarms == 0


def test_gpus_that_swing_together_are_no_cause() -> None:
    together = np.where(np.arange(COUNT) // 6 % 2 == 0, 98.0, 40.0)
    assert causes_test_uneven(gpu=gpus(*(gpu_rows(index, util_gpu_pct=together) for index in range(2)))) == {}


def test_a_gpu_that_idles_while_another_works() -> None:
    idle = gpu_rows(1, util_gpu_pct=0.0)
    found = causes_test_uneven(gpu=gpus(gpu_rows(0), idle))
    assert list(found) == ["gpu_imbalance"] and found["gpu_imbalance"].text in SENTENCES
    assert list(gpu_causes(gpus(gpu_rows(0), idle), WindowSpan(), 1)) == [], "no rank was to work on it"


def test_samples_of_a_gpu_that_was_lost_for_a_while_are_matched_with_the_right_ones() -> None:
    first, second = in_turns()
    lost = pl.concat((second.head(20), second.tail(25)))
    assert causes_test_uneven(gpu=gpus(first, lost))["anti_correlated_gpus"].n == 45
