"""Samples of many hosts as one table of each kind."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from seatrial.collect.hosts.folders import HostFolder
from seatrial.collect.hosts.samples import together
from seatrial.paths import AttemptPaths
from seatrial.records.caution import Caution
from seatrial.records.telemetry import GPUS_A_HOST, HOST_INDEX, TelemetryTables


def folder(name: str, offset_s: float = 0.0) -> HostFolder:
    return HostFolder(name=name, paths=AttemptPaths(Path("run_r1/attempt-1")), offset_s=offset_s)


def gpu(*rows: tuple[float, float]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"epoch_sec": pl.Float64, "gpu_index": pl.Float64}, orient="row")


def host(*times: float) -> pl.DataFrame:
    return pl.DataFrame({"epoch_sec": times})


def test_rows_stand_by_the_harnesss_clock_and_tell_their_host() -> None:
    read = [TelemetryTables(gpu=gpu((10.0, 0.0)), host=host(10.0)), TelemetryTables(gpu=gpu((105.0, 0.0)), host=host(105.0, 125.0))]
    found = together(read, [folder("a"), folder("b", 100.0)])
    assert found.hosts == ("a", "b")
    assert found.gpu is not None and found.gpu.rows() == [(5.0, float(GPUS_A_HOST)), (10.0, 0.0)]
    assert found.host is not None and found.host.select("epoch_sec", HOST_INDEX).rows() == [(5.0, 1.0), (10.0, 0.0), (25.0, 1.0)]


def test_a_host_without_samples_leaves_the_others_theirs() -> None:
    found = together([TelemetryTables(), TelemetryTables(host=host(3.0))], [folder("a"), folder("b")])
    assert found.gpu is None and found.host is not None and found.host[HOST_INDEX].to_list() == [1.0]
    nothing = together([TelemetryTables(), TelemetryTables()], [folder("a"), folder("b")])
    assert nothing.gpu is None and nothing.host is None and nothing.hosts == ("a", "b")


def test_columns_that_one_host_has_alone_are_empty_for_the_others() -> None:
    found = together(
        [TelemetryTables(host=host(1.0)), TelemetryTables(host=host(2.0).with_columns(load1=pl.lit(4.0)))], [folder("a"), folder("b")]
    )
    assert found.host is not None and found.host["load1"].to_list() == [None, 4.0]


def test_what_is_said_of_many_hosts_is_said_once() -> None:
    torn = Caution(kind="bad_rows", subject="r", text="In host_telemetry.csv of a 1 row was passed over.")
    lost = Caution(kind="rows_lost", subject="r", text="Rows are lost.")
    read = [TelemetryTables(cautions=(torn,)), TelemetryTables(cautions=(torn, lost)), TelemetryTables(cautions=(torn,))]
    found = together(read, [folder("a"), folder("b"), folder("c")])
    assert [caution.text for caution in found.cautions] == [f"{torn.text} So it is with 2 more files.", lost.text]
