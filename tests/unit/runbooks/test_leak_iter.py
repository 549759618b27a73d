"""How a run's step time drifted: the points of one run and attempt, and tail against head."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial_runbooks.stage1.leak_iter import Point, iter_drift, log_points, points_of, read_points, run_key


def write(folder: Path, *rows: str) -> Path:
    path = folder / "timing_points.csv"
    path.write_text("".join(f"{line}\n" for line in ("group,repeat,attempt,step,iter_ms_p50", *rows)))
    return path


def test_points_are_kept_by_run_and_attempt(tmp_path: Path) -> None:
    points = read_points(write(tmp_path, "z0,1,1,0,50", "z0,1,2,0,60", "z0,2,1,0,-3", "z0,x,1,0,70", "z1,1,,10,80"))
    assert points == {
        ("z0", 1): {"1": [Point(0.0, 50.0)], "2": [Point(0.0, 60.0)]},
        ("z0", 2): {"1": [Point(0.0, None)]},
        ("z1", 1): {"": [Point(10.0, 80.0)]},
    }
    assert read_points(tmp_path / "none.csv") == {}


@pytest.mark.parametrize(("row", "key"), [({"group": "z0", "repeat": "2"}, ("z0", 2)), ({"group": "z0"}, None), ({"repeat": "1"}, ("", 1))])
def test_a_row_without_a_repeat_speaks_of_no_run(row: dict[str, str], key: tuple[str, int] | None) -> None:
    assert run_key(row) == key


def test_the_attempt_that_the_row_names_counts_else_the_last(tmp_path: Path) -> None:
    points = read_points(write(tmp_path, "z0,1,1,0,50", "z0,1,2,0,60", "z0,1,10,0,70"))
    run = {"group": "z0", "repeat": "1"}
    assert [point.iter_ms for point in points_of({**run, "attempt": "2"}, points)] == [60.0]
    assert [point.iter_ms for point in points_of(run, points)] == [70.0]
    assert points_of({**run, "attempt": "3"}, points) == []
    assert points_of({"group": "z9", "repeat": "1"}, points) == [] and points_of({}, points) == []


def test_of_attempts_appended_to_each_other_the_last_counts(tmp_path: Path) -> None:
    points = read_points(write(tmp_path, "z0,1,,0,50", "z0,1,,10,51", "z0,1,,0,60", "z0,1,,10,61"))
    assert [point.iter_ms for point in points_of({"group": "z0", "repeat": "1"}, points)] == [60.0, 61.0]


def test_lines_of_a_trainer_give_points_too() -> None:
    assert log_points([]) == []
    assert log_points(["Step 10: Loss 1.0", "Timing(window=100): iter_ms:p50=51.5 p90=53.0"]) == [Point(10.0, 51.5)]


def test_tail_against_head_after_the_warm_up() -> None:
    points = [Point(float(step), 100.0 if step < 20 else 110.0) for step in range(30)]
    found = iter_drift(points, "timing_points.csv")
    assert (found.tail_ms, found.drift_pct) == (110.0, pytest.approx(10.0))
    assert found.note == "iter: timing_points.csv: 24 timing points after the warm-up"


def test_too_few_points_have_a_tail_and_no_drift_and_none_have_nothing() -> None:
    few = iter_drift([Point(0.0, 5.0), Point(1.0, None)], "train.log")
    assert (few.tail_ms, few.drift_pct) == (5.0, None) and "1 timing points are left after the warm-up, at least 10" in few.note
    assert iter_drift([Point(0.0, None)], "train.log").note == "iter: no figures: train.log has no timing point of this run"
