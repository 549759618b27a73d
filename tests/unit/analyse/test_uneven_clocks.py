"""GPUs whose clocks were held back: by power, by heat, by something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.uneven_clocks import LEAST_SAMPLES, clock_causes
from seatrial.analyse.uneven_span import Span
from seatrial.records.health import UnevenCause
from seatrial.records.telemetry import GPUS_A_HOST


def rows(*reasons: str | None, **columns: list[float | None]) -> pl.DataFrame:
    return pl.DataFrame({"throttle_reasons": list(reasons), **columns}, schema_overrides={"throttle_reasons": pl.String})


def causes(table: pl.DataFrame, gpu: list[float] | None = None, **changes: Any) -> list[UnevenCause]:
    index = np.zeros(len(table)) if gpu is None else np.array(gpu, dtype=np.float64)
    return list(clock_causes(table, index, Span(), **changes))


def test_no_reasons_no_causes() -> None:
    assert (
        causes(pl.DataFrame({"power_w": [1.0] * 20}))
        == []
        == causes(rows(*[None] * 20))
        == causes(rows(*["applications_clocks_setting"] * 20))
    )
    assert causes(rows(*["sw_thermal_slowdown"] * 20), [float("nan")] * 20) == []


def test_heat_is_told_with_what_was_seen_meanwhile() -> None:
    table = rows(
        *["sw_thermal_slowdown"] * 5,
        *["none"] * 0,
        *[""] * 15,
        temp_c=[90.0] * 5 + [60.0] * 15,
        power_w=[200.0] * 5 + [300.0] * 15,
        power_limit_w=[400.0] * 20,
        sm_clock_mhz=[1000.0] * 5 + [1800.0] * 15,
    )
    (found,) = causes(table)
    assert found.text == (
        "GPU 0 was held back (sw_thermal_slowdown) in 25% of 20 samples (the whole run); meanwhile in the mean 90 °C, 200 W of 400 W, "
        "1000 MHz (1800 MHz else). Look after its cooling (fans, air flow, the air it takes in) and run again."
    )
    assert (found.kind, found.file, found.n, found.strength) == ("thermal", "gpu_telemetry.csv", 20, 0.25)
    assert found.numbers["sm_clock_free_mhz"] == 1800.0 and found.numbers["held_ratio"] == 0.25 and found.numbers["gpus"] == 1


def test_what_was_not_told_is_left_out() -> None:
    (found,) = causes(rows(*["hw_slowdown"] * 20))
    assert found.kind == "throttling" and "meanwhile in the mean nothing more was told. `nvidia-smi -q -d PERFORMANCE`" in found.text
    (found,) = causes(rows(*["hw_slowdown"] * 20, power_limit_w=[400.0] * 20, temp_c=[50.0] * 20))
    assert "in the mean 50 °C. `" in found.text, "a limit without a power says nothing"


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
    ("reason", "held", "said"), [("sw_thermal_slowdown", 1, True), ("sw_power_cap", 3, False), ("sw_power_cap", 4, True)]
)
def test_a_healthy_card_touches_its_power_limit_now_and_then_and_is_never_too_hot(reason: str, held: int, said: bool) -> None:
    assert bool(causes(rows(*[reason] * held, *[""] * (20 - held)))) is said


def test_of_few_samples_nothing_is_said() -> None:
    assert causes(rows(*["sw_thermal_slowdown"] * (LEAST_SAMPLES - 1))) == []
    assert len(causes(rows(*["sw_thermal_slowdown"] * LEAST_SAMPLES))) == 1


def test_the_gpu_that_shows_it_most_stands_for_all() -> None:
    table = rows(*["sw_thermal_slowdown"] * 10, *["sw_thermal_slowdown"] * 5, *[""] * 5, *[""] * 10)
    (found,) = causes(table, [1.0] * 10 + [0.0] * 10 + [2.0] * 10)
    assert found.text.startswith("GPU 1 was held back (sw_thermal_slowdown) in 100% of 10 samples (the whole run), and so were 1 more;")
    assert found.numbers["gpus"] == 2 and found.n == 10
    (named,) = causes(table, [float(GPUS_A_HOST)] * 10 + [0.0] * 20, hosts=("node1", "node2"))
    assert named.numbers["gpu"] == "node2:0"


@pytest.mark.parametrize(
    ("power_w", "limit_w", "words"),
    [
        (359.0, 400.0, "the node or the rack limits it"),
        (360.0, 400.0, "Raise the limit where it is below the card's default"),
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
