"""When something held a GPU's clocks back."""

from __future__ import annotations

import polars as pl

from seatrial.analyse.charts.throttled import LONGEST_REASON, throttled_spans
from seatrial.records.telemetry import GPUS_A_HOST


def gpu(*samples: tuple[float, int, str | None]) -> pl.DataFrame:
    schema = {"epoch_sec": pl.Float64, "gpu_index": pl.Int64, "throttle_reasons": pl.String}
    return pl.DataFrame(list(samples), schema=schema, orient="row")


def test_samples_that_say_the_same_are_one_span_until_the_next_sample() -> None:
    table = gpu((100.0, 0, None), (101.0, 0, "heat"), (102.0, 0, "heat"), (103.0, 0, "power"), (104.0, 0, ""))
    assert throttled_spans(table, 100.0, 10) == [("gpu 0", "throttled heat", 1.0, 3.0), ("gpu 0", "throttled power", 3.0, 4.0)]


def test_the_last_sample_holds_for_an_interval() -> None:
    assert throttled_spans(gpu((10.0, 0, ""), (12.0, 0, "heat")), 0.0, 10) == [("gpu 0", "throttled heat", 12.0, 14.0)]
    assert throttled_spans(gpu((10.0, 0, "heat")), 0.0, 10) == [("gpu 0", "throttled heat", 10.0, 11.0)]


def test_after_a_long_silence_nothing_is_known_of_the_time_in_between() -> None:
    table = gpu((0.0, 0, "heat"), (1.0, 0, "heat"), (2.0, 0, "heat"), (10.0, 0, "heat"), (11.0, 0, "heat"))
    assert throttled_spans(table, 0.0, 10) == [("gpu 0", "throttled heat", 0.0, 3.0), ("gpu 0", "throttled heat", 10.0, 12.0)]


def test_clocks_that_somebody_set_are_no_throttling() -> None:
    assert throttled_spans(gpu((0.0, 0, "applications_clocks_setting")), 0.0, 10) == []
    assert throttled_spans(gpu((0.0, 0, "heat+applications_clocks_setting")), 0.0, 10)[0][1] == "throttled heat"
    assert throttled_spans(pl.DataFrame({"gpu_index": [0]}), 0.0, 10) == []


def test_each_gpu_has_its_own_spans_by_its_own_name() -> None:
    table = gpu((0.0, 0, "heat"), (0.0, GPUS_A_HOST, ""), (1.0, 0, ""), (1.0, GPUS_A_HOST, "heat"))
    assert [row[0] for row in throttled_spans(table, 0.0, 10, ("a", "b"))] == ["gpu a:0", "gpu b:0"]


def test_a_long_word_is_cut_and_of_many_spans_the_longest_stay() -> None:
    assert len(throttled_spans(gpu((0.0, 0, "x" * 500)), 0.0, 10)[0][1]) == len("throttled ") + LONGEST_REASON
    samples = [(float(at), 0, "heat" if at % 2 or at in (20, 22) else "") for at in range(40)]
    found = throttled_spans(gpu(*samples), 0.0, 1)
    assert len(found) < 10 and ("gpu 0", "throttled heat", 19.0, 24.0) in found
