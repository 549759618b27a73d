"""Times of the window in which nobody looked at the machine."""

from __future__ import annotations

import polars as pl
import pytest

from seatrial.analyse.uneven_gaps import LEAST_INTERVALS, WEIGHT, gap_causes
from seatrial.analyse.uneven_span import Span
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount, TelemetryTables

ACCOUNT = TelemetryAccount(gpu=SamplerAccount(interval_s=1.0), host=SamplerAccount(interval_s=2.0))


def looks(*at: float) -> pl.DataFrame:
    return pl.DataFrame({"epoch_sec": list(at)}, schema={"epoch_sec": pl.Float64})


def causes(samples: TelemetryTables, span: Span, account: TelemetryAccount = ACCOUNT) -> list:
    return list(gap_causes(samples, account, span))


def test_a_sampler_that_came_late_is_told_with_what_it_missed() -> None:
    # 0 to 20 s, with nothing between 10 and 15: one interval of the five seconds is as it should be.
    table = looks(*range(11), *range(15, 21))
    (found,) = causes(TelemetryTables(gpu=table), Span(first_t=0.0, last_t=20.0))
    assert found.kind == "telemetry_gaps" and found.file == "gpu_telemetry.csv" and found.window == "the whole run"
    assert found.numbers == {"gaps": 1, "longest_s": 5.0, "lost_ratio": 0.2, "interval_s": 1.0}
    assert found.text.startswith("GPU telemetry has a gap in the whole run, the longest of 5.0 s at an interval of 1 s: 20% of 20 s")
    assert found.n == 18 and found.strength == pytest.approx(WEIGHT * 0.2)


def test_what_lies_before_the_first_look_or_after_the_last_was_not_seen_either() -> None:
    (found,) = causes(TelemetryTables(gpu=looks(*range(5, 16))), Span(first_t=0.0, last_t=20.0))
    assert found.numbers["gaps"] == 2 and "has 2 gaps in" in found.text and found.numbers["longest_s"] == 5.0
    assert causes(TelemetryTables(gpu=looks(*range(5, 16))), Span()) == [], "of a window that is not known the ends are not either"


def test_no_look_at_all_is_one_gap() -> None:
    (found,) = causes(TelemetryTables(gpu=looks()), Span(first_t=0.0, last_t=20.0))
    assert found.numbers["lost_ratio"] == pytest.approx(0.95) and found.n == 1


@pytest.mark.parametrize(
    ("samples", "span"),
    [
        (TelemetryTables(), Span(first_t=0.0, last_t=20.0)),
        (TelemetryTables(gpu=looks(*range(0, 21, 2))), Span(first_t=0.0, last_t=20.0)),
        (TelemetryTables(gpu=looks(0.0, 5.0)), Span(first_t=0.0, last_t=LEAST_INTERVALS - 0.5)),
        (TelemetryTables(gpu=looks(*range(98), 100)), Span(first_t=0.0, last_t=100.0)),
    ],
)
def test_nothing_of_no_table_of_two_intervals_of_a_short_window_and_of_little_lost(samples: TelemetryTables, span: Span) -> None:
    assert causes(samples, span) == []


def test_the_least_window_and_the_least_loss_are_told() -> None:
    assert len(causes(TelemetryTables(gpu=looks(0.0, 4.0)), Span(first_t=0.0, last_t=float(LEAST_INTERVALS)))) == 1
    # 2.5 s late in 30 s of a window, of which one interval is as it should be: 1.5 s, one in twenty.
    every = [at / 2 for at in range(51)] + [27.5, 28.0, 28.5, 29.0, 29.5, 30.0]
    (found,) = causes(TelemetryTables(gpu=looks(*every)), Span(first_t=0.0, last_t=30.0))
    assert found.numbers["lost_ratio"] == 0.05


def test_the_worse_of_two_samplers_and_none_that_does_not_tell_its_interval() -> None:
    both = TelemetryTables(gpu=looks(*range(11), *range(15, 21)), host=looks(0.0, 20.0))
    (found,) = causes(both, Span(first_t=0.0, last_t=20.0))
    assert found.file == "host_telemetry.csv" and found.text.startswith("host telemetry")
    assert causes(both, Span(first_t=0.0, last_t=20.0), TelemetryAccount(gpu=SamplerAccount(interval_s=0.0))) == []
