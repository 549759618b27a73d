"""The arithmetic of the leak diagnosis over GPU, host and step-time series."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.collect.original.runs import Span
from seatrial_runbooks.stage1.leak_check import FIGURES, THRESHOLDS, verdict
from seatrial_runbooks.stage1.leak_series import (
    DRIVER,
    HAND_MADE,
    OURS,
    HostFile,
    HostSample,
    Point,
    Sample,
    gpu_growth,
    growth,
    head_and_tail,
    host_growth,
    iter_drift,
    log_points,
    points_of,
    read_host_file,
    read_points,
    read_table,
)
from tests.facts import states

T0 = 1_771_408_580.0


def test_head_and_tail_are_a_tenth_each() -> None:
    assert head_and_tail([float(value) for value in range(1, 31)]) == (2.0, 29.0)
    assert head_and_tail([7.0, 9.0]) == (7.0, 9.0), "a tenth is one value at least"


def samples(count: int, interval_s: float, slope_per_s: float = 0.0) -> list[Sample]:
    return [(T0 + at * interval_s, 1000.0 + slope_per_s * at * interval_s) for at in range(count)]


@pytest.mark.parametrize(
    ("count", "interval_s", "problem"),
    [
        (12, 30.0, ""),
        (11, 30.0, "9 samples after the warm-up, at least 10 are needed"),
        (76, 1.0, ""),
        (75, 1.0, "the samples after the warm-up span 59 s, at least 60 s are needed"),
        (0, 1.0, "0 samples after the warm-up, at least 10 are needed"),
    ],
)
def test_too_few_samples_or_too_short_a_time_give_no_figure(count: int, interval_s: float, problem: str) -> None:
    assert growth(samples(count, interval_s)).problem == problem


def test_a_steep_warm_up_is_no_leak_in_any_order_of_the_rows() -> None:
    rows = [(T0 + at * 2.0, min(at, 20) * 500.0) for at in range(100)]
    assert growth(rows[::-1]) == growth(rows) == (80, 0.0, 0.0, "")


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(
    slope=st.floats(-1e4, 1e4),
    base=st.floats(0, 1e6),
    gaps_s=st.lists(st.floats(1.0, 30.0), min_size=80, max_size=200),
    first_t=st.floats(1e9, 2e9),
)
def test_the_slope_of_an_exact_line_comes_back(slope: float, base: float, gaps_s: list[float], first_t: float) -> None:
    rows, elapsed_s = [], 0.0
    for gap_s in gaps_s:
        elapsed_s += gap_s
        rows.append((first_t + elapsed_s, base + slope * elapsed_s / 60))
    found = growth(rows)
    assert found.slope_per_min == pytest.approx(slope, rel=1e-4, abs=1e-4) and found.drift * slope >= -1e-3


@pytest.mark.parametrize(
    ("flag", "most"),
    {"gpu_tail_slope": 20.0, "gpu_tail_drift": 4096.0, "host_tail_slope": 100.0, "host_tail_drift": 8192.0, "iter_drift": 20.0}.items(),
)
def test_every_threshold_at_below_and_above(flag: str, most: float) -> None:
    for value in (most - 0.1, most, most * (1 + 1e-12), -1e6):
        assert verdict({"host_tail_slope": 0.0, flag: value}, THRESHOLDS).text == "no_obvious_leak"
    beyond = verdict({"host_tail_slope": 0.0, flag: most + 0.1}, THRESHOLDS)
    assert beyond == (f"suspected_leak_or_contention({flag})", (FIGURES[flag].column,))


def test_all_flags_come_in_one_order_and_thresholds_can_be_moved() -> None:
    all_beyond = {flag: most + 1 for flag, most in reversed(THRESHOLDS.items())}
    assert verdict(all_beyond, THRESHOLDS).text == (
        "suspected_leak_or_contention(gpu_tail_slope,gpu_tail_drift,host_tail_slope,host_tail_drift,iter_drift)"
    )
    moved = {**THRESHOLDS, "gpu_tail_slope": 21, "gpu_tail_drift": 1e6, "host_tail_slope": 1e6}
    assert verdict(all_beyond, moved).text == "suspected_leak_or_contention(host_tail_drift,iter_drift)"


def test_step_times_alone_say_nothing_about_a_leak() -> None:
    for figures in ({}, {"iter_drift": 1.0}, {"iter_drift": 21.0}):
        assert verdict(figures, THRESHOLDS) == ("not_enough_data", ())
    found = verdict({"iter_drift": 1.0, "gpu_tail_drift": 5.0}, THRESHOLDS)
    assert found == ("no_obvious_leak", ("gpu_mem_tail_drift_max_mib", "iter_tail_vs_head_pct"))


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_quotes_torn_rows_repeated_headers_and_an_unfinished_last_cell(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_bytes('\ufeffgroup,step\r\n"a, b", 10\r\nz0\r\n\r\nstep,group\r\n"z0,1\r\ngroup,step,ms\r\nz0,20,5'.encode())
    found = read_table(path)
    assert found.parts == (
        [{"group": "a, b", "step": "10"}, {"group": "step", "step": "group"}],
        [{"group": "z0", "step": "20", "ms": ""}],
    )
    assert (found.columns, found.num_torn) == (("group", "step", "ms"), 2)


def test_what_is_no_file_is_a_problem_and_no_error(tmp_path: Path) -> None:
    absent, folder = read_table(tmp_path / "none.csv"), read_table(tmp_path)
    assert absent.parts == folder.parts == ()
    assert absent.problem == "there is no such file" and folder.problem != ""


HEADER = "epoch_sec,gpu_index,mem_used_mib,mem_total_mib"


def gpu_file(folder: Path, rows: Iterable[str], header: str = HEADER) -> Path:
    return write(folder / "gpu_telemetry.csv", header, *rows)


def growing(gpu: int | str, mib_per_min: float, num_samples: int = 30) -> list[str]:
    """A sample every 6 s."""
    return [f"{1000 + 6 * at},{gpu},{2000 + mib_per_min * at / 10},80000" for at in range(num_samples)]


def test_impossible_values_are_dropped_and_counted(tmp_path: Path) -> None:
    rows = ["1000,0,81000,80000", "1002,0,-1,200", "1003,0,[N/A],200", ",0,100,200", "0,0,100,200", "1005,0"]
    found = gpu_growth(gpu_file(tmp_path, [*rows, *growing(0, 6), "1180,0,2018,0"]))
    assert found.figures["gpu_tail_slope"] == pytest.approx(6)
    assert found.note.endswith(
        "1 GPU, 25 samples or more of each after the warm-up; dropped: 5 rows with invalid values and 1 truncated rows"
    )


def test_gpus_are_distinguished_by_index_and_else_by_uuid(tmp_path: Path) -> None:
    rows = [*growing("GPU-a", 0), *growing("GPU-b", 6)]
    found = gpu_growth(gpu_file(tmp_path, rows, "epoch_sec,gpu_uuid,mem_used_mib,mem_total_mib"))
    assert found.figures["gpu_tail_slope"] == pytest.approx(6) and "2 GPUs, 24 samples" in found.note


def test_a_restarted_file_counts_from_its_last_header_on(tmp_path: Path) -> None:
    found = gpu_growth(gpu_file(tmp_path, [*growing(0, 600), "2,0,bad,9", HEADER, *growing(0, 0)]))
    assert found.figures == {"gpu_tail_slope": 0.0, "gpu_tail_drift": 0.0} and "dropped" not in found.note


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (None, "there is no such file"),
        ([], "it has no rows"),
        (["x,0,1,2"], "0 samples after the warm-up, at least 10 are needed; dropped: 1 rows with invalid values"),
        ([*growing(0, 6, num_samples=5), *growing(1, 6, num_samples=2)], "4 samples after the warm-up, at least 10 are needed"),
    ],
)
def test_gpu_figures_that_are_missing_have_a_reason(tmp_path: Path, rows: list[str] | None, why: str) -> None:
    found = gpu_growth(tmp_path / "gpu_telemetry.csv" if rows is None else gpu_file(tmp_path, rows))
    assert (found.figures, found.note) == ({}, f"gpu: no figures: gpu_telemetry.csv: {why}")


def test_the_gpu_with_the_fastest_growth_counts_and_short_series_are_named(tmp_path: Path) -> None:
    rows = growing(0, 0) + growing(1, 30) + growing(2, -5) + growing(3, 900, num_samples=5)
    found = gpu_growth(gpu_file(tmp_path, rows))
    # 24 samples after the warm-up, two in head and tail each: 22 intervals of 6 s lie between their middles.
    assert found.figures == {"gpu_tail_slope": pytest.approx(30), "gpu_tail_drift": pytest.approx(30 * 22 / 10)}
    assert states(found.note, "gpu: gpu_telemetry.csv: ", "3 GPUs", "24 samples", "GPU 3", "too few samples")


def host_samples(*counts: float | None) -> tuple[HostSample, ...]:
    """One every 10 s, from second 1000 on, with a MiB more each."""
    return tuple(HostSample(1000.0 + 10 * at, 500.0 + at, count) for at, count in enumerate(counts))


@pytest.mark.parametrize(
    ("header", "row", "layout", "sample"),
    [
        ("epoch_sec,rss_kib", "10,2048", DRIVER, HostSample(10.0, 2.0, None)),
        ("epoch_sec,train_proc_count,train_rss_kib", "10,4,2048", HAND_MADE, HostSample(10.0, 2.0, 4.0)),
        ("epoch_sec,rss_kib,train_proc_count,train_rss_kib", "10,1024,4,9999", OURS, HostSample(10.0, 1.0, 4.0)),
        ("epoch_sec,rss_kib,mem_total_kib", "10,2048,1024", DRIVER, HostSample(10.0, None, None)),
        ("epoch_sec,rss_kib", "10,0", DRIVER, HostSample(10.0, None, None)),
        ("epoch_sec,rss_kib", "10,much", DRIVER, HostSample(10.0, None, None)),
    ],
)
def test_each_layout_is_known_by_its_columns(tmp_path: Path, header: str, row: str, layout: str, sample: HostSample) -> None:
    found = read_host_file(write(tmp_path / "host_telemetry.csv", header, row), "run", restarts=True)
    assert (found.name, found.layout, found.samples, found.problem) == ("host_telemetry.csv of the run", layout, (sample,), "")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "it is empty"),
        (["epoch_sec,load"], "its header has neither rss_kib nor train_rss_kib"),
        (["epoch_sec,rss_kib"], "it has no rows"),
        (["epoch_sec,rss_kib", "never,5"], "it has no rows"),
    ],
)
def test_a_file_without_samples_says_why(tmp_path: Path, lines: list[str], problem: str) -> None:
    found = read_host_file(write(tmp_path / "host_telemetry.csv", *lines), "campaign", restarts=False)
    assert host_growth(found, None).note == f"host: no figures: host_telemetry.csv of the campaign: {problem}"


@pytest.mark.parametrize(("restarts", "times"), [(True, [20.0]), (False, [10.0, 20.0])])
def test_a_repeated_header_restarts_a_run_s_file_and_not_a_campaign_s(tmp_path: Path, restarts: bool, times: list[float]) -> None:
    path = write(tmp_path / "host_telemetry.csv", "epoch_sec,rss_kib", "10,1024", "epoch_sec,rss_kib", "20,1024")
    assert [sample.t for sample in read_host_file(path, "run", restarts=restarts).samples] == times


def test_growth_within_the_time_of_the_run() -> None:
    file = HostFile(name="f", samples=host_samples(*[None] * 60), layout=DRIVER)
    found = host_growth(file, Span(first_t=1200.0, last_t=1500.0, source="outcome.json"))
    assert found.figures["host_tail_slope"] == pytest.approx(6)
    assert states(found.note, "outcome.json", "25 samples")
    assert "no sample in that time" in host_growth(file, Span(first_t=1.0, last_t=2.0)).note


@pytest.mark.parametrize(
    ("counts", "which"),
    [
        ([0] * 10 + [12, 9] * 15 + [12] + [2] * 10, "with 10 or more processes, 25 samples"),
        ([0] * 10 + [4] * 30 + [5] + [1] * 5, "never 10 processes, so from the first to the last sample with the usual 4, 25 samples"),
    ],
)
def test_only_samples_of_the_training_count(counts: list[float], which: str) -> None:
    found = host_growth(HostFile(name="f", samples=host_samples(*counts), layout=OURS), None)
    assert which in found.note
    assert found.figures == {"host_tail_slope": pytest.approx(6), "host_tail_drift": pytest.approx(23)}


def test_missing_host_figures_have_a_reason() -> None:
    idle = host_growth(HostFile(name="f", samples=host_samples(*[0] * 40), layout=OURS), None)
    few = host_growth(HostFile(name="f", samples=(*host_samples(*[None] * 5), HostSample(2000.0, None, None)), layout=DRIVER), None)
    assert idle.figures == few.figures == {}
    assert "no sample has a training process" in idle.note
    assert "4 samples after the warm-up" in few.note and "dropped: 1 rows" in few.note


def points_file(folder: Path, *rows: str) -> Path:
    return write(folder / "timing_points.csv", "group,repeat,attempt,step,iter_ms_p50", *rows)


def test_points_are_kept_by_run_and_attempt(tmp_path: Path) -> None:
    points = read_points(points_file(tmp_path, "z0,1,1,0,50", "z0,1,2,0,60", "z0,2,1,0,-3", "z0,x,1,0,70", "z1,1,,10,80"))
    assert points == {
        ("z0", 1): {"1": [Point(0.0, 50.0)], "2": [Point(0.0, 60.0)]},
        ("z0", 2): {"1": [Point(0.0, None)]},
        ("z1", 1): {"": [Point(10.0, 80.0)]},
    }
    assert read_points(tmp_path / "none.csv") == {}


def test_the_attempt_of_the_row_counts_else_the_last(tmp_path: Path) -> None:
    points = read_points(points_file(tmp_path, "z0,1,1,0,50", "z0,1,2,0,60", "z0,1,10,0,70"))
    run = {"group": "z0", "repeat": "1"}
    assert [point.iter_ms for point in points_of({**run, "attempt": "2"}, points)] == [60.0]
    assert [point.iter_ms for point in points_of(run, points)] == [70.0]
    for other in ({**run, "attempt": "3"}, {"group": "z9", "repeat": "1"}, {}):
        assert points_of(other, points) == []


def test_of_attempts_appended_to_each_other_the_last_counts(tmp_path: Path) -> None:
    points = read_points(points_file(tmp_path, "z0,1,,0,50", "z0,1,,10,51", "z0,1,,0,60", "z0,1,,10,61"))
    assert [point.iter_ms for point in points_of({"group": "z0", "repeat": "1", "attempt": "7"}, points)] == [60.0, 61.0]


def test_lines_of_a_trainer_give_points_too() -> None:
    assert log_points(["Step 10: Loss 1.0", "Timing(window=100): iter_ms:p50=51.5 p90=53.0"]) == [Point(10.0, 51.5)]


@pytest.mark.parametrize(
    ("values", "tail_ms", "drift_pct", "note"),
    [
        # 13 points leave 11: the head is the third, the tail the last.
        ([900.0, 900.0, 100.0, *[110.0] * 9, 125.0], 125.0, 25.0, "train.log: 11 timing points after the warm-up"),
        ([100.0] * 12, 100.0, 0.0, "10 timing points"),
        ([100.0] * 11, 100.0, None, "no drift: 9 timing points after the warm-up, at least 10 are needed"),
        ([None], None, None, "no figures: train.log has no timing points of this run"),
    ],
)
def test_tail_against_head_of_step_times(values: list[float | None], tail_ms: float | None, drift_pct: float | None, note: str) -> None:
    found = iter_drift([Point(0.0, value) for value in [*values, None]], "train.log")
    assert found.tail_ms == tail_ms and note in found.note
    assert found.figures == ({} if drift_pct is None else {"iter_drift": pytest.approx(drift_pct)})
