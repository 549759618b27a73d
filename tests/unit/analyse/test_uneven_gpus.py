"""GPUs that are held back, or that do not work together."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.uneven_gpus import gpu_causes
from seatrial.analyse.uneven_span import Span
from tests.unit.analyse.test_uneven import causes, gpu_rows, gpus

COUNT = 60


def some(word: str, count: int, of: int = COUNT) -> list[str]:
    return [word] * count + [""] * (of - count)


def test_power_cap_at_the_limit() -> None:
    found = causes(gpu=gpus(gpu_rows(0), gpu_rows(1, reasons=some("sw_power_cap", 45), power_w=695.0, sm_clock_mhz=1700.0)))
    assert list(found) == ["power_cap"]
    cause = found["power_cap"]
    assert "GPU 1 was held back (sw_power_cap) in 75% of 60 samples" in cause.text and "695 W of 700 W, 1700 MHz" in cause.text
    assert "under the same limit" in cause.text and cause.numbers["held_ratio"] == 0.75


def test_power_cap_far_below_the_limit_is_set_elsewhere() -> None:
    cause = causes(gpu=gpus(gpu_rows(0, reasons=some("sw_power_cap", 60), power_w=400.0)))["power_cap"]
    assert "the node or the rack limits it" in cause.text


def test_a_card_that_touches_its_limit_now_and_then_is_healthy() -> None:
    assert causes(gpu=gpus(gpu_rows(0, reasons=some("sw_power_cap", 6), power_w=695.0))) == {}


@pytest.mark.parametrize("words", ["hw_slowdown+hw_thermal_slowdown", "sw_power_cap+sw_thermal_slowdown"])
def test_heat_is_heat_whatever_else_is_said_beside_it(words: str) -> None:
    found = causes(gpu=gpus(*(gpu_rows(index, reasons=some(words, 12), temp_c=91.0) for index in range(3))))
    assert list(found) == ["thermal"]
    assert "91 °C" in found["thermal"].text and "and so were 2 more" in found["thermal"].text


def test_other_reasons_are_throttling_and_chosen_clocks_are_none() -> None:
    assert list(causes(gpu=gpus(gpu_rows(0, reasons=some("hw_slowdown", 20))))) == ["throttling"]
    assert causes(gpu=gpus(gpu_rows(0, reasons=some("applications_clocks_setting", 60)))) == {}


def test_the_stronger_cause_stands_first() -> None:
    words = [*some("sw_thermal_slowdown", 30, 30), *some("sw_power_cap", 30, 30)]
    assert list(causes(gpu=gpus(gpu_rows(0, reasons=words)))) == ["thermal", "power_cap"]


def test_few_samples_name_nothing() -> None:
    short = gpu_rows(0, 8, reasons=["hw_thermal_slowdown"] * 8)
    assert list(gpu_causes(short, Span(), 1)) == []


def in_turns(count: int = COUNT, period: int = 6) -> tuple[pl.DataFrame, pl.DataFrame]:
    first = np.where(np.arange(count) // period % 2 == 0, 98.0, 4.0)
    return gpu_rows(0, count, util_gpu_pct=first), gpu_rows(1, count, util_gpu_pct=102.0 - first)


def test_gpus_that_work_in_turns() -> None:
    found = causes(gpu=gpus(*in_turns()))
    assert list(found) == ["anti_correlated_gpus"]
    numbers = found["anti_correlated_gpus"].numbers
    assert numbers["rank_correlation"] == pytest.approx(-1.0) and numbers["extreme_imbalance_ratio"] == 1.0
    assert numbers["gpu_util_gap_mean_pct"] == pytest.approx(94.0)
    assert "GPU 0 and GPU 1 work in turns" in found["anti_correlated_gpus"].text and "n = 60 samples" in found["anti_correlated_gpus"].text


def test_turns_without_extremes_are_found_among_eight() -> None:
    rng = np.random.default_rng(4)
    swing = np.repeat(rng.uniform(-35, 35, 75), 4)
    busy = [gpu_rows(index, 300) for index in range(6)]
    pair = [gpu_rows(6 + place, 300, util_gpu_pct=50 + way * swing + rng.normal(0, 5, 300)) for place, way in enumerate((1, -1))]
    numbers = causes(gpu=gpus(*busy, *pair), steps=None)
    # Two ranks, eight GPUs, all of them at work.
    assert (numbers["anti_correlated_gpus"].numbers["gpu_a"], numbers["anti_correlated_gpus"].numbers["gpu_b"]) == (6, 7)


def test_gpus_that_swing_each_for_itself_are_rarely_taken_for_turns() -> None:
    false_alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        # Each level lasts for five samples, as phases of a loader do.
        parts = [gpu_rows(index, 100, util_gpu_pct=np.repeat(rng.uniform(20, 85, 20), 5)) for index in range(2)]
        false_alarms += bool(list(gpu_causes(gpus(*parts), Span(), 2)))
    assert false_alarms == 0


def test_gpus_that_swing_together_are_no_cause() -> None:
    together = np.where(np.arange(COUNT) // 6 % 2 == 0, 98.0, 40.0)
    assert causes(gpu=gpus(*(gpu_rows(index, util_gpu_pct=together) for index in range(2)))) == {}


def test_a_gpu_that_idles_while_another_works() -> None:
    idle = gpu_rows(1, util_gpu_pct=0.0)
    found = causes(gpu=gpus(gpu_rows(0), idle))
    assert list(found) == ["gpu_imbalance"] and "GPU 1 was at 0 % in the mean while GPU 0 was at" in found["gpu_imbalance"].text
    assert list(gpu_causes(gpus(gpu_rows(0), idle), Span(), 1)) == [], "no rank was to work on it"


def test_samples_of_a_gpu_that_was_lost_for_a_while_are_laid_beside_the_right_ones() -> None:
    first, second = in_turns()
    lost = pl.concat((second.head(20), second.tail(25)))
    assert causes(gpu=gpus(first, lost))["anti_correlated_gpus"].n == 45
