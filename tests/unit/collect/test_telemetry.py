"""Samples read back from disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from seatrial import files
from seatrial.collect.attempts import read_attempt
from seatrial.collect.telemetry import GPU_READ, HOST_READ, read_samples, read_telemetry
from seatrial.observe.row_file import RowFile
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, SamplerAccount, TelemetryAccount, TelemetryTables
from tests.unit.collect import on_disk

ACCOUNT = TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, rows=2), host=SamplerAccount(interval_s=2.0, rows=1, missing=("load1",)))


def _written(folder: Path) -> Path:
    file = RowFile(folder / "gpu_telemetry.csv", GPU_COLUMNS)
    file.append([{"epoch_sec": 10.5, "gpu_index": 0, "gpu_name": "H, 200", "power_w": 690.12, "throttle_reasons": "sw_power_cap"}])
    file.append([{"epoch_sec": 12.5, "gpu_index": 0, "power_w": None, "throttle_reasons": ""}])
    file.close()
    return folder / "gpu_telemetry.csv"


def test_what_the_sampler_writes_is_read_back(tmp_path: Path) -> None:
    table = read_samples(_written(tmp_path), GPU_READ)
    assert table is not None
    assert table["epoch_sec"].to_list() == [10.5, 12.5]
    assert table["power_w"].to_list() == [690.12, None]
    assert table["throttle_reasons"].to_list() == ["sw_power_cap", None]
    assert set(table.columns) == set(GPU_READ), "columns that no figure needs are not read"


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_is_left_out(tmp_path: Path, cut: int) -> None:
    path = _written(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    table = read_samples(path, GPU_READ)
    assert table is not None and table["epoch_sec"].to_list() == [10.5]


@pytest.mark.parametrize(
    "text", ["", "epoch_sec,power_w\n", "epoch_sec,power_w\n12.", "<html>\n<body>\n", "power_w\n1\n", "epoch_sec,epoch_sec\n1,2\n"]
)
def test_a_file_without_samples_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpu_telemetry.csv"
    path.write_text(text)
    assert read_samples(path, GPU_READ) is None
    assert read_samples(tmp_path / "none.csv", GPU_READ) is None


def test_odd_cells_and_rows_cost_themselves_only(tmp_path: Path) -> None:
    path = tmp_path / "host_telemetry.csv"
    path.write_text("epoch_sec,rss_kib,cpu_user_pct\n1,100,5\nx,1,1\n2,many,6\n3\n4,400,7,8,9\n\n")
    table = read_samples(path, HOST_READ)
    assert table is not None
    assert table.rows() == [(1.0, 100.0, 5.0), (2.0, None, 6.0), (3.0, None, None), (4.0, 400.0, 7.0)]


def test_columns_in_another_order_are_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "host_telemetry.csv"
    path.write_text("rss_kib,new_column,epoch_sec\n100,x,1\n")
    table = read_samples(path, HOST_READ)
    assert table is not None and table.row(0, named=True) == {"rss_kib": 100.0, "epoch_sec": 1.0}


def test_an_attempt_brings_its_account(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path)
    paths = AttemptPaths(Path(attempt.folder))
    files.write_json(paths.telemetry, to_json(ACCOUNT))
    read = read_attempt(paths)
    assert read is not None and read.telemetry == ACCOUNT
    paths.telemetry.write_text("[torn")
    read = read_attempt(paths)
    assert read is not None and read.telemetry is None


def test_files_the_account_calls_empty_are_not_opened(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path)
    folder = Path(attempt.folder)
    _written(folder)
    file = RowFile(folder / "host_telemetry.csv", HOST_COLUMNS)
    file.append([{"epoch_sec": 1.0, "rss_kib": 5}])
    file.close()
    no_gpu = replace(attempt, telemetry=TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, empty=True), host=ACCOUNT.host))
    tables = read_telemetry(no_gpu)
    assert tables.gpu is None and isinstance(tables.host, pl.DataFrame)
    assert read_telemetry(replace(attempt, telemetry=TelemetryAccount())) == TelemetryTables()
    # A run that was killed has rows and no account.
    assert read_telemetry(attempt).gpu is not None
