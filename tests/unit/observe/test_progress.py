"""Progress from heartbeats, else from the script's own lines, read as they grow."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.disk import fallback
from seatrial.observe.progress import ProgressReader, RankMark, RankStanding
from seatrial.observe.row_file import RowFile
from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import WorkloadSpec
from seatrial.records.telemetry import HOST_COLUMNS
from tests.unit.records.test_codec import spec


def attempt(tmp_path: Path) -> AttemptPaths:
    folder = tmp_path / "run_r1" / "attempt-1"
    folder.mkdir(parents=True)
    return AttemptPaths(folder)


def beat(paths: AttemptPaths, rank: int, step: int | None, **more: object) -> None:
    with open(paths.heartbeat(rank), "a") as lines:
        lines.write(json.dumps({"rank": rank, "step": step, "phase": "step", **more}) + "\n")


def say(paths: AttemptPaths, text: str, t: float) -> None:
    """More output, which arrived at `t`."""
    with open(paths.launcher_log, "a") as log:
        log.write(text)
    if not paths.arrivals.exists():
        paths.arrivals.write_text("offset_bytes,t,m\n")
    with open(paths.arrivals, "a") as arrivals:
        arrivals.write(f"{paths.launcher_log.stat().st_size},{t:.6f},0.0\n")


def nano(*steps: int) -> str:
    return "".join(f"iter {step}: loss 2.0, time 5.0ms\n" for step in steps)


def test_nothing_yet(tmp_path: Path) -> None:
    look = ProgressReader(spec(), attempt(tmp_path)).look()
    assert (look.step, look.alive) == (None, False)


def test_slowest_rank_counts(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    beat(paths, 0, 7)
    beat(paths, 1, None)
    reader = ProgressReader(spec(steps=20), paths)
    assert (reader.look().step, reader.look().alive) == (None, False)
    beat(paths, 1, 5)
    look = reader.look()
    assert (look.step, look.total, look.alive, look.phase) == (5, 20, True, "step")


def test_lines_of_a_script_are_read_on_from_where_the_last_look_ended(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    paths.launcher_log.write_text("[rank0]: loading\n[rank0]: iter 1: loss 2.0, time 5.0ms\n[rank0]: iter 2: lo")
    assert reader.look().step == 1
    with open(paths.launcher_log, "a") as log:
        log.write("ss 1.9, time 5.0ms\n")
    assert reader.look().step == 2


def test_a_script_that_prints_no_step_is_alive_once_it_prints(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    paths.launcher_log.write_text("hello\n")
    look = reader.look()
    assert (look.step, look.alive) == (None, True)


def test_own_pattern(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    mine = WorkloadSpec(name="x", script="x.py", patterns=(r"tick (?P<step>\d+)",))
    reader = ProgressReader(spec(workload=mine), paths)
    paths.launcher_log.write_text("tick 4\niter 9: loss 1.0, time 1.0ms\n")
    assert reader.look().step == 4


def test_every_rank_that_has_ended_a_step_has_its_mark(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    beat(paths, 0, 7, ts=105.0, step_t=103.5, iter_ms_p50=12.5, paused_s=1.5)
    beat(paths, 1, None, ts=105.0, step_t=None, iter_ms_p50=None, paused_s=None)
    assert ProgressReader(spec(), paths).look().ranks == (RankMark(rank=0, step=7, step_t=103.5, paused_s=1.5, iter_ms_p50=12.5),)


def test_a_heartbeat_of_before_these_fields_marks_the_time_it_was_written(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    beat(paths, 0, 7, ts=105.0)
    beat(paths, 1, 7)
    assert ProgressReader(spec(), paths).look().ranks == (RankMark(rank=0, step=7, step_t=105.0),)


def test_a_script_s_mark_is_when_its_line_arrived_and_its_pace_that_between_lines(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    say(paths, "loading\n" + nano(0), t=10.0)
    assert reader.look().ranks == (RankMark(rank=0, step=0, step_t=10.0),)
    say(paths, nano(10), t=11.0)
    say(paths, nano(20), t=13.0)
    say(paths, nano(30) + "saving\n", t=14.0)
    assert reader.look().ranks == (RankMark(rank=0, step=30, step_t=14.0, iter_ms_p50=100.0),)


def test_lines_that_came_together_are_one_mark(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    for chunk in range(3):
        say(paths, nano(*range(10 * chunk, 10 * chunk + 10)), t=10.0 + chunk)
    (mark,) = reader.look().ranks
    assert (mark.step, mark.step_t, mark.iter_ms_p50) == (29, 12.0, 100.0)


def test_ranks_that_all_print_and_a_new_epoch_do_not_spoil_the_pace(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    for at, step in enumerate([0, 1, 2, 0, 1, 2]):
        for rank in (0, 1):
            say(paths, f"[rank{rank}]: {nano(step)}", t=10.0 + at + rank / 10)
    (mark,) = reader.look().ranks
    assert (mark.step, mark.step_t, mark.iter_ms_p50) == (2, 15.0, 1000.0)


def test_a_counter_that_starts_anew_within_one_chunk_is_no_division_by_nothing(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    say(paths, nano(0, 1, 2, 3, 4), t=10.0)
    reader.look()
    say(paths, nano(0, 1, 2), t=12.0)
    assert reader.look().step == 2


def test_without_arrival_times_the_time_of_the_look_counts(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    paths.launcher_log.write_text(nano(3))
    (mark,) = ProgressReader(spec(), paths).look().ranks
    assert mark.step == 3
    assert abs(mark.step_t - time.time()) < 60


def test_where_each_rank_stands(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    beat(paths, 0, 7, ts=105.0, pid=31, host="a", attempt=1)
    beat(paths, 1, None, ts=106.0, pid=32, host="b", attempt=1)
    size = [paths.heartbeat(rank).stat().st_size for rank in (0, 1)]
    assert ProgressReader(spec(), paths).look().standings == (
        RankStanding(rank=0, step=7, phase="step", pid=31, host="a", beat_ts=105.0, beat_bytes=size[0]),
        RankStanding(rank=1, step=None, phase="step", pid=32, host="b", beat_ts=106.0, beat_bytes=size[1]),
    )


def test_a_beat_of_another_attempt_is_nobody_s(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    beat(paths, 0, 7, attempt=1)
    beat(paths, 0, 99, attempt=2)
    assert ProgressReader(spec(), paths).look().step == 7


def test_a_run_whose_ranks_were_started_anew_stays_alive(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    beat(paths, 0, 7, pid=31)
    assert reader.look().alive
    beat(paths, 0, None, pid=32)
    look = reader.look()
    assert (look.step, look.alive) == (None, True)
    beat(paths, 1, None)
    assert not reader.look().alive


def test_what_it_holds(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    paths.launcher_log.write_text("x" * 1000)
    rows = RowFile(paths.host_telemetry, HOST_COLUMNS)
    rows.append([{"rss_kib": 2048}])
    rows.close()
    look = ProgressReader(spec(), paths).look()
    assert (look.output_bytes, look.memory_bytes, look.largest_file) == (1000, 2048 * 1024, "launcher.log")
    assert look.written_bytes == 1000 + paths.host_telemetry.stat().st_size


def test_output_that_a_failing_disk_sent_elsewhere_is_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fallback.VARIABLE, str(tmp_path / "elsewhere"))
    paths = attempt(tmp_path)
    say(paths, "loading\n", t=1.0)
    reader = ProgressReader(spec(), paths)
    before = reader.look().output_bytes
    assert fallback.keep(fallback.real(paths.launcher_log), b"more\n", "Input/output error", 0o644)
    assert reader.look().output_bytes > before


def test_files_that_cannot_be_read_are_as_none(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    for path in (paths.launcher_log, paths.arrivals, paths.host_telemetry, paths.heartbeat(0)):
        path.mkdir()
    look = ProgressReader(spec(), paths).look()
    assert (look.step, look.alive, look.memory_bytes) == (None, False, None)


def test_a_log_that_somebody_emptied_is_read_from_its_new_start(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    paths.launcher_log.write_text("loading a lot of things\n" + nano(1, 2, 3))
    assert reader.look().step == 3
    paths.launcher_log.write_text(nano(4))
    look = reader.look()
    assert (look.step, look.alive) == (4, True)


@given(st.binary(max_size=300), st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_in_log_and_arrivals_are_read_without_a_word(tmp_path: Path, log: bytes, arrivals: bytes) -> None:
    folder = tmp_path / "any" / "attempt-1"
    folder.mkdir(parents=True, exist_ok=True)
    paths = AttemptPaths(folder)
    own = WorkloadSpec(name="x", script="x.py", patterns=(r"(?P<step>\S+)",))
    paths.launcher_log.write_bytes(b"nan\ninf\n1e400\n-3\n" + b"[rank" + b"9" * 5000 + b"]: iter 3: loss 1, time 1ms\n" + log)
    paths.arrivals.write_bytes(b"offset_bytes,t,m\n3,nan,0\n8,inf,0\n" + b"9" * 5000 + b",1,1\n" + arrivals)
    for workload in (own, WorkloadSpec(name="x", script="x.py")):
        ProgressReader(spec(workload=workload), paths).look()
