"""Limits of a run, and the step at which all ranks can stop."""

from __future__ import annotations

import pytest

from seatrial.observe.progress import DiskUsage, LastStep, Progress, RankState
from seatrial.observe.stall import Stall
from seatrial.observe.training_health import HealthSample
from seatrial.observe.watchdog import GIB, HealthWatch, alarm, halt_step
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import LimitsSpec
from tests.facts import states
from tests.unit.observe.simulated_run import WALL_0, Rank, progress_at

SILENT, STEPPING = Progress(), Progress(step=3, total=10, alive=True)
HEAVY = Progress(step=3, alive=True, memory_bytes=61 * GIB)
FULL_DISK = DiskUsage(bytes=20 * GIB + GIB // 2, largest_file="launcher.log", largest_bytes=19 * GIB)
LARGE = Progress(step=3, total=10, alive=True, disk=FULL_DISK)
STALL = Stall(stalled_s=204.0, limit_s=180.0, key="limits.stall", culprit=RankState(rank=3, step=3, phase="bwd"), iter_ms_p50=1200.0)


@pytest.mark.parametrize(
    ("progress", "elapsed_s", "limits", "cause"),
    [
        (SILENT, 9.0, LimitsSpec(start_s=10), None),
        (SILENT, 11.0, LimitsSpec(start_s=10), Cause.START_LIMIT),
        (STEPPING, 11.0, LimitsSpec(start_s=10), None),
        (STEPPING, 11.0, LimitsSpec(start_s=None, run_s=10), Cause.RUN_LIMIT),
        (SILENT, 1e9, LimitsSpec(start_s=None, run_s=None), None),
        (SILENT, 30.0, LimitsSpec(start_s=10, run_s=20), Cause.RUN_LIMIT),
        (HEAVY, 11.0, LimitsSpec(), None),
        (HEAVY, 11.0, LimitsSpec(memory_gib=61), None),
        (HEAVY, 11.0, LimitsSpec(memory_gib=60.5), Cause.MEMORY_LIMIT),
        (STEPPING, 11.0, LimitsSpec(memory_gib=0.001), None),
        (LARGE, 11.0, LimitsSpec(), Cause.DISK_LIMIT),
        (LARGE, 11.0, LimitsSpec(disk_gib=21), None),
        (LARGE, 11.0, LimitsSpec(disk_gib=None), None),
    ],
)
def test_alarm(progress: Progress, elapsed_s: float, limits: LimitsSpec, cause: Cause | None) -> None:
    raised = alarm(progress, elapsed_s, limits)
    assert (raised.cause if raised else None) == cause
    assert raised is None or raised.text


def test_a_run_out_of_bounds_has_failed_and_one_out_of_time_timed_out() -> None:
    assert [raised.outcome for raised in (alarm(HEAVY, 1, LimitsSpec(memory_gib=1)), alarm(LARGE, 1, LimitsSpec())) if raised] == [
        Outcome.FAILED,
        Outcome.FAILED,
    ]
    late = alarm(STEPPING, 11.0, LimitsSpec(run_s=10))
    assert late is not None
    assert late.outcome is Outcome.TIMEOUT


def test_memory_and_disk_alarms_name_use_and_limit() -> None:
    heavy, large = alarm(HEAVY, 1, LimitsSpec(memory_gib=60.5)), alarm(LARGE, 1, LimitsSpec())
    assert heavy is not None and "61.0 GiB of memory (limit 60.5 GiB: limits.memory_gib" in heavy.text
    assert large is not None and states(large.text, "20.5 GiB", "19.0 GiB", "launcher.log", "20.0 GiB", "limits.disk_gib")


def test_a_stall_alarm_names_rank_and_phase() -> None:
    raised = alarm(STEPPING, 300.0, LimitsSpec(), STALL)
    assert raised is not None
    assert (raised.cause, raised.outcome, raised.rank, raised.phase) == (Cause.STALL, Outcome.STALLED, 3, "bwd")
    assert states(raised.text, "204 s", "180 s", "limits.stall", "1.2 s", "rank 3", "step 3", "'bwd'")
    assert "seatrial logs RUN --rank 3" in raised.action and "raise limits.stall.floor_s" in raised.action


def test_a_passed_limit_of_time_is_reported_before_a_stall() -> None:
    raised = alarm(STEPPING, 300.0, LimitsSpec(run_s=250), STALL)
    assert raised is not None
    assert raised.cause is Cause.RUN_LIMIT


@pytest.mark.parametrize(
    ("phases", "text", "rank"),
    [
        ({0: None, 1: "startup:model"}, "no first step of rank 1 within 10.0 s (limits.start_s); rank 1 is in 'startup:model'", 1),
        ({0: "fwd", 1: "fwd", 2: "start"}, "no first step of 3 ranks within 10.0 s (limits.start_s); rank 2 is in 'start'", 2),
    ],
)
def test_who_has_not_begun_is_named(phases: dict[int, str | None], text: str, rank: int) -> None:
    rank_states = tuple(RankState(rank=rank, step=0 if phase is None else None, phase=phase or "fwd") for rank, phase in phases.items())
    raised = alarm(Progress(rank_states=rank_states), 11.0, LimitsSpec(start_s=10))
    assert raised is not None
    assert (raised.text, raised.rank, raised.outcome) == (text, rank, Outcome.TIMEOUT)


def test_at_the_start_a_rank_that_never_came_is_the_one() -> None:
    rank_states = tuple(RankState(rank=rank, step=None, phase="startup:process_group") for rank in (0, 2))
    raised = alarm(Progress(rank_states=rank_states, num_ranks=3), 11.0, LimitsSpec(start_s=10))
    assert raised is not None
    assert states(raised.text, "10.0 s", "limits.start_s", "2 of 3 ranks", "rank 1")
    assert raised.rank == 1


def test_at_the_start_a_rank_that_fell_silent_is_the_one() -> None:
    rank_states = tuple(RankState(rank=rank, step=None, phase=phase) for rank, phase in ((0, "bwd"), (1, "fwd"), (2, "fwd")))
    raised = alarm(Progress(rank_states=rank_states, num_ranks=3), 11.0, LimitsSpec(start_s=10), None, frozenset({2}))
    assert raised is not None and raised.rank == 2


def at(
    step: int, *, step_t: float = 100.0, iter_ms: float | None = 50.0, beat_t: float = 100.0, phase: str = "bwd", rank: int = 0
) -> Progress:
    return Progress(
        step=step,
        last_steps=(LastStep(rank=rank, step=step, step_t=step_t, iter_ms_p50=iter_ms),),
        rank_states=(RankState(rank=rank, step=step, phase=phase, heartbeat_t=beat_t),),
    )


def both(one: Progress, other: Progress) -> Progress:
    return Progress(last_steps=one.last_steps + other.last_steps, rank_states=one.rank_states + other.rank_states)


@pytest.mark.parametrize(
    ("progress", "now_t", "expected"),
    [
        (at(10), 100.0, 10 + 40),
        (at(10), 103.0, 10 + 60 + 40),
        (at(10, iter_ms=5000.0), 103.0, 10 + 2),
        (at(10, iter_ms=5000.0), 105.1, 10 + 1 + 2),
        (at(10, iter_ms=None), 103.0, 12),
        (at(0), 100.0, 40),
        (Progress(), 100.0, 2),
    ],
    ids=["now", "unseen", "slow", "slow-unseen", "paceless", "first", "none"],
)
def test_two_seconds_of_steps_beyond_the_furthest(progress: Progress, now_t: float, expected: int) -> None:
    assert halt_step(progress, now_t) == expected


def test_the_rank_that_is_furthest_decides() -> None:
    assert halt_step(both(at(10), at(500, rank=1)), 100.0) == 540
    assert halt_step(both(at(10, iter_ms=1.0), at(500, rank=1)), 100.0) == 2010


def test_a_rank_that_is_done_does_not_unless_all_are() -> None:
    done = at(999, phase="done", rank=1)
    assert halt_step(both(at(10), done), 100.0) == 50
    assert halt_step(done, 100.0) == 1039


def test_a_rank_that_has_not_moved_for_long_is_not_far_ahead() -> None:
    """Its heartbeat of a second ago was still in the step after 1850."""
    assert halt_step(at(1850, step_t=100.0, beat_t=400.0), 401.0) == 1850 + 21 + 40


@pytest.mark.parametrize("now_t", [-1e9, 0.0, 99.0, 100.0 + 1e9])
def test_a_clock_that_was_set_gives_no_absurd_number(now_t: float) -> None:
    assert 10 + 40 <= halt_step(at(10), now_t) <= 10 + 1200 + 40
    assert halt_step(at(10, iter_ms=1e-9), now_t) <= 10 + 620_000


def test_a_heartbeat_from_the_future_is_not_believed() -> None:
    assert halt_step(at(10, step_t=100.0, beat_t=9e9), 101.0) == 10 + 20 + 40


def test_no_rank_has_begun_it_in_a_run_that_goes_on() -> None:
    ranks = [Rank(rank=rank, iter_s=0.05) for rank in range(4)]
    for t in (20.0, 63.3, 124.9):
        chosen = halt_step(progress_at(t, ranks), WALL_0 + t)
        soon = max(rank.state(t + 1.0)[0] or 0 for rank in ranks)
        late = max(rank.state(t + 3.0)[0] or 0 for rank in ranks)
        assert soon + 1 < chosen <= late


def test_a_throughput_that_has_fallen_for_a_minute_is_an_alarm_of_its_own() -> None:
    watch = HealthWatch(LimitsSpec())
    speeds = [*[1000.0] * 20, *[50.0] * 59, 900.0, *[50.0] * 60]
    found = [watch.check(Progress(health=HealthSample(step=step, tokens_per_s=speed))) for step, speed in enumerate(speeds)]
    assert not any(any(pair) for pair in found[:-1]), "59 slow samples are none, and one quick sample begins anew"
    ends, warning = found[-1]
    assert ends is not None and warning is None
    assert (ends.cause, ends.outcome) == (Cause.THROUGHPUT_FLATLINE, Outcome.FAILED) and "median before: 1,000" in ends.text


def test_gates_count_once_for_each_time_they_were_measured() -> None:
    def collapsed(step: int, measured: int) -> Progress:
        return Progress(health=HealthSample(step=step, gates={"entropy_mean": 0.01}, gates_step=measured))

    repeated, measured, off = HealthWatch(LimitsSpec()), HealthWatch(LimitsSpec(health="warn")), HealthWatch(LimitsSpec(health=None))
    # Three heartbeats between two measurements say the same thing three times.
    assert not any(any(repeated.check(collapsed(step, 0))) for step in range(9))
    ends, warning = [measured.check(collapsed(step, step)) for step in range(3)][-1]
    assert ends is None and warning is not None and warning.cause is Cause.GATE_COLLAPSE
    assert not any(any(off.check(collapsed(step, step))) for step in range(9))
    nan = HealthWatch(LimitsSpec()).check(Progress(health=HealthSample(step=1, loss=float("nan"))))
    assert nan == (None, None), "the workload decides what a loss that is not finite means"
