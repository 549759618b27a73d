"""Samples as series: from the launch on, each thinned by itself, no peak lost."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from seatrial.analyse.charts.telemetry import WHOLE_SERIES, telemetry_table
from seatrial.records.charts import DRAWN_GPU, DRAWN_HOST
from seatrial.records.telemetry import TelemetryTables

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
