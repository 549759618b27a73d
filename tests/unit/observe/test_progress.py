"""Progress of a run: heartbeats, a script's own lines, memory and disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from seatrial.core import fallback
from seatrial.core.fallback import FALLBACK_DIR
from seatrial.core.paths import AttemptPaths
from seatrial.machine.sampler import CsvWriter
from seatrial.observe.progress import DiskUsage, DiskUsageReader, LastStep, ProgressReader, RankState, latest_activity, latest_rss_bytes
from seatrial.records.plan import WorkloadSpec
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS
from tests.unit.observe.simulated_run import spec


def attempt(tmp_path: Path) -> AttemptPaths:
    folder = tmp_path / "run_r1" / "attempt-1"
    folder.mkdir(parents=True)
    return AttemptPaths(folder)


def heartbeat(paths: AttemptPaths, rank: int, step: int | None, **more: object) -> None:
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


def test_slowest_rank_counts(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    heartbeat(paths, 0, 7)
    heartbeat(paths, 1, None)
    reader = ProgressReader(spec(steps=20), paths)
    assert (reader.read().step, reader.read().alive) == (None, False)
    heartbeat(paths, 1, 5)
    look = reader.read()
    assert (look.step, look.total, look.alive, look.phase) == (5, 20, True, "step")


def test_a_script_that_prints_no_step_is_alive_once_it_prints(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    paths.launcher_log.write_text("hello\n")
    look = reader.read()
    assert (look.step, look.alive) == (None, True)


def test_own_pattern(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    mine = WorkloadSpec(name="x", script="x.py", patterns=(r"tick (?P<step>\d+)",))
    reader = ProgressReader(spec(workload=mine), paths)
    paths.launcher_log.write_text("tick 4\niter 9: loss 1.0, time 1.0ms\n")
    assert reader.read().step == 4


def test_every_rank_that_has_ended_a_step_has_its_step(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    heartbeat(paths, 0, 7, ts=105.0, step_t=103.5, iter_ms_p50=12.5, paused_s=1.5)
    heartbeat(paths, 1, None, ts=105.0, step_t=None, iter_ms_p50=None, paused_s=None)
    assert ProgressReader(spec(), paths).read().last_steps == (LastStep(rank=0, step=7, step_t=103.5, paused_s=1.5, iter_ms_p50=12.5),)


def test_a_heartbeat_of_before_these_fields_marks_the_time_it_was_written(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    heartbeat(paths, 0, 7, ts=105.0)
    heartbeat(paths, 1, 7)
    assert ProgressReader(spec(), paths).read().last_steps == (LastStep(rank=0, step=7, step_t=105.0),)


def test_a_script_s_step_is_when_its_line_arrived_and_its_pace_that_between_lines(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    say(paths, "loading\n" + nano(0), t=10.0)
    assert reader.read().last_steps == (LastStep(rank=0, step=0, step_t=10.0),)
    say(paths, nano(10), t=11.0)
    say(paths, nano(20), t=13.0)
    say(paths, nano(30) + "saving\n", t=14.0)
    assert reader.read().last_steps == (LastStep(rank=0, step=30, step_t=14.0, iter_ms_p50=100.0),)


def test_where_each_rank_stands(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    heartbeat(paths, 0, 7, ts=105.0, pid=31, host="a", attempt=1)
    heartbeat(paths, 1, None, ts=106.0, pid=32, host="b", attempt=1)
    size = [paths.heartbeat(rank).stat().st_size for rank in (0, 1)]
    assert ProgressReader(spec(), paths).read().rank_states == (
        RankState(rank=0, step=7, phase="step", pid=31, host="a", heartbeat_t=105.0, heartbeat_bytes=size[0]),
        RankState(rank=1, step=None, phase="step", pid=32, host="b", heartbeat_t=106.0, heartbeat_bytes=size[1]),
    )


def test_a_run_whose_ranks_were_restarted_stays_alive(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    heartbeat(paths, 0, 7, pid=31)
    assert reader.read().alive
    heartbeat(paths, 0, None, pid=32)
    look = reader.read()
    assert (look.step, look.alive) == (None, True)
    heartbeat(paths, 1, None)
    assert not reader.read().alive


def test_what_it_holds(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    paths.launcher_log.write_text("x" * 1000)
    rows = CsvWriter(paths.host_telemetry, HOST_COLUMNS)
    rows.append([{"rss_kib": 2048}])
    rows.close()
    look = ProgressReader(spec(), paths).read()
    assert (look.output_bytes, look.memory_bytes, look.disk.largest_file) == (1000, 2048 * 1024, "launcher.log")
    assert look.disk.bytes == 1000 + paths.host_telemetry.stat().st_size


def test_output_that_a_failing_disk_sent_elsewhere_is_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FALLBACK_DIR, str(tmp_path / "elsewhere"))
    paths = attempt(tmp_path)
    say(paths, "loading\n", t=1.0)
    reader = ProgressReader(spec(), paths)
    before = reader.read().output_bytes
    assert fallback.spill_bytes(fallback.real(paths.launcher_log), b"more\n", "Input/output error", 0o644)
    assert reader.read().output_bytes > before


def test_files_that_cannot_be_read_are_as_none(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    for path in (paths.launcher_log, paths.arrivals, paths.host_telemetry, paths.heartbeat(0)):
        path.mkdir()
    look = ProgressReader(spec(), paths).read()
    assert (look.step, look.alive, look.memory_bytes) == (None, False, None)


@pytest.fixture
def telemetry(tmp_path: Path) -> Path:
    return tmp_path / "host_telemetry.csv"


def sample(path: Path, *rss_kib: int | None) -> None:
    rows = CsvWriter(path, HOST_COLUMNS)
    rows.append([{"load1": 0.5, "rss_kib": value} for value in rss_kib])
    rows.close()


@pytest.mark.parametrize(("samples", "expected_kib"), [((100, 300, 200), 200), ((100, None), 100), (range(20_000), 19_999)])
def test_the_newest_sample_with_memory_counts(telemetry: Path, samples: Sequence[int | None], expected_kib: int) -> None:
    sample(telemetry, *samples)
    assert latest_rss_bytes(telemetry) == expected_kib * 1024


def test_a_torn_row_is_not_half_a_number(telemetry: Path) -> None:
    sample(telemetry, 100, 987_654)
    text = telemetry.read_bytes()
    telemetry.write_bytes(text[: text.rindex(b"987") + 3])
    assert latest_rss_bytes(telemetry) == 100 * 1024


def test_no_file_no_rows_and_a_folder_in_its_place(telemetry: Path) -> None:
    assert latest_rss_bytes(telemetry) is None
    sample(telemetry)
    assert latest_rss_bytes(telemetry) is None
    assert latest_rss_bytes(telemetry.parent) is None


@pytest.mark.parametrize("cell", [b"nan", b"inf", b"-5", b"1e300", b"x", b""])
def test_a_number_that_cannot_be_is_none(telemetry: Path, cell: bytes) -> None:
    telemetry.write_bytes(b",".join(cell if name == "rss_kib" else b"1" for name in HOST_COLUMNS) + b"\n")
    assert latest_rss_bytes(telemetry) is None


def test_what_an_attempt_has_written_is_counted_now_and_then(tmp_path: Path) -> None:
    attempt, now = AttemptPaths(tmp_path / "attempt-1"), [0.0]
    ranks = attempt.rank_logs / "x" / "attempt_0" / "1"
    ranks.mkdir(parents=True)
    attempt.stacks.mkdir()
    (attempt.folder / "other").mkdir()
    attempt.launcher_log.write_bytes(b"x" * 1000)
    (ranks / "stdout.log").write_bytes(b"x" * 3000)
    attempt.rank_stack(0).write_bytes(b"x" * 50)
    (attempt.folder / "other" / "model.bin").write_bytes(b"x" * 9000)
    (attempt.folder / "link.bin").symlink_to(attempt.folder / "other" / "model.bin")
    count = DiskUsageReader(attempt, monotonic=lambda: now[0])

    expected = DiskUsage(bytes=4050, largest_file="ranks/x/attempt_0/1/stdout.log", largest_bytes=3000)
    assert count.read() == expected
    attempt.launcher_log.write_bytes(b"x" * 5000)
    now[0] = 4.9
    assert count.read() == expected
    now[0] = 5.0
    assert count.read() == DiskUsage(bytes=8050, largest_file="launcher.log", largest_bytes=5000)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert DiskUsageReader(AttemptPaths(tmp_path / "attempt-1")).read() == DiskUsage()


def test_activity_is_that_of_the_newest_samples(tmp_path: Path) -> None:
    attempt = AttemptPaths(tmp_path)
    assert latest_activity([attempt]) is None
    hosts = CsvWriter(attempt.host_telemetry, HOST_COLUMNS)
    hosts.append([{"epoch_sec": 1, "tree_cpu_pct": 250.0, "net_rx_kib_per_s": 5000.0}, {"epoch_sec": 3, "tree_cpu_pct": 0.5}])
    gpus = CsvWriter(attempt.gpu_telemetry, GPU_COLUMNS)
    gpus.append([{"epoch_sec": now, "gpu_index": index, "util_gpu_pct": used} for now, index, used in ((1, 0, 99), (3, 0, 0), (3, 1, 0))])
    idle = latest_activity([attempt])
    assert idle is not None and not idle.is_busy and (idle.cpu_pct, idle.gpu_pct, idle.net_kib_per_s) == (0.5, 0.0, None)
    gpus.append([{"epoch_sec": 5, "gpu_index": index, "util_gpu_pct": used} for index, used in ((0, 0), (1, 100))])
    busy = latest_activity([attempt, attempt.node("other")])
    assert busy is not None and busy.text == "GPU 100 %"
