"""Estimates of the time to go: from the seeds' lines to a measured run, and into eta_points.csv."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from seatrial.analyse.measure import measure_run
from seatrial.collect.logs.tables import read_logs
from seatrial.collect.manifest import eta_point_rows, write_eta_points
from seatrial.records.columns import ETA_POINTS, ETA_QUALITY
from seatrial.records.eta import EtaPoint, EtaQuality
from seatrial.run_table.run_cells import run_cells
from tests.unit.analyse import factory
from tests.unit.collect import on_disk


def test_the_seeds_own_estimates_are_read_and_held_against_the_truth(tmp_path: Path) -> None:
    attempt = on_disk.write_attempt(tmp_path, factory.spec(ranks=2, steps=101))
    on_disk.write_log(attempt, (on_disk.RECORDED / "seed.log").read_bytes())
    tables = read_logs(attempt)
    assert tables is not None
    assert [point.step for point in tables.eta_points] == list(range(10, 101, 10))
    first = tables.eta_points[0]
    assert (first.remain_steps, first.eta_s, first.mode, first.source) == (90, 21.1, "rank0", "log")
    assert (first.basis_iter_ms, first.samples, first.low_s) == (235.0, 11, None)
    found = measure_run(attempt, tables)
    assert [point.eta_s for point in found.eta_points] == [point.eta_s for point in tables.eta_points]
    assert (found.seed["eta_points"], found.seed["eta_first_sec"], found.seed["eta_first_hms"]) == (10, 21.1, "00:00:22")
    assert found.eta_points[-1].actual_s == 0.0
    assert found.eta_quality is not None
    assert (found.eta_quality.points, found.eta_quality.covered) == (9, None)


@pytest.mark.parametrize("line", ["TimingETA step=10", "TimingETA step=x remain_steps=9 eta_sec=1.0", "eta_sec=3"])
def test_a_line_that_only_looks_like_one_is_passed_over(tmp_path: Path, line: str) -> None:
    attempt = on_disk.write_attempt(tmp_path)
    on_disk.write_log(attempt, f"Step 0: Loss 4.0\n{line}\nStep 10: Loss 3.9\nStep 20: Loss 3.8\n")
    tables = read_logs(attempt)
    assert tables is not None
    assert tables.eta_points == ()


def test_a_row_has_the_seeds_columns_first_and_the_error_last(tmp_path: Path) -> None:
    point = EtaPoint(
        index=2,
        step=150,
        remain_steps=50,
        eta_s=61.2,
        mode="global_max",
        source="events",
        low_s=55.0,
        high_s=70.0,
        basis_iter_ms=1200.5,
        samples=100,
        actual_s=60.0,
    )
    unknown = EtaPoint(index=3, step=199, remain_steps=1, eta_s=0.4, mode="rank0", source="log")
    run = factory.measured(measure={"eta_points": (point, unknown)})
    assert run.measure is not None
    path = tmp_path / "eta_points.csv"
    write_eta_points(path, eta_point_rows(run.attempt, run.measure))
    with open(path, newline="") as source:
        header, *rows = list(csv.reader(source))
    assert tuple(header) == ETA_POINTS
    assert header[:10] == ["mode", "group", "repeat", "index", "step", "remain_steps", "eta_sec", "eta_hms", "eta_mode", "train_log"]
    first, second = (dict(zip(header, row, strict=True)) for row in rows)
    assert (first["eta_sec"], first["eta_hms"], first["eta_mode"], first["error_sec"]) == ("61.2", "00:01:02", "global_max", "1.2")
    assert (first["eta_low_sec"], first["eta_high_sec"], first["basis_iter_ms"], first["samples"]) == ("55", "70", "1200.5", "100")
    assert (second["eta_hms"], second["actual_sec"], second["error_sec"]) == ("00:00:01", "", "")


def test_a_table_without_points_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "eta_points.csv"
    path.write_text("old\n")
    write_eta_points(path, [])
    assert not path.exists()


def test_the_errors_of_a_run_are_cells_of_its_row() -> None:
    quality = EtaQuality(points=20, median_error_s=1.5, p90_error_s=4.0, median_fraction=0.004, p90_fraction=0.011, covered=0.9)
    run = factory.measured(measure={"eta_quality": quality})
    cells = run_cells(run.attempt, run.measure)
    assert [cells[name] for name in ETA_QUALITY] == [1.5, 4.0, 0.004, 0.011]
    without = factory.measured()
    assert not set(ETA_QUALITY) & set(run_cells(without.attempt, without.measure))
