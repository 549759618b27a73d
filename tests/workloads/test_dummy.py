"""The dummy workload: configured step times, memory and waits, and ranks that wait for each other."""

from __future__ import annotations

import json
import re
import socket
import statistics
import threading
from pathlib import Path

import pytest

from seatrial.core.text import MIB
from seatrial_workloads.dummy.barrier import Barrier, rendezvous_host
from seatrial_workloads.dummy.settings import Settings
from seatrial_workloads.dummy.timing import Pace, allocate, compute_ms, run_factor
from seatrial_workloads.dummy.train import loss_at
from tests.workloads import ranks
from tests.workloads.ranks import column, events, rank_environment, run_ranks

ALL_RANKS = {"SEATRIAL_RANK_SCOPE": "all", "SEATRIAL_ETA_MODE": "global_max"}
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - seatrial - INFO - (.*)")


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "run"


def test_two_ranks_finish_and_leave_every_file(run_dir):
    done = run_ranks("dummy", run_dir, world_size=2, steps=20, step_ms=4, log_every=10)
    assert done.returncodes == [0, 0], done.stderr
    for rank in (0, 1):
        assert column(run_dir, "step", rank) == list(range(20))
        assert set(column(run_dir, "samples", rank)) == {8}
        assert len(events(run_dir, "stop", rank)) == 1
    assert {path.name for path in run_dir.iterdir()} == {
        "events_rank0.jsonl",
        "events_rank1.jsonl",
        "heartbeat_rank0.jsonl",
        "heartbeat_rank1.jsonl",
        "train.log",
    }
    lines = [LOG_LINE.fullmatch(line).group(1) for line in done.stdout.splitlines()]
    assert [line for line in lines if line.startswith("Step ")] == ["Step 0: Loss 4.0000", "Step 10: Loss 1.2810", "Step 19: Loss 0.7025"]
    assert sum(line.startswith("Timing(window=100): ") for line in lines) == 3
    assert any(line.startswith("TimingETA step=19 remain_steps=0 eta_sec=0.0 eta_hms=00:00:00 mode=rank0 ") for line in lines)
    assert (run_dir / "train.log").read_text() == done.stdout
    assert [span["name"] for span in events(run_dir, "span", rank=1)] == ["process_group", "data"]
    (start,) = events(run_dir, "start", rank=1)
    assert 0 <= start["t"] - start["process_t"] < 60


def test_every_rank_logs_its_timing_and_all_share_one_eta(run_dir, monkeypatch):
    monkeypatch.setattr(ranks, "rank_environment", lambda rank, size: {**rank_environment(rank, size), **ALL_RANKS})
    done = run_ranks("dummy", run_dir, world_size=2, steps=31, step_ms=4, log_every=15, slow_rank=1)
    assert done.returncodes == [0, 0], done.stderr
    text = (run_dir / "train.log").read_text()
    assert sorted(re.findall(r"TimingRank step=(\d+) rank=(\d+) loss=", text)) == sorted(
        (step, rank) for step in ("0", "15", "30") for rank in ("0", "1")
    )
    etas = re.findall(r"TimingETA step=(\d+) remain_steps=(\d+) .* mode=(\w+)", text)
    assert etas == [("15", "15", "global_max"), ("30", "0", "global_max")]
    assert all(LOG_LINE.fullmatch(line) for line in text.splitlines()), "concurrent writes tear no line"
    assert "rank=1" not in done.stdout, "each rank prints to its own stdout"


def test_the_barrier_keeps_the_ranks_in_step(run_dir):
    run_ranks("dummy", run_dir, world_size=3, steps=12, step_ms=5, jitter_ratio=0.5)
    ends = [column(run_dir, "m", rank) for rank in range(3)]
    for step in range(1, 12):
        earliest, latest = min(rank[step] for rank in ends), max(rank[step - 1] for rank in ends)
        assert earliest > latest, "no rank ends a step before every rank has ended the one before"


def test_a_slow_rank_shows_in_its_own_forward_and_in_the_backward_of_the_others(run_dir):
    run_ranks("dummy", run_dir, world_size=2, steps=12, step_ms=20, slow_rank=1, slow_factor=3.0)
    fast_fwd, slow_fwd = (statistics.median(column(run_dir, "fwd_ms", rank)) for rank in (0, 1))
    assert slow_fwd > 2 * fast_fwd
    fast_bwd = statistics.median(column(run_dir, "bwd_ms", 0))
    assert fast_bwd > 3 * fast_fwd, "it waits for the slow one in the barrier"


@pytest.mark.parametrize(("crash_with", "returncode"), [("exception", 1), ("exit", 42)])
def test_a_crash_ends_every_rank_without_a_stop_event(run_dir, crash_with, returncode):
    done = run_ranks(
        "dummy", run_dir, world_size=2, steps=10, step_ms=2, crash_at_step=4, crash_rank=1, crash_with=crash_with, exit_code=42
    )
    assert done.returncodes == [1, returncode]
    assert "rank 1 was lost at step 4" in done.stderr[0]
    assert ("ordered crash of rank 1 at step 4" in done.stderr[1]) is (crash_with == "exception")
    for rank in (0, 1):
        assert column(run_dir, "step", rank) == [0, 1, 2, 3]
        assert events(run_dir, "stop", rank) == []


def test_a_crash_in_step_0_leaves_no_step(run_dir):
    done = run_ranks("dummy", run_dir, steps=1, step_ms=0, crash_at_step=0)
    assert done.returncodes == [1]
    assert "ordered crash of rank 0 at step 0" in done.stderr[0]
    assert (column(run_dir, "step"), events(run_dir, "stop")) == ([], [])
    heartbeat = json.loads((run_dir / "heartbeat_rank0.jsonl").read_text().splitlines()[-1])
    assert (heartbeat["step"], heartbeat["msg"]) == (None, "ended without reaching its end")


def test_when_rank_0_crashes_no_rank_hangs(run_dir):
    done = run_ranks("dummy", run_dir, world_size=3, steps=10, step_ms=2, crash_at_step=2, crash_rank=0)
    assert done.returncodes == [1, 1, 1]
    assert all("rank 0 was lost at step 2" in stderr for stderr in done.stderr[1:])


def test_a_nan_loss_is_in_log_and_events(run_dir):
    done = run_ranks("dummy", run_dir, steps=10, step_ms=1, loss="nan", log_every=5)
    assert [loss == "nan" for loss in column(run_dir, "loss")] == [False] * 5 + [True] * 5
    assert "Step 9: Loss nan" in done.stdout


def test_checkpoint_pauses_do_not_count(run_dir):
    run_ranks("dummy", run_dir, steps=9, step_ms=2, pause_every=4, pause_ms=200)
    assert [(pause["name"], pause["step"]) for pause in events(run_dir, "pause")] == [("checkpoint", 5), ("checkpoint", 9)]
    assert all(pause["pause_ms"] >= 200 for pause in events(run_dir, "pause"))
    assert statistics.median(column(run_dir, "iter_ms")) < 100


def test_memory_leaks_as_configured(run_dir):
    run_ranks("dummy", run_dir, steps=21, step_ms=0, leak_mib_per_step=4, log_every=10)
    assert [event["step"] for event in events(run_dir, "memory")] == [0, 10, 20]
    first, middle, last = (event["rss_mib"] for event in events(run_dir, "memory"))
    assert 35 <= middle - first <= 50
    assert 35 <= last - middle <= 50


@pytest.mark.parametrize(
    ("setting", "requested", "effective", "others"),
    [
        ("slow_rank", 5, None, {}),
        ("crash_rank", 5, None, {"crash_at_step": 0}),
        ("hang_rank", 5, None, {"hang_at_step": 1}),
        ("drift_per_run", 0.1, 0.0, {}),
    ],
)
def test_a_setting_without_effect_is_recorded(run_dir, setting, requested, effective, others):
    """A fault of a rank that does not exist, and a drift over the runs of no campaign."""
    done = run_ranks("dummy", run_dir, steps=3, step_ms=0, **{setting: requested}, **others)
    assert done.returncodes == [0]
    (event,) = events(run_dir, "effective")
    assert (event["setting"], event["requested"], event["effective"]) == (setting, requested, effective)


def test_jitter_is_the_same_for_one_seed_and_stays_in_bounds():
    settings, other = Settings(jitter_ratio=0.2, seed=1), Settings(jitter_ratio=0.2, seed=2)
    times = [compute_ms(settings, 0, step) for step in range(50)]
    assert times == [compute_ms(settings, 0, step) for step in range(50)]
    assert times != [compute_ms(other, 0, step) for step in range(50)]
    assert times != [compute_ms(settings, 1, step) for step in range(50)]
    assert all(16 <= ms <= 24 for ms in times)


def test_losses_fall_or_stay():
    falling = [loss_at(Settings(steps=10), step) for step in range(10)]
    assert falling == sorted(falling, reverse=True)
    assert {loss_at(Settings(loss="flat"), step) for step in range(10)} == {4.0}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [20] * 7),
        ({"micro_batch": 24}, [40] * 7),
        ({"warmup_steps": 2}, [60, 60, 20, 20, 20, 20, 20]),
        ({"drift_ratio": 1.6}, [20, 22, 24, 26, 28, 30, 32]),
        ({"shift_at_step": 4, "shift_factor": 2.0}, [20, 20, 20, 20, 40, 40, 40]),
        ({"uneven_every": 3, "uneven_factor": 3.0}, [20, 20, 20, 60, 20, 20, 60]),
        ({"slow_rank": 0}, [40] * 7),
        ({"slow_rank": 1}, [20] * 7),
    ],
)
def test_step_times(settings, expected):
    still = Settings(**{"step_ms": 20, "jitter_ratio": 0, "steps": 7, **settings})
    assert [compute_ms(still, 0, step) for step in range(7)] == pytest.approx(expected)


def test_waits_for_data() -> None:
    pace = Pace(settings=Settings(data_wait_ms=4, burst_every=3, burst_ms=50), rank=0)
    assert [pace.wait_ms(step) for step in range(5)] == [4, 4, 4, 54, 4]


@pytest.mark.parametrize("phase", ["data_wait", "fwd", "bwd", "step"])
def test_a_slow_rank_is_slow_in_the_configured_phase(phase: str) -> None:
    settings = Settings(step_ms=20, jitter_ratio=0, slow_rank=1, slow_factor=1.5, slow_phase=phase)
    slow, other = (Pace(settings=settings, rank=rank) for rank in (1, 0))
    more = {name: slow.phase_ms(3, name) - other.phase_ms(3, name) for name in ("fwd", "bwd", "step")}
    more["data_wait"] = slow.wait_ms(3) - other.wait_ms(3)
    assert {name: round(ms, 6) for name, ms in more.items() if ms} == {phase: 10}


def test_a_slow_rank_is_slow_in_every_phase_by_default() -> None:
    slow = Pace(settings=Settings(step_ms=20, jitter_ratio=0, slow_rank=0, slow_factor=2.0), rank=0)
    assert [slow.phase_ms(1, name) for name in ("fwd", "bwd", "step")] == pytest.approx([14, 22, 4])
    assert slow.wait_ms(1) == 0


def test_repeats_spread_reproducibly_by_run_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def factor(run: str, seed: int = 0) -> float:
        monkeypatch.setenv("SEATRIAL_RUN", run)
        return run_factor(Settings(repeat_spread=0.2, seed=seed), tmp_path)

    first = [factor(f"a_r{repeat}") for repeat in range(1, 30)]
    assert first == [factor(f"a_r{repeat}") for repeat in range(1, 30)]
    assert len(set(first)) == len(first) and all(0.8 <= value <= 1.2 for value in first)
    assert max(first) - min(first) > 0.2
    assert factor("a_r1", seed=1) != first[0]
    monkeypatch.setenv("SEATRIAL_RUN", "a_r1")
    assert run_factor(Settings(), tmp_path) == 1.0


def test_a_campaign_drifts_by_the_number_of_earlier_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(drift_per_run=0.1)
    monkeypatch.setenv("SEATRIAL_RUN", "any")
    found = []
    for name in ("a_r1", "sentinel_r1", "a_r2"):
        own = tmp_path / name / "attempt-1"
        own.mkdir(parents=True)
        found.append(run_factor(settings, own))
    assert found == pytest.approx([1.0, 1.1, 1.21])
    again = tmp_path / "a_r1" / "attempt-2"
    again.mkdir()
    assert run_factor(settings, again) == pytest.approx(1.21)
    monkeypatch.delenv("SEATRIAL_RUN")
    assert run_factor(settings, again) == 1.0


def test_saw_tooth_memory_is_freed(run_dir: Path) -> None:
    run_ranks("dummy", run_dir, steps=21, step_ms=0, saw_mib=40, saw_every=10, log_every=9)
    first, full, again, back = (event["rss_mib"] for event in events(run_dir, "memory"))
    assert full - first > 30 and again - first > 25 and again - back > 25


def test_bursts_are_waits_for_data(run_dir: Path) -> None:
    run_ranks("dummy", run_dir, steps=12, step_ms=2, burst_every=4, burst_ms=60)
    waits = column(run_dir, "data_wait_ms")
    assert [step for step, ms in enumerate(waits) if ms >= 60] == [4, 8]
    assert statistics.median(waits) < 30


def test_a_cache_that_fills_stays_full(run_dir: Path) -> None:
    run_ranks("dummy", run_dir, steps=31, step_ms=0, cache_mib=40, cache_steps=10, log_every=10)
    first, full, later, last = (event["rss_mib"] for event in events(run_dir, "memory"))
    assert full - first > 30 and abs(last - later) < 8 and abs(last - full) < 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slow_phase": "sleep"}, "slow_phase is 'sleep'; expected one of"),
        ({"hang_in": "rust"}, "hang_in is 'rust'"),
        ({"crash_with": "boredom"}, "crash_with is 'boredom'"),
        ({"output": "some"}, "output is 'some'"),
        ({"lies": "white"}, "lies is 'white'"),
        ({"loss": "rises"}, "loss is 'rises'"),
        ({"slow_phase": "fwd", "slow_factor": 0.5}, "with a slow_phase it must be 1 or more"),
        ({"repeat_spread": 1.0}, "repeat_spread is 1.0; it must be at least 0 and below 1"),
        ({"jitter_ratio": -0.1}, "jitter_ratio is -0.1"),
        ({"drift_per_run": -1.0}, "drift_per_run is -1.0; it must be above -1"),
        ({"uneven_factor": 0.0}, "uneven_factor is 0.0; it must be above 0"),
        ({"shift_at_step": 9, "steps": 9}, r"shift_at_step \(9\) lies after the last step \(8\)"),
        ({"skip_all_steps": True, "crash_at_step": 2}, "crash_at_step is 2, but skip_all_steps runs no step"),
        ({"exit_code": 256}, "exit_code is 256"),
        ({"exit_code": -1}, "exit_code is -1"),
        *(({name: 0}, f"{name} is 0; it must be 1 or more") for name in ("steps", "uneven_every", "burst_every", "cache_steps")),
        *(({name: -1}, f"{name} is -1; it must be 0 or more") for name in ("crash_at_step", "hang_at_step", "slow_rank")),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mib", "sizes"), [(0, []), (1e-9, []), (0.25, [MIB // 4])])
def test_allocated_blocks_have_the_size_and_every_page_is_touched(mib: float, sizes: list[int]) -> None:
    blocks = allocate(mib)
    assert [len(block) for block in blocks] == sizes
    assert all(block[page] == 1 for block in blocks for page in range(0, len(block), 4096))


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({}, "127.0.0.1"),
        ({"MASTER_ADDR": "node1"}, "127.0.0.1"),
        ({"MASTER_ADDR": "node1", "LOCAL_WORLD_SIZE": "4"}, "127.0.0.1"),
        ({"MASTER_ADDR": "node1", "LOCAL_WORLD_SIZE": "2"}, "node1"),
        ({"MASTER_ADDR": "node1", "LOCAL_SIZE": "2"}, "node1"),
        ({"LOCAL_WORLD_SIZE": "2"}, "127.0.0.1"),
    ],
)
def test_ranks_meet_on_loopback_unless_on_several_hosts(variables: dict[str, str], host: str) -> None:
    assert rendezvous_host(4, variables) == host


def assert_ranks_meet(run_dir: Path, before_rank_0: threading.Event) -> None:
    """Rank 1 starts first; rank 0 follows after the event, or a moment."""
    finished: list[int] = []
    other = threading.Thread(target=pass_barrier, args=(run_dir, 1, finished), daemon=True)
    other.start()
    before_rank_0.wait(timeout=0.2)
    pass_barrier(run_dir, 0, finished)
    other.join(timeout=60)
    assert sorted(finished) == [0, 1]


def pass_barrier(run_dir: Path, rank: int, finished: list[int]) -> None:
    with Barrier(run_dir, rank, world_size=2) as barrier:
        barrier.join()
        barrier.wait(3)
        finished.append(rank)


@pytest.mark.parametrize("text", ["", "[]", '{"port": 1, "secret": "00"}', '{"host": "127.0.0.1", "port": 1, "secret": "zz"}'])
def test_a_stale_barrier_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "barrier.json").write_text(text)
    assert_ranks_meet(tmp_path, threading.Event())


def test_a_stale_file_with_another_programs_port_is_ignored(tmp_path: Path) -> None:
    answered = threading.Event()

    def answer(server: socket.socket) -> None:
        while True:
            try:
                stranger, _ = server.accept()
            except OSError:
                return
            stranger.sendall(b"220 this is no barrier at all\r\n")
            stranger.close()
            answered.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        stale = {"host": "127.0.0.1", "port": server.getsockname()[1], "secret": "00" * 16}
        (tmp_path / "barrier.json").write_text(json.dumps(stale))
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        assert_ranks_meet(tmp_path, answered)
    assert answered.is_set()


def test_a_client_without_the_secret_does_not_end_the_run(tmp_path: Path) -> None:
    finished: list[int] = []
    first = threading.Thread(target=pass_barrier, args=(tmp_path, 0, finished), daemon=True)
    first.start()
    while not (tmp_path / "barrier.json").exists():
        threading.Event().wait(0.005)
    port = json.loads((tmp_path / "barrier.json").read_text())["port"]
    socket.create_connection(("127.0.0.1", port)).close()
    with socket.create_connection(("127.0.0.1", port)) as impostor:
        impostor.sendall(bytes(20))
    pass_barrier(tmp_path, 1, finished)
    first.join(timeout=60)
    assert sorted(finished) == [0, 1]
