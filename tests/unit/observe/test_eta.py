"""ETA of a run under way and of its campaign."""

from __future__ import annotations

import pytest

from seatrial.observe.eta import CurrentRun, RunEtaTracker, TimeLeft, campaign_eta
from seatrial.observe.progress import LastStep
from tests.unit.observe.simulated_run import spec

NOW_T = 1_794_700_000.0


def last_step(step: int, t: float, *, rank: int = 0, paused_s: float = 0.0, iter_ms_p50: float | None = None) -> LastStep:
    return LastStep(rank=rank, step=step, step_t=NOW_T + t, paused_s=paused_s, iter_ms_p50=iter_ms_p50)


def test_the_time_since_the_newest_step_has_passed_already() -> None:
    eta = RunEtaTracker(1001)
    for look in range(1, 5):
        estimate = eta.update([last_step(look * 50, look * 5.0)], NOW_T + look * 5.0)
    assert estimate.mode == "rank0"
    assert estimate.left is not None
    assert estimate.left.eta_s == pytest.approx(80.0)
    later = eta.update([last_step(200, 20.0)], NOW_T + 23.0).left
    assert later is not None
    assert later.eta_s == pytest.approx(77.0)
    assert later.low_s <= later.eta_s <= later.high_s


def test_a_run_that_stands_still_is_never_less_than_over() -> None:
    eta = RunEtaTracker(100)
    for look in range(1, 5):
        eta.update([last_step(look * 10, look * 1.0)], NOW_T + look)
    left = eta.update([last_step(40, 4.0)], NOW_T + 10_000).left
    assert left is not None
    assert (left.eta_s, left.low_s) == (0.0, 0.0)


def test_silence_is_mistaken_for_progress_for_one_heartbeat_only() -> None:
    eta = RunEtaTracker(1001)
    for look in range(1, 5):
        eta.update([last_step(look * 50, look * 5.0)], NOW_T + look * 5.0)
    stuck = [eta.update([last_step(200, 20.0)], NOW_T + 20.0 + late_s).left for late_s in (6.0, 60.0, 600.0)]
    assert [left.eta_s for left in stuck if left] == [pytest.approx(74.0)] * 3


def test_newest_steps_that_are_far_slower_count_at_once() -> None:
    eta = RunEtaTracker(1001)
    for look in range(1, 5):
        eta.update([last_step(look * 50, look * 5.0, iter_ms_p50=100.0)], NOW_T + look * 5.0)
    estimate = eta.update([last_step(210, 25.0, iter_ms_p50=500.0)], NOW_T + 25.0)
    assert estimate.mode == "fallback_local" and estimate.left is not None
    assert estimate.left.eta_s == pytest.approx(790 * 0.5)


def test_named_pauses_of_heartbeats_are_expected_again() -> None:
    eta = RunEtaTracker(1001)
    for look in range(1, 41):
        step = look * 10
        eta.update([last_step(step, step * 0.1 + step // 100 * 5.0, paused_s=step // 100 * 5.0)], NOW_T)
    rest = eta.rank0(NOW_T)
    assert rest is not None
    assert rest.eta_s == pytest.approx(60.0 + 6 * 5.0, rel=0.02)


def test_the_slowest_rank_where_the_plan_asks_for_it() -> None:
    eta = RunEtaTracker(101, mode="global_max")
    for look in range(1, 6):
        estimate = eta.update([last_step(look * 10, look * 1.0), last_step(look * 10, look * 2.0, rank=1, iter_ms_p50=200.0)], NOW_T)
    assert (estimate.mode, estimate.iter_ms_p50) == ("global_max", 200.0)
    assert estimate.left is not None
    assert estimate.left.eta_s == pytest.approx(10.0)
    rank0 = eta.rank0(NOW_T)
    assert rank0 is not None
    assert rank0.eta_s == pytest.approx(5.0)


def test_a_step_time_alone_is_a_fallback() -> None:
    estimate = RunEtaTracker(101).update([last_step(4, 1.0, iter_ms_p50=250.0)], NOW_T + 1.0)
    assert estimate.mode == "fallback_local"
    assert estimate.left is not None
    assert estimate.left.eta_s == pytest.approx(24.0)
    assert estimate.left.low_s < 24.0 < estimate.left.high_s


@pytest.mark.parametrize(("total", "last_steps"), [(100, []), (100, [last_step(4, 1.0)]), (None, [last_step(4, 1.0, iter_ms_p50=250.0)])])
def test_nothing_is_reported_where_nothing_is_known(total: int | None, last_steps: list[LastStep]) -> None:
    estimate = RunEtaTracker(total).update(last_steps, NOW_T)
    assert (estimate.left, estimate.mode) == (None, "")


def test_switching_the_seeds_lines_off_leaves_the_display() -> None:
    eta = RunEtaTracker(101, mode="off")
    for look in range(1, 6):
        estimate = eta.update([last_step(look * 10, look * 1.0)], NOW_T)
    assert (estimate.mode, estimate.left is None) == ("rank0", False)


def current(elapsed_s: float, left_s: float | None, group_key: str = "now") -> CurrentRun:
    left = None if left_s is None else TimeLeft(eta_s=left_s, low_s=left_s * 0.9, high_s=left_s * 1.1)
    return CurrentRun(group_key=group_key, elapsed_s=elapsed_s, left=left)


def test_campaign_takes_each_groups_own_length_and_the_mean_for_others() -> None:
    todo = [spec(group_key="a"), spec(group_key="b"), spec(group_key="new")]
    found = campaign_eta(todo, {"a": [9.0, 11.0], "b": [20.0]}, current(10.0, 5.0, "a"))
    assert found is not None
    # The run under way is a third one of group a, as long as it is expected to be.
    mean_a_s = (9 + 11 + 15) / 3
    assert found.eta_s == pytest.approx(5 + mean_a_s + 20 + (mean_a_s + 20) / 2)
    assert found.low_s < found.eta_s < found.high_s


def test_campaign_from_the_first_run_alone_counts_its_start_up() -> None:
    found = campaign_eta([spec(), spec()], {}, current(4.0, 6.0))
    assert found is not None
    assert found.eta_s == pytest.approx(6 + 2 * 10)
    assert campaign_eta([spec()], {}, current(4.0, None)) is None
    assert campaign_eta([spec()], {}) is None


def test_a_run_without_steps_is_as_long_as_those_of_its_group() -> None:
    found = campaign_eta([], {"now": [30.0, 30.0]}, current(12.0, None))
    assert found is not None
    assert found.eta_s == pytest.approx(18.0)


def test_repeats_that_disagree_widen_the_interval() -> None:
    todo = [spec(group_key="a")]
    equal, scattered = campaign_eta(todo, {"a": [10.0, 10.0, 10.0, 10.0]}), campaign_eta(todo, {"a": [5.0, 15.0, 5.0, 15.0]})
    assert equal is not None
    assert scattered is not None
    assert scattered.eta_s == equal.eta_s
    assert scattered.high_s - scattered.low_s > 10 * (equal.high_s - equal.low_s)


def test_runs_that_no_longer_fit_the_budget_do_not_count() -> None:
    todo = [spec(group_key="a") for _ in range(5)]
    found = campaign_eta(todo, {"a": [10.0, 10.0]}, current(5.0, 5.0, "a"), budget_left_s=27.0)
    assert found is not None
    assert found.eta_s == pytest.approx(5 + 2 * 10)
