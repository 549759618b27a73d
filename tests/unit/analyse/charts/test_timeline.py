"""Spans and telemetry series of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.charts.run_charts import run_charts
from seatrial.analyse.charts.timeline import (
    LONGEST_REASON,
    MAX_HOSTS,
    MAX_PAUSES,
    WHOLE_SERIES,
    Interval,
    pieces,
    telemetry_series,
    throttled_spans,
)
from seatrial.records.attempt import StartupFacts, StepTables
from seatrial.records.columns import DRAWN_GPU, DRAWN_HOST, Detail
from seatrial.records.telemetry import GPUS_A_HOST, HOST_INDEX, TelemetryTables
from tests.unit.analyse import factory

T = factory.STARTED_T
MANY = Detail(steps=1500, telemetry=400, eta=150)
# The first step of 400 ms ends 5.4 s after launch, at 100.4 on the monotonic clock.
STEPS = factory.steps_of([400.0, 100.0, 100.0, 100.0])


def spans(tables: StepTables, *, gpu: pl.DataFrame | None = None, detail: Detail = MANY) -> list[tuple[Any, ...]]:
    table = run_charts(factory.attempt(), tables, TelemetryTables(gpu=gpu), None, detail).tables.get("spans", {})
    return [(source, name, round(begin, 6), round(end, 6)) for source, name, begin, end in zip(*table.values(), strict=True)]


def facts(*parts: tuple[str, float, float], **changes: Any) -> StartupFacts:
    return StartupFacts(**{"rank": 0, "start_t": T + 2.0, "process_t": T + 1.25, "spans": parts, **changes})


def test_the_start_up_from_launch_on_under_the_names_of_a_timeline() -> None:
    startup = facts(("process_group", 0.5, 97.5), ("model", 1.0, 98.5), ("data", 0.25, 99.0), ("tokenise", 0.5, 99.75))
    assert spans(factory.tables(STEPS, startup=startup)) == [
        ("rank 0", "launch", 0.0, 1.25),
        ("rank 0", "import", 1.25, 2.0),
        ("rank 0", "process_group", 2.0, 2.5),
        ("rank 0", "load model", 2.5, 3.5),
        ("rank 0", "load data", 3.75, 4.0),
        ("rank 0", "tokenise", 4.25, 4.75),
        ("rank 0", "train", 5.0, 5.7),
    ]


def test_a_run_that_ended_before_its_first_step_shows_how_far_it_came() -> None:
    # The probe began 2 s after launch, at 97 on the monotonic clock.
    startup = facts(("process_group", 0.5, 97.75), ("model", 1.0, 99.0), start_m=97.0)
    assert spans(factory.tables(startup=startup)) == [
        ("rank 0", "launch", 0.0, 1.25),
        ("rank 0", "import", 1.25, 2.0),
        ("rank 0", "process_group", 2.25, 2.75),
        ("rank 0", "load model", 3.0, 4.0),
    ]
    assert [row[1] for row in spans(factory.tables(startup=facts(("model", 1.0, 99.0))))] == ["launch", "import"]


def test_a_row_of_several_steps_begins_with_the_first_of_them() -> None:
    # Lines at every tenth step, of 100 ms each; a checkpoint of 2 s before the second of them.
    steps = factory.steps_of([100.0] * 3, step=[9, 19, 29], span=10, t=[T + 6.0, T + 9.0, T + 10.0], m=[101.0, 104.0, 105.0])
    pauses = factory.pauses_of((0, 15, "checkpoint", 2000.0))
    assert [row[1:] for row in spans(factory.tables(steps, pauses=pauses))] == [
        ("train", 5.0, 6.0),
        ("save", 6.0, 8.0),
        ("train", 8.0, 10.0),
    ]


def test_parts_are_left_out_where_no_moment_is_known_by_both_clocks() -> None:
    unclocked = STEPS.with_columns(m=pl.lit(None, dtype=pl.Float64))
    assert [row[1] for row in spans(factory.tables(unclocked, startup=facts(("model", 1.0, 98.5))))] == ["launch", "import", "train"]


def test_a_part_inside_another_cuts_it_in_two() -> None:
    startup = facts(("process_group", 0.5, 97.5), ("model", 1.0, 98.0))
    assert [row[1:] for row in spans(factory.tables(STEPS, startup=startup))[2:5]] == [
        ("load model", 1.5, 2.0),
        ("process_group", 2.0, 2.5),
        ("load model", 2.5, 3.0),
    ]


def test_a_compiler_in_the_first_step_is_no_training() -> None:
    startup = facts(("compile", 0.3, 100.35), process_t=None)
    assert [row[1:] for row in spans(factory.tables(STEPS, startup=startup))] == [
        ("train", 5.0, 5.05),
        ("compile", 5.05, 5.35),
        ("train", 5.35, 5.7),
    ]


def test_a_pause_that_was_a_part_of_the_start_up_is_drawn_once() -> None:
    startup = facts(("compile", 0.3, 99.9), process_t=None)
    tables = factory.tables(STEPS, startup=startup, pauses=factory.pauses_of((0, 0, "compile", 300.0)))
    assert [row[1] for row in spans(tables)] == ["compile", "train"]


def test_the_start_up_of_the_slowest_rank_stands_beside_the_training_of_the_first() -> None:
    slow = factory.steps_of([900.0, 50.0], rank=1)
    startup = facts(("model", 1.0, 98.5), rank=1)
    assert {row[0] for row in spans(factory.tables(STEPS, slow, startup=startup))} == {"rank 0", "rank 1"}


def test_pauses_lie_before_the_step_they_ended_in_and_one_after_the_last_behind_it() -> None:
    # Steps 0 and 1, then an eval of 1 s and a checkpoint of 2 s, step 2, and at last a checkpoint of 0.5 s.
    steps = factory.steps_of([400.0, 100.0, 100.0], t=[T + 5.4, T + 5.5, T + 8.6], m=[100.4, 100.5, 103.6])
    pauses = factory.pauses_of((0, 2, "eval", 1000.0), (0, 2, "checkpoint", 2000.0), (0, 3, "checkpoint", 500.0), (1, 2, "other", 9.0))
    assert [row[1:] for row in spans(factory.tables(steps, pauses=pauses))] == [
        ("train", 5.0, 5.5),
        ("eval", 5.5, 6.5),
        ("save", 6.5, 8.5),
        ("train", 8.5, 8.6),
        ("save", 8.6, 9.1),
    ]


def test_a_pause_whose_length_is_not_known_is_not_drawn() -> None:
    pauses = pl.DataFrame([(0, 2, "eval", None)], schema=factory.PAUSE_SCHEMA, orient="row")
    assert [row[1] for row in spans(factory.tables(STEPS, pauses=pauses))] == ["train"]


def test_of_very_many_pauses_the_longest_stay() -> None:
    count = 3000
    steps = factory.steps_of([100.0] * count, t=[T + 5 + step for step in range(count)])
    pauses = factory.pauses_of(*((0, step, "eval", 800.0 if step == 1234 else 500.0) for step in range(1, count)))
    for detail, most in ((MANY, MAX_PAUSES), (Detail(steps=120, telemetry=8, eta=10), 10), (Detail(steps=120, telemetry=30, eta=10), 30)):
        found = [row for row in spans(factory.tables(steps, pauses=pauses), detail=detail) if row[1] == "eval"]
        assert most // 2 < len(found) <= most
        assert max(end - begin for _, _, begin, end in found) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("holes", "left"),
    [
        ([], [(0, 10)]),
        ([(2, 3), (5, 6)], [(0, 2), (3, 5), (6, 10)]),
        ([(5, 6), (2, 5.5)], [(0, 2), (6, 10)]),
        ([(-5, 1), (9, 20)], [(1, 9)]),
        ([(-5, 20)], []),
        ([(11, 12), (-3, -1)], [(0, 10)]),
    ],
)
def test_pieces_between_holes(holes: list[tuple[float, float]], left: list[tuple[float, float]]) -> None:
    assert list(pieces(Interval(0, 10), [Interval(*hole) for hole in holes])) == left


def gpu(*samples: tuple[float, int, str | None]) -> pl.DataFrame:
    schema = {"epoch_sec": pl.Float64, "gpu_index": pl.Int64, "throttle_reasons": pl.String}
    return pl.DataFrame(list(samples), schema=schema, orient="row")


def test_samples_with_the_same_reason_are_one_span_until_the_next_sample() -> None:
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


SAMPLED_T = 1_794_700_000.0


def gpu_table(count: int, gpus: int = 1, **columns: Any) -> pl.DataFrame:
    rows = [(SAMPLED_T + at, float(index)) for at in range(count) for index in range(gpus)]
    data = {"epoch_sec": [at for at, _ in rows], "gpu_index": [index for _, index in rows]}
    data |= {name: [value(round(at - SAMPLED_T), int(index)) for at, index in rows] for name, value in columns.items()}
    return pl.DataFrame(data, schema_overrides=dict.fromkeys(columns, pl.Float64))


def series(table: dict[str, list[Any]], source: str, metric: str) -> list[tuple[float, float]]:
    rows = zip(*table.values(), strict=True)
    return [(t, value) for found, name, t, value in rows if (found, name) == (source, metric)]


def test_every_peak_stays_and_columns_that_are_not_there_give_no_rows() -> None:
    gpu = gpu_table(1000, power_w=lambda at, _: 700.0 if at == 417 else 300.0 + at % 5, temp_c=lambda at, _: None if at % 2 else 50.0)
    table = telemetry_series(TelemetryTables(gpu=gpu), SAMPLED_T, 20).table
    power = series(table, "gpu 0", "power_w")
    assert len(power) <= 20
    assert (417.0, 700.0) in power
    assert power[0][0] == 0.0
    assert power[-1][0] == 999.0
    assert {t % 2 for t, _ in series(table, "gpu 0", "temp_c")} == {0.0}
    assert set(table["metric"]) == {"power_w", "temp_c"}


def test_samples_before_the_launch_are_another_run() -> None:
    host = pl.DataFrame({"epoch_sec": [SAMPLED_T - 3.0, SAMPLED_T + 1.0], "rss_kib": [9.0, 5.0], "load1": [1.0, 1.0]})
    table = telemetry_series(TelemetryTables(host=host), SAMPLED_T, 20).table
    assert table == {"source": ["host"], "metric": ["rss_kib"], "t_s": [1.0], "value": [5.0]}
    assert telemetry_series(TelemetryTables(host=host), SAMPLED_T + 60, 20).table == {}
    assert telemetry_series(TelemetryTables(host=host), None, 20).table == {}
    gpu = gpu_table(5, 2, power_w=lambda at, index: float(10 * at + index))
    table = telemetry_series(TelemetryTables(gpu=gpu), SAMPLED_T + 3, 20).table
    assert series(table, "gpu 0", "power_w") == [(0.0, 30.0), (1.0, 40.0)]
    assert series(table, "gpu 1", "power_w") == [(0.0, 31.0), (1.0, 41.0)]


@pytest.mark.parametrize("gpus", [1, 2, 8, 64])
@pytest.mark.parametrize("most", [8, 400])
def test_many_gpus_share_what_two_have(gpus: int, most: int) -> None:
    names = dict.fromkeys(DRAWN_GPU, lambda at, index: float(at * 7 % 13 + (500 if index == gpus - 1 else 0)))
    host = gpu_table(300, **dict.fromkeys(DRAWN_HOST, lambda at, _: float(at % 7))).drop("gpu_index")
    found = telemetry_series(TelemetryTables(gpu=gpu_table(300, gpus, **names), host=host), SAMPLED_T, most)
    table = found.table
    assert len(table["value"]) <= WHOLE_SERIES * most
    # The one that is unlike the others is drawn in any case.
    assert f"gpu {gpus - 1}" in table["source"]
    assert "host" in table["source"]
    if gpus <= 2:
        assert (found.gpus, found.gpus_drawn) == (gpus, gpus)
        assert len(series(table, "gpu 0", "power_w")) > most // 2


@pytest.mark.parametrize("gpus", [8, 64])
@pytest.mark.parametrize("most", [5, 8, 9, 10, 60])
def test_no_extreme_of_a_run_is_lost_with_the_gpus_that_are_not_drawn(gpus: int, most: int) -> None:
    chance = np.random.default_rng(gpus)
    made = {metric: chance.uniform(0, 1000, (300, gpus)) for metric in DRAWN_GPU}
    made["power_w"][123, 4] = 1234.5
    columns = {metric: (lambda at, index, values=values: float(values[at, index])) for metric, values in made.items()}
    found = telemetry_series(TelemetryTables(gpu=gpu_table(300, gpus, **columns)), SAMPLED_T, most)
    assert (123.0, 1234.5) in series(found.table, "gpu 4", "power_w")
    for metric, values in made.items():
        drawn = [value for name, value in zip(found.table["metric"], found.table["value"], strict=True) if name == metric]
        assert (min(drawn), max(drawn)) == pytest.approx((values.min(), values.max()))
    assert len(found.table["value"]) <= WHOLE_SERIES * max(most, 8)
    # Those that are drawn have every metric, of the others there are some series.
    metrics = {source: len(set(names)) for source, names in by_source(found.table).items()}
    assert found.gpus == gpus
    assert found.gpus_drawn == sum(count == len(DRAWN_GPU) for count in metrics.values())
    assert all(len(series(found.table, source, metric)) >= 3 for source, names in by_source(found.table).items() for metric in names)


def by_source(table: dict[str, list[Any]]) -> dict[str, set[str]]:
    rows = list(zip(table["source"], table["metric"], strict=True))
    return {source: {metric for found, metric in rows if found == source} for source, _ in rows}


def test_a_gpu_that_comes_as_far_as_a_drawn_one_and_samples_before_the_launch_add_nothing() -> None:
    # All are at 100 once, GPU 7 is at 900 before the launch: only the one whose mean stands out must be drawn.
    gpu = gpu_table(
        50, 64, power_w=lambda at, index: 900.0 if (at, index) == (0, 7) else 100.0 if at in (0, 9, 30) else 50.0 + (index == 40)
    )
    found = telemetry_series(TelemetryTables(gpu=gpu), SAMPLED_T + 1, 8)
    assert max(found.table["value"]) == 100.0
    assert "gpu 40" in found.table["source"]
    # Beside the drawn ones nothing but the one that has the lowest value, and only if none of them has it.
    assert len(set(found.table["source"])) == found.gpus_drawn == 3
    assert found.gpus == 64


def test_of_many_hosts_the_first_and_those_apart_in_some_metric_are_drawn() -> None:
    """Node 5 is in the middle of all by memory, whose numbers are the largest, and apart by its processors alone."""
    names = tuple(f"node{at}" for at in range(12))
    rows = [(SAMPLED_T + second, at, 1e6 * at, 90.0 if at == 5 else 10.0) for at in range(12) for second in range(3)]
    host = pl.DataFrame(rows, schema=["epoch_sec", HOST_INDEX, "rss_kib", "cpu_user_pct"], orient="row")
    found = telemetry_series(TelemetryTables(host=host, hosts=names), SAMPLED_T, 20)
    assert (found.hosts, found.hosts_drawn) == (12, MAX_HOSTS)
    assert list(by_source(found.table)) == [f"host node{at}" for at in (0, 1, 2, 3, 5, 9, 10, 11)]
