"""Telemetry samples: damaged files, many hosts on one clock, batches of small files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import polars as pl
import pytest

from seatrial.collect import steps
from seatrial.collect.attempts import read_attempt
from seatrial.collect.event_steps import empty_steps, steps_on_harness_clock
from seatrial.collect.steps import read_ahead, read_steps
from seatrial.collect.telemetry import GPU_READ, HOST_READ, merge_hosts, read_samples, read_telemetry, samples_on_harness_clock
from seatrial.core import files
from seatrial.core.paths import AttemptPaths
from seatrial.machine.sampler import CsvWriter
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import Caution
from seatrial.records.codec import to_json
from seatrial.records.launch import NodeRecord, NodesRecord
from seatrial.records.stored import HostFolder
from seatrial.records.telemetry import GPU_COLUMNS, GPUS_A_HOST, HOST_COLUMNS, HOST_INDEX, SamplerAccount, TelemetryAccount, TelemetryTables
from tests.unit.analyse import factory
from tests.unit.collect import on_disk
from tests.unit.collect.on_disk import event, write_attempt, write_events

ACCOUNT = TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, rows=2), host=SamplerAccount(interval_s=2.0, rows=1, missing=("load1",)))


def _written(folder: Path) -> Path:
    file = CsvWriter(folder / "gpu_telemetry.csv", GPU_COLUMNS)
    file.append([{"epoch_sec": 10.5, "gpu_index": 0, "gpu_name": "H, 200", "power_w": 690.12, "throttle_reasons": "sw_power_cap"}])
    file.append([{"epoch_sec": 12.5, "gpu_index": 0, "power_w": None, "throttle_reasons": ""}])
    file.close()
    return folder / "gpu_telemetry.csv"


def test_samples_are_read_back(tmp_path: Path) -> None:
    table = read_samples(_written(tmp_path), GPU_READ)
    assert table is not None
    assert table["epoch_sec"].to_list() == [10.5, 12.5]
    assert table["power_w"].to_list() == [690.12, None]
    assert table["throttle_reasons"].to_list() == ["sw_power_cap", None]
    assert set(table.columns) == set(GPU_READ), "columns that no figure needs are not read"


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_an_unfinished_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
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


def test_malformed_cells_and_rows_do_not_affect_others(tmp_path: Path) -> None:
    path = tmp_path / "host_telemetry.csv"
    path.write_text("epoch_sec,rss_kib,cpu_user_pct\n1,100,5\nx,1,1\n2,many,6\n3\n4,400,7,8,9\n\n")
    table = read_samples(path, HOST_READ)
    assert table is not None
    assert table.rows() == [(1.0, 100.0, 5.0), (2.0, None, 6.0), (3.0, None, None), (4.0, 400.0, 7.0)]


def test_an_attempt_has_its_telemetry_account(tmp_path: Path) -> None:
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
    file = CsvWriter(folder / "host_telemetry.csv", HOST_COLUMNS)
    file.append([{"epoch_sec": 1.0, "rss_kib": 5}])
    file.close()
    no_gpu = replace(attempt, telemetry=TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, empty=True), host=ACCOUNT.host))
    tables = read_telemetry(no_gpu)
    assert tables.gpu is None and isinstance(tables.host, pl.DataFrame)
    assert read_telemetry(replace(attempt, telemetry=TelemetryAccount())) == TelemetryTables()
    # A run that was killed has rows and no account.
    assert read_telemetry(attempt).gpu is not None


def folder(name: str, offset_s: float = 0.0) -> HostFolder:
    return HostFolder(name=name, paths=AttemptPaths(Path("run_r1/attempt-1")), offset_s=offset_s)


def gpu(*rows: tuple[float, float]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"epoch_sec": pl.Float64, "gpu_index": pl.Float64}, orient="row")


def host(*times: float) -> pl.DataFrame:
    return pl.DataFrame({"epoch_sec": times})


def test_merged_rows_are_on_the_harness_clock_and_show_their_host() -> None:
    read = [TelemetryTables(gpu=gpu((10.0, 0.0)), host=host(10.0)), TelemetryTables(gpu=gpu((105.0, 0.0)), host=host(105.0, 125.0))]
    found = merge_hosts(read, [folder("a"), folder("b", 100.0)])
    assert found.hosts == ("a", "b")
    assert found.gpu is not None and found.gpu.rows() == [(5.0, float(GPUS_A_HOST)), (10.0, 0.0)]
    assert found.host is not None and found.host.select("epoch_sec", HOST_INDEX).rows() == [(5.0, 1.0), (10.0, 0.0), (25.0, 1.0)]


def test_a_host_without_samples_does_not_affect_others() -> None:
    found = merge_hosts([TelemetryTables(), TelemetryTables(host=host(3.0))], [folder("a"), folder("b")])
    assert found.gpu is None and found.host is not None and found.host[HOST_INDEX].to_list() == [1.0]
    nothing = merge_hosts([TelemetryTables(), TelemetryTables()], [folder("a"), folder("b")])
    assert nothing.gpu is None and nothing.host is None and nothing.hosts == ("a", "b")


def test_columns_that_one_host_has_alone_are_empty_for_the_others() -> None:
    found = merge_hosts(
        [TelemetryTables(host=host(1.0)), TelemetryTables(host=host(2.0).with_columns(load1=pl.lit(4.0)))], [folder("a"), folder("b")]
    )
    assert found.host is not None and found.host["load1"].to_list() == [None, 4.0]


def test_cautions_of_many_hosts_are_merged() -> None:
    torn = Caution(kind="bad_rows", subject="r", text="In host_telemetry.csv of a 1 row was passed over.")
    lost = Caution(kind="rows_lost", subject="r", text="Rows are lost.")
    read = [TelemetryTables(cautions=(torn,)), TelemetryTables(cautions=(torn, lost)), TelemetryTables(cautions=(torn,))]
    found = merge_hosts(read, [folder("a"), folder("b"), folder("c")])
    assert [caution.kind for caution in found.cautions] == ["bad_rows", "rows_lost"]
    assert found.cautions[0].text.startswith(torn.text) and "2 more files" in found.cautions[0].text and found.cautions[1] == lost


NODES = NodesRecord(
    nodes=(
        NodeRecord(name="a", node_rank=0, first_rank=0, ranks=1, clock_offset_s=0.0),
        NodeRecord(name="b", node_rank=1, first_rank=1, ranks=2, clock_offset_s=3600.0),
        NodeRecord(name="c", node_rank=2, first_rank=3, ranks=1),
    )
)


def test_step_times_are_moved_by_the_offset_of_their_host() -> None:
    steps = pl.concat([factory.steps_of([50.0, 50.0], rank=rank) for rank in range(4)])
    moved = steps_on_harness_clock(steps, NODES)
    behind_s = (steps["t"] - moved["t"]).round(6).to_list()
    assert behind_s == [0.0, 0.0, 3600.0, 3600.0, 3600.0, 3600.0, 0.0, 0.0]
    assert moved.drop("t").equals(steps.drop("t"))


def test_steps_without_clock_skew_are_unchanged() -> None:
    steps = factory.steps_of([50.0])
    assert steps_on_harness_clock(steps, None) is steps
    assert steps_on_harness_clock(steps, NodesRecord()) is steps
    empty = empty_steps()
    assert steps_on_harness_clock(empty, NODES) is empty


def test_samples_are_moved_in_both_tables() -> None:
    tables = TelemetryTables(gpu=pl.DataFrame({"epoch_sec": [100.0, 101.0], "power_w": [1.0, 2.0]}), host=None)
    moved = samples_on_harness_clock(tables, 90.0)
    assert moved.gpu is not None and moved.gpu.to_dict(as_series=False) == {"epoch_sec": [10.0, 11.0], "power_w": [1.0, 2.0]}
    assert moved.host is None and samples_on_harness_clock(tables, 0.0) is tables


BATCH_ACCOUNT = TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, rows=5), host=SamplerAccount(interval_s=2.0, rows=5))
Change = Callable[[str], str]


def write_run(out: Path, repeat: int, *, ranks: int = 1) -> Attempt:
    attempt = replace(write_attempt(out, factory.spec(repeat=repeat, ranks=ranks)), telemetry=BATCH_ACCOUNT)
    for rank in range(ranks):
        lines = [event(attempt, "start", rank=rank, world_size=ranks)]
        lines += [event(attempt, rank=rank, step=step, m=2.0 + step, t=1.0 + step, iter_ms=50.0 + repeat, loss=3.5) for step in range(9)]
        write_events(attempt, rank, "\n".join(lines) + "\n")
    paths = AttemptPaths(Path(attempt.folder))
    paths.gpu_telemetry.write_text(samples(GPU_COLUMNS, repeat))
    paths.host_telemetry.write_text(samples(HOST_COLUMNS, repeat))
    return attempt


def samples(columns: tuple[str, ...], power_w: float) -> str:
    rows = [{"epoch_sec": 10.0 + 2 * row, "gpu_index": 0, "power_w": power_w, "load1": 0.5, "gpu_name": "H"} for row in range(5)]
    return "\n".join([",".join(columns), *(",".join(str(row.get(name, "")) for name in columns) for row in rows)]) + "\n"


def assert_same_as_alone(attempts: list[Attempt]) -> steps.ReadAhead:
    """What was read together, after checking that each attempt gives the same alone."""
    together = read_ahead(attempts)
    for attempt in attempts:
        assert cells(read_steps(attempt, together)) == cells(read_steps(attempt))
        assert cells(read_telemetry(attempt, together.samples)) == cells(read_telemetry(attempt))
    return together


def cells(tables: StepTables | TelemetryTables) -> list[str]:
    """Every field, and every row of a table."""
    values = (getattr(tables, field.name) for field in fields(tables))
    return [f"{value.schema} {value.rows()}" if isinstance(value, pl.DataFrame) else repr(value) for value in values]


def test_a_batch_gives_the_same_tables(tmp_path: Path) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2, 3)]
    together = assert_same_as_alone(attempts)
    assert len(together.events) == 3
    assert len(together.samples) == 6


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-20],
        lambda text: text.replace("\n", "\n\n", 3),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("3.5", '"nan"', 1).replace("0.5", "nan", 1),
        lambda text: text.replace('"attempt": 1', '"attempt": 2', 1).replace(",H,", ",H\N{LATIN SMALL LETTER E WITH ACUTE},", 1),
        lambda text: text + text.splitlines()[-1] + "\n",
        lambda text: text + "rubbish\n",
        lambda text: text.splitlines()[0] + "\n",
        lambda text: "x" + text,
        lambda text: "",
    ],
)
def test_a_damaged_file_does_not_affect_others_of_its_batch(tmp_path: Path, change: Change) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2, 3)]
    paths = AttemptPaths(Path(attempts[1].folder))
    for path in (paths.events(0), paths.gpu_telemetry, paths.host_telemetry):
        path.write_text(change(path.read_text()), newline="")
    assert_same_as_alone(attempts)


def test_a_batch_with_missing_files_and_other_columns(tmp_path: Path) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2, 3)]
    AttemptPaths(Path(attempts[0].folder)).events(0).unlink()
    AttemptPaths(Path(attempts[1].folder)).gpu_telemetry.write_text(samples(("epoch_sec", "power_w"), 7.0))
    AttemptPaths(Path(attempts[2].folder)).host_telemetry.unlink()
    together = assert_same_as_alone(attempts)
    assert len(together.events) == 2
    assert len(together.samples) == 5


def test_large_files_several_ranks_and_running_attempts_are_not_batched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = [write_run(tmp_path, 1, ranks=2), write_attempt(tmp_path, factory.spec(repeat=2), outcome=None)]
    assert not assert_same_as_alone(attempts[:1]).events
    assert read_ahead(attempts[1:]) == steps.NOTHING
    monkeypatch.setattr(steps, "LARGEST_BATCHED_BYTES", 100)
    assert assert_same_as_alone([write_run(tmp_path, 3)]) == steps.NOTHING
