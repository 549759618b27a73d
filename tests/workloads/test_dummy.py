"""The dummy workload, by real processes."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys

import pytest

from seatrial_workloads.dummy.pace import compute_ms
from seatrial_workloads.dummy.settings import Settings
from seatrial_workloads.dummy.train import loss_at
from tests.workloads import ranks
from tests.workloads.ranks import column, events, rank_environment, run_ranks

ASKED = {"SEATRIAL_RANK_SCOPE": "all", "SEATRIAL_ETA_MODE": "global_max"}
HUMAN_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - seatrial - INFO - (.*)")


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "run"


def test_two_ranks_end_well_and_leave_every_file(run_dir):
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
    said = [HUMAN_LINE.fullmatch(line).group(1) for line in done.stdout.splitlines()]
    assert [line for line in said if line.startswith("Step ")] == ["Step 0: Loss 4.0000", "Step 10: Loss 1.2810", "Step 19: Loss 0.7025"]
    assert sum(line.startswith("Timing(window=100): ") for line in said) == 3
    assert any(line.startswith("TimingETA step=19 remain_steps=0 eta_sec=0.0 eta_hms=00:00:00 mode=rank0 ") for line in said)
    assert (run_dir / "train.log").read_text() == done.stdout


def test_every_rank_has_a_line_of_its_own_and_all_agree_on_the_time_to_go(run_dir, monkeypatch):
    monkeypatch.setattr(ranks, "rank_environment", lambda rank, size: {**rank_environment(rank, size), **ASKED})
    done = run_ranks("dummy", run_dir, world_size=2, steps=31, step_ms=4, log_every=15, slow_rank=1)
    assert done.returncodes == [0, 0], done.stderr
    text = (run_dir / "train.log").read_text()
    assert sorted(re.findall(r"TimingRank step=(\d+) rank=(\d+) loss=", text)) == sorted(
        (step, rank) for step in ("0", "15", "30") for rank in ("0", "1")
    )
    said = re.findall(r"TimingETA step=(\d+) remain_steps=(\d+) .* mode=(\w+)", text)
    assert said == [("15", "15", "global_max"), ("30", "0", "global_max")]
    assert all(HUMAN_LINE.fullmatch(line) for line in text.splitlines()), "ranks that write at once tear no line"
    assert "rank=1" not in done.stdout, "each rank speaks on its own stdout"


def test_the_start_up_is_told_by_its_parts(run_dir):
    run_ranks("dummy", run_dir, world_size=2, steps=2, step_ms=2)
    assert [span["name"] for span in events(run_dir, "span", rank=1)] == ["process_group", "data"]
    (start,) = events(run_dir, "start", rank=1)
    assert 0 <= start["t"] - start["process_t"] < 60


def test_the_barrier_keeps_the_ranks_in_step(run_dir):
    run_ranks("dummy", run_dir, world_size=3, steps=12, step_ms=5, jitter_ratio=0.5)
    ends = [column(run_dir, "m", rank) for rank in range(3)]
    for step in range(1, 12):
        earliest, latest = min(rank[step] for rank in ends), max(rank[step - 1] for rank in ends)
        assert earliest > latest, "no rank ends a step before every rank has ended the one before"


def test_a_slow_rank_is_seen_in_its_own_work_and_in_the_wait_of_the_others(run_dir):
    run_ranks("dummy", run_dir, world_size=2, steps=12, step_ms=20, slow_rank=1, slow_factor=3.0)
    fast_fwd, slow_fwd = (statistics.median(column(run_dir, "fwd_ms", rank)) for rank in (0, 1))
    assert slow_fwd > 2 * fast_fwd
    fast_bwd = statistics.median(column(run_dir, "bwd_ms", 0))
    assert fast_bwd > 3 * fast_fwd, "it waits for the slow one in the barrier"


@pytest.mark.parametrize(("crash_with", "returncode"), [("exception", 1), ("exit", 42)])
def test_a_crash_ends_every_rank_and_none_has_stopped_well(run_dir, crash_with, returncode):
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
    last_beat = json.loads((run_dir / "heartbeat_rank0.jsonl").read_text().splitlines()[-1])
    assert (last_beat["step"], last_beat["msg"]) == (None, "ended without reaching its end")


def test_the_loss_of_rank_0_leaves_nobody_hanging(run_dir):
    done = run_ranks("dummy", run_dir, world_size=3, steps=10, step_ms=2, crash_at_step=2, crash_rank=0)
    assert done.returncodes == [1, 1, 1]
    assert all("rank 0 was lost at step 2" in stderr for stderr in done.stderr[1:])


def test_a_loss_that_turns_nan_is_said_in_log_and_events(run_dir):
    done = run_ranks("dummy", run_dir, steps=10, step_ms=1, loss="nan", log_every=5)
    assert [loss == "nan" for loss in column(run_dir, "loss")] == [False] * 5 + [True] * 5
    assert "Step 9: Loss nan" in done.stdout


def test_checkpoint_pauses_do_not_count(run_dir):
    run_ranks("dummy", run_dir, steps=9, step_ms=2, pause_every=4, pause_ms=200)
    assert [(pause["name"], pause["step"]) for pause in events(run_dir, "pause")] == [("checkpoint", 5), ("checkpoint", 9)]
    assert all(pause["pause_ms"] >= 200 for pause in events(run_dir, "pause"))
    assert statistics.median(column(run_dir, "iter_ms")) < 100


def test_memory_leaks_to_order(run_dir):
    run_ranks("dummy", run_dir, steps=21, step_ms=0, leak_mib_per_step=4, log_every=10)
    assert [event["step"] for event in events(run_dir, "memory")] == [0, 10, 20]
    first, middle, last = (event["rss_mib"] for event in events(run_dir, "memory"))
    assert 35 <= middle - first <= 50
    assert 35 <= last - middle <= 50


@pytest.mark.parametrize(("setting", "others"), [("slow_rank", {}), ("crash_rank", {"crash_at_step": 0})])
def test_a_fault_ordered_of_a_rank_that_is_not_there_is_told(run_dir, setting, others):
    done = run_ranks("dummy", run_dir, steps=3, step_ms=0, **{setting: 5}, **others)
    assert done.returncodes == [0]
    (told,) = events(run_dir, "effective")
    assert (told["setting"], told["requested"], told["effective"]) == (setting, 5, None)


def test_a_stale_barrier_file_does_no_harm(run_dir):
    run_dir.mkdir()
    (run_dir / "barrier.json").write_text('{"port": 1, "secret": "00"}')
    assert run_ranks("dummy", run_dir, world_size=2, steps=3, step_ms=0).returncodes == [0, 0]


def test_it_imports_neither_torch_nor_anything_foreign():
    script = "import sys, seatrial_workloads.dummy.train; print([n for n in ('torch', 'numpy', 'pydantic', 'psutil') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_step_times_follow_the_order():
    still = Settings(step_ms=20, jitter_ratio=0, steps=11)
    assert compute_ms(still, 0, 0) == 20
    assert compute_ms(Settings(step_ms=20, jitter_ratio=0, micro_batch=24), 0, 0) == 40
    warming = Settings(step_ms=20, jitter_ratio=0, warmup_steps=2)
    assert [compute_ms(warming, 0, step) for step in range(4)] == [60, 60, 20, 20]
    drifting = Settings(step_ms=20, jitter_ratio=0, drift_ratio=1.5, steps=11)
    assert [compute_ms(drifting, 0, step) for step in (0, 10)] == pytest.approx([20, 30])
    assert compute_ms(Settings(step_ms=20, jitter_ratio=0, slow_rank=1), 1, 5) == 40


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
