"""Samples as series: from the launch on, each thinned by itself, no peak lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.charts.telemetry import MOST_HOSTS, WHOLE_SERIES, telemetry_series, telemetry_table
from seatrial.records.charts import DRAWN_GPU, DRAWN_HOST
from seatrial.records.telemetry import HOST_INDEX, TelemetryTables

T = 1_794_700_000.0


def gpu_table(count: int, gpus: int = 1, **columns: Any) -> pl.DataFrame:
    rows = [(T + at, float(index)) for at in range(count) for index in range(gpus)]
    data = {"epoch_sec": [at for at, _ in rows], "gpu_index": [index for _, index in rows]}
    data |= {name: [value(round(at - T), int(index)) for at, index in rows] for name, value in columns.items()}
    return pl.DataFrame(data, schema_overrides=dict.fromkeys(columns, pl.Float64))


def series(table: dict[str, list[Any]], source: str, metric: str) -> list[tuple[float, float]]:
    rows = zip(*table.values(), strict=True)
    return [(t, value) for found, name, t, value in rows if (found, name) == (source, metric)]


def test_every_peak_stays_and_columns_that_are_not_there_give_no_rows() -> None:
    gpu = gpu_table(1000, power_w=lambda at, _: 700.0 if at == 417 else 300.0 + at % 5, temp_c=lambda at, _: None if at % 2 else 50.0)
    table = telemetry_table(TelemetryTables(gpu=gpu), T, 20)
    power = series(table, "gpu 0", "power_w")
    assert len(power) <= 20
    assert (417.0, 700.0) in power
    assert power[0][0] == 0.0
    assert power[-1][0] == 999.0
    assert {t % 2 for t, _ in series(table, "gpu 0", "temp_c")} == {0.0}
    assert set(table["metric"]) == {"power_w", "temp_c"}


def test_samples_before_the_launch_are_another_run() -> None:
    host = pl.DataFrame({"epoch_sec": [T - 3.0, T + 1.0], "rss_kib": [9.0, 5.0], "load1": [1.0, 1.0]})
    table = telemetry_table(TelemetryTables(host=host), T, 20)
    assert table == {"source": ["host"], "metric": ["rss_kib"], "t_s": [1.0], "value": [5.0]}
    assert telemetry_table(TelemetryTables(host=host), T + 60, 20) == {}
    assert telemetry_table(TelemetryTables(host=host), None, 20) == {}
    gpu = gpu_table(5, 2, power_w=lambda at, index: float(10 * at + index))
    table = telemetry_table(TelemetryTables(gpu=gpu), T + 3, 20)
    assert series(table, "gpu 0", "power_w") == [(0.0, 30.0), (1.0, 40.0)]
    assert series(table, "gpu 1", "power_w") == [(0.0, 31.0), (1.0, 41.0)]


@pytest.mark.parametrize("gpus", [1, 2, 8, 64])
@pytest.mark.parametrize("most", [8, 400])
def test_many_gpus_share_what_two_have(gpus: int, most: int) -> None:
    names = dict.fromkeys(DRAWN_GPU, lambda at, index: float(at * 7 % 13 + (500 if index == gpus - 1 else 0)))
    host = gpu_table(300, **dict.fromkeys(DRAWN_HOST, lambda at, _: float(at % 7))).drop("gpu_index")
    table = telemetry_table(TelemetryTables(gpu=gpu_table(300, gpus, **names), host=host), T, most)
    assert len(table["value"]) <= WHOLE_SERIES * most
    # The one that is unlike the others is drawn in any case.
    assert f"gpu {gpus - 1}" in table["source"]
    assert "host" in table["source"]
    if gpus <= 2:
        assert len(series(table, "gpu 0", "power_w")) > most // 2


@pytest.mark.parametrize("gpus", [8, 64])
@pytest.mark.parametrize("most", [5, 8, 9, 10, 60])
def test_no_extreme_of_a_run_is_lost_with_the_gpus_that_are_not_drawn(gpus: int, most: int) -> None:
    chance = np.random.default_rng(gpus)
    made = {metric: chance.uniform(0, 1000, (300, gpus)) for metric in DRAWN_GPU}
    made["power_w"][123, 4] = 1234.5
    columns = {metric: (lambda at, index, values=values: float(values[at, index])) for metric, values in made.items()}
    found = telemetry_series(TelemetryTables(gpu=gpu_table(300, gpus, **columns)), T, most)
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
    found = telemetry_series(TelemetryTables(gpu=gpu), T + 1, 8)
    assert max(found.table["value"]) == 100.0
    assert "gpu 40" in found.table["source"]
    # Beside the drawn ones nothing but the one that has the lowest value, and only if none of them has it.
    assert len(set(found.table["source"])) == found.gpus_drawn == 3
    assert found.gpus == 64


def test_few_gpus_are_all_drawn_and_none_is_none() -> None:
    found = telemetry_series(TelemetryTables(gpu=gpu_table(30, 2, power_w=lambda at, index: float(at + index))), T, 8)
    assert (found.gpus, found.gpus_drawn) == (2, 2)
    assert telemetry_series(TelemetryTables(), T, 8).table == {}
    assert telemetry_series(TelemetryTables(), T, 8).gpus == 0


def test_of_many_hosts_the_first_and_those_apart_in_some_metric_are_drawn() -> None:
    """Node 5 is in the middle of all by memory, whose numbers are the largest, and apart by its processors alone."""
    names = tuple(f"node{at}" for at in range(12))
    rows = [(T + second, at, 1e6 * at, 90.0 if at == 5 else 10.0) for at in range(12) for second in range(3)]
    host = pl.DataFrame(rows, schema=["epoch_sec", HOST_INDEX, "rss_kib", "cpu_user_pct"], orient="row")
    found = telemetry_series(TelemetryTables(host=host, hosts=names), T, 20)
    assert (found.hosts, found.hosts_drawn) == (12, MOST_HOSTS)
    assert list(by_source(found.table)) == [f"host node{at}" for at in (0, 1, 2, 3, 5, 9, 10, 11)]
