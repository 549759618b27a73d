"""The dummy's slow, uneven and hungry orders: in its arithmetic, and in what real ranks report."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from seatrial_workloads.dummy.pace import Pace, compute_ms, run_factor
from seatrial_workloads.dummy.settings import Settings
from tests.workloads.ranks import column, events, run_ranks

STILL = {"step_ms": 20, "jitter_ratio": 0}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def times(**orders: object) -> list[float]:
    return [compute_ms(Settings(**{**STILL, "steps": 7, **orders}), 0, step) for step in range(7)]  # type: ignore[arg-type]


def test_step_times_of_each_order() -> None:
    assert times(shift_at_step=4, shift_factor=2.0) == [20, 20, 20, 20, 40, 40, 40]
    assert times(uneven_every=3, uneven_factor=3.0) == [20, 20, 20, 60, 20, 20, 60]


def test_waits_of_each_order() -> None:
    pace = Pace(settings=Settings(data_wait_ms=4, burst_every=3, burst_ms=50), rank=0)
    assert [pace.wait_ms(step) for step in range(5)] == [4, 4, 4, 54, 4]


@pytest.mark.parametrize("phase", ["data_wait", "fwd", "bwd", "step"])
def test_a_slow_ranks_time_goes_into_the_phase_that_was_ordered(phase: str) -> None:
    settings = Settings(step_ms=20, jitter_ratio=0, slow_rank=1, slow_factor=1.5, slow_phase=phase)
    slow, other = (Pace(settings=settings, rank=rank) for rank in (1, 0))
    more = {name: slow.phase_ms(3, name) - other.phase_ms(3, name) for name in ("fwd", "bwd", "step")}
    more["data_wait"] = slow.wait_ms(3) - other.wait_ms(3)
    assert {name: round(ms, 6) for name, ms in more.items() if ms} == {phase: 10}


def test_a_slow_rank_is_slow_all_over_unless_a_phase_is_named() -> None:
    slow = Pace(settings=Settings(step_ms=20, jitter_ratio=0, slow_rank=0, slow_factor=2.0), rank=0)
    assert [slow.phase_ms(1, name) for name in ("fwd", "bwd", "step")] == pytest.approx([14, 22, 4])
    assert slow.wait_ms(1) == 0


def test_repeats_differ_by_their_name_the_same_way_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_a_campaign_drifts_by_the_runs_begun_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_a_saw_tooth_gives_its_memory_back(run_dir: Path) -> None:
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


def test_a_drift_that_was_ordered_by_hand_is_told(run_dir: Path) -> None:
    run_ranks("dummy", run_dir, steps=2, step_ms=0, drift_per_run=0.1)
    (told,) = events(run_dir, "effective")
    assert (told["setting"], told["effective"]) == ("drift_per_run", 0.0) and "by hand" in told["reason"]


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ({"slow_phase": "sleep"}, "slow_phase is 'sleep'; expected one of all, data_wait, fwd, bwd, step"),
        ({"slow_phase": "fwd", "slow_factor": 0.5}, "with a slow_phase it must be 1 or more"),
        ({"repeat_spread": 1.0}, "repeat_spread is 1.0; it must be at least 0 and below 1"),
        ({"drift_per_run": -1.0}, "drift_per_run is -1.0; it must be above -1"),
        ({"shift_at_step": 9, "steps": 9}, r"shift_at_step \(9\) lies after the last step \(8\)"),
        ({"uneven_every": 0}, "uneven_every is 0; it must be 1 or more"),
        ({"burst_every": 0}, "burst_every is 0; it must be 1 or more"),
        ({"uneven_factor": 0.0}, r"uneven_factor is 0.0; it must be above 0"),
        ({"cache_steps": 0}, "cache_steps is 0; it must be 1 or more"),
    ],
)
def test_orders_that_cannot_be_are_refused(orders: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**orders)  # type: ignore[arg-type]
