"""Stalls: when a run counts as stalled, which rank the others wait for, and how the alarm describes it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.observe.progress import BETWEEN_STEPS, Activity, LastStep, Progress, RankState
from seatrial.observe.stall import (
    ACTIVE_S,
    BETWEEN_STEPS_CAUSES,
    COLLECTIVE_CAUSES,
    HEARTBEAT_SPREAD_S,
    LOADER_CAUSES,
    SILENT_CAUSES,
    STALL_KEY,
    START_KEY,
    Stall,
    StallDetector,
    advise_on_stall,
    describe_stall,
    find_culprit,
    furthest_behind,
)
from seatrial.observe.watchdog import alarm
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import LimitsSpec, StallSpec
from tests.facts import states
from tests.unit.observe.simulated_run import LIMITS, WALL_0, Rank, progress_at, watch, watch_ranks


def at(rank: int, step: int | None, phase: str = "fwd") -> RankState:
    return RankState(rank=rank, step=step, phase=phase)


def test_those_with_the_fewest_steps_are_behind() -> None:
    ranks = [at(0, 7), at(1, 5), at(2, 5), at(3, 6)]
    assert [state.rank for state in furthest_behind(ranks)] == [1, 2]
    assert furthest_behind(ranks[:1]) == ranks[:1]


def test_a_rank_before_its_first_step_is_behind_one_that_ended_step_0() -> None:
    assert [state.rank for state in furthest_behind([at(0, 0), at(1, None)])] == [1]


@pytest.mark.parametrize(
    ("phases", "silent", "culprit"),
    [
        pytest.param({0: "fwd", 1: "bwd", 2: "bwd"}, {2}, 2, id="silent"),
        pytest.param({0: "fwd", 1: "bwd", 2: "bwd"}, {1, 2}, 1, id="lowest of two silent"),
        pytest.param({0: "bwd", 1: "bwd", 2: "step"}, (), 2, id="rarest phase"),
        pytest.param({0: "bwd", 1: "data_wait"}, (), 1, id="earliest phase"),
        pytest.param({0: "fwd", 1: BETWEEN_STEPS}, (), 1, id="between steps"),
        pytest.param({0: "a phase of the user's", 1: "step"}, (), 1, id="unknown phase"),
        pytest.param({3: "fwd", 1: "fwd", 2: "fwd"}, (), 1, id="lowest rank"),
    ],
)
def test_the_culprit_among_ranks_at_one_step(phases: dict[int, str], silent: set[int], culprit: int) -> None:
    assert find_culprit([at(rank, 5, phase) for rank, phase in phases.items()], frozenset(silent)).rank == culprit


# From the stop to the stall at the latest: limit, heartbeats apart, and the steps and looks between.
LATEST_S = 180.0 + HEARTBEAT_SPREAD_S + 7.0


def found(result: tuple[float, Stall, Progress] | None) -> tuple[float, Stall, Progress]:
    assert result is not None, "no stall was found"
    return result


def text(result: tuple[float, Stall, Progress] | None, limits: LimitsSpec = LIMITS) -> str:
    t, stall, progress = found(result)
    raised = alarm(progress, t, limits, stall)
    assert raised is not None
    assert (raised.cause, raised.outcome) == (Cause.STALL, Outcome.STALLED)
    assert raised.action
    return raised.text


def eight(*special: Rank, **rest: float | str) -> list[Rank]:
    """Eight ranks, those given and the others, which stop because they wait."""
    own = {rank.rank: rank for rank in special}
    return [own.get(rank, Rank(rank=rank, **rest)) for rank in range(8)]  # type: ignore[arg-type]


def test_a_rank_that_hangs_in_python_goes_on_beating_and_the_others_wait_for_it() -> None:
    ranks = eight(Rank(rank=3, stops_s=500.2, phase="fwd"), stops_s=500.2, phase="bwd")
    t, stall, _ = found(watch_ranks(ranks))
    assert 500 + 180 < t <= 500 + LATEST_S
    assert stall.culprit is not None
    assert (stall.culprit.rank, stall.culprit.phase, stall.silent_s, stall.key) == (3, "fwd", None, "limits.stall")
    assert "rank 3" in text(watch_ranks(ranks))


@pytest.mark.parametrize("suspended", [0, 3, 7])
def test_a_suspended_rank_is_named_and_never_one_that_waits_for_it(suspended: int) -> None:
    for stops_s in (500.0, 501.7, 503.1, 504.9):
        ranks = eight(Rank(rank=suspended, stops_s=stops_s, beats_until_s=stops_s, phase="bwd"), stops_s=stops_s + 0.4, phase="bwd")
        _, stall, _ = found(watch_ranks(ranks))
        assert stall.culprit is not None
        assert stall.culprit.rank == suspended and stall.silent_s is not None and 180 < stall.silent_s < 200


def test_a_rank_that_was_suspended_for_less_than_the_limit_is_no_stall() -> None:
    held = [replace(rank, resumes_s=650.0) for rank in eight(stops_s=500.0)]
    assert watch_ranks(held, 2000) is None


def test_ranks_that_still_take_steps_are_reported() -> None:
    fast = Rank(rank=1, iter_s=0.1, stops_s=500.0, phase="data_wait")
    _, stall, progress = found(watch_ranks([Rank(rank=0), fast, Rank(rank=2)]))
    assert stall.culprit is not None
    assert (stall.culprit.rank, stall.moving) == (1, frozenset({0, 2}))
    raised = alarm(progress, 700.0, LIMITS, stall)
    assert raised is not None
    assert states(raised.text, "rank 1", "step 4900", "'data_wait'") and " 6" in raised.text.partition("'data_wait'")[2], "where others are"
    assert "data loader" in raised.action


@pytest.mark.parametrize("floor_s", [4.0, 30.0, 180.0])
@pytest.mark.parametrize("iter_s", [0.05, 0.9, 4.7])
def test_steps_that_go_on_are_no_stall_however_small_the_floor(floor_s: float, iter_s: float) -> None:
    limits = LimitsSpec(stall=StallSpec(factor=2.0, floor_s=floor_s))
    assert watch_ranks([Rank(rank=rank, iter_s=iter_s) for rank in range(4)], 1500, limits) is None


def test_steps_of_ten_minutes_need_hours() -> None:
    assert watch_ranks([Rank(rank=rank, iter_s=600.0) for rank in range(2)], 12_000) is None
    slow = [Rank(rank=rank, iter_s=600.0, stops_s=6100.0) for rank in range(2)]
    t, stall, _ = found(watch(lambda t: progress_at(t, slow), 40_000, looks=map(float, range(0, 40_000, 20))))
    assert stall.limit_s == 12_000
    assert t > 18_000


def test_a_pause_of_an_hour_is_quiet_and_the_limit_counts_from_its_end() -> None:
    paused = eight(Rank(rank=0, stops_s=500.0, resumes_s=4100.0, phase="pause:checkpoint"), stops_s=500.0, resumes_s=4100.0)
    assert watch_ranks(paused, 6000) is None

    def stays(t: float) -> Progress:
        """The pause ends, and nothing follows."""
        progress = progress_at(t, paused if t < 4100 else [replace(rank, resumes_s=math.inf) for rank in paused])
        after = tuple(replace(state, phase="loop" if state.rank else "bwd") for state in progress.rank_states)
        return progress if t < 4100 else replace(progress, rank_states=after)

    t, stall, _ = found(watch(stays, 9000, LimitsSpec(start_s=60, stall=StallSpec())))
    assert 4100 + 180 <= t <= 4100 + LATEST_S
    assert stall.stalled_s < LATEST_S


def test_a_pause_whose_heartbeat_stopped_is_not_quiet() -> None:
    ranks = eight(Rank(rank=2, stops_s=500.0, phase="pause:eval", beats_until_s=1500.0), stops_s=500.0)
    t, stall, _ = found(watch_ranks(ranks, 4000))
    assert 1500 + 180 <= t <= 1500 + 15 + LATEST_S
    assert stall.culprit is not None
    assert (stall.culprit.rank, stall.culprit.phase) == (2, "pause:eval")
    assert "has sent no heartbeat" in text(watch_ranks(ranks, 4000))


@pytest.mark.parametrize("num_ranks", [2, 8])
def test_an_evaluation_between_steps_has_the_timeout_of_a_start(num_ranks: int) -> None:
    evaluating = Rank(rank=0, stops_s=500.0, phase="loop", resumes_s=1390.0)
    waiting = [Rank(rank=rank, stops_s=500.0, phase="bwd", resumes_s=1390.0) for rank in range(1, num_ranks)]
    assert watch_ranks([evaluating, *waiting], 2500) is None

    for_ever = [replace(rank, resumes_s=math.inf) for rank in (evaluating, *waiting)]
    t, stall, _ = found(watch_ranks(for_ever))
    assert 1400 <= t <= 1400 + HEARTBEAT_SPREAD_S + 7
    assert (stall.key, stall.culprit and stall.culprit.rank) == ("limits.start_s", 0)


def test_without_a_start_limit_what_happens_between_steps_has_none() -> None:
    between = [Rank(rank=0, stops_s=500.0, phase="loop"), Rank(rank=1, stops_s=500.0)]
    assert watch_ranks(between, 20_000, LimitsSpec(start_s=None)) is None
    assert watch_ranks([Rank(rank=0, stops_s=500.0), Rank(rank=1, stops_s=500.0)], 2000, LimitsSpec(start_s=None)) is not None


def test_the_end_that_hangs_after_the_last_step() -> None:
    ranks = [Rank(rank=rank, total=100, phase="loop") for rank in range(2)]
    t, _, _ = found(watch_ranks(ranks, total=100))
    assert t > 110 + 900
    assert "all 100 steps" in text(watch_ranks(ranks, total=100))


def test_the_end_that_hangs_after_every_rank_is_done() -> None:
    ranks = [Rank(rank=rank, total=100, phase="done", beats_until_s=115.0) for rank in range(2)]
    t, stall, progress = found(watch_ranks(ranks, total=100))
    assert t > 110 + 900
    assert (stall.culprit, stall.num_done) == (None, 2)
    assert "every rank is done" in text((t, stall, progress))
    talks = watch(lambda t: replace(progress_at(t, ranks, total=100), output_bytes=int(t)), 5000)
    assert talks is None


def test_a_rank_that_is_done_while_the_others_go_on_does_not_count() -> None:
    done = Rank(rank=0, total=50, phase="done", beats_until_s=61.0)
    assert watch_ranks([done, Rank(rank=1), Rank(rank=2)], 3000) is None
    stuck = [done, Rank(rank=1, stops_s=500.0), Rank(rank=2, stops_s=500.0, phase="step")]
    _, stall, _ = found(watch_ranks(stuck))
    assert (stall.culprit and stall.culprit.rank, stall.num_done) == (1, 1)


def test_a_rank_that_fell_silent_before_its_first_step_is_the_culprit() -> None:
    """In C and with the interpreter's lock, within its first steps: its last beat knows of none."""
    silent = Rank(rank=3, stops_s=0.0, beats_until_s=1.0)
    t, stall, _ = found(watch_ranks(eight(silent, stops_s=20.0)))
    assert t <= 20 + LATEST_S
    assert stall.culprit is not None
    assert (stall.culprit.rank, stall.culprit.step) == (3, None)


def test_nothing_before_the_first_step_of_every_rank() -> None:
    assert watch_ranks([Rank(rank=0), Rank(rank=1, first_s=math.inf)], 5000) is None


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
def test_a_wall_clock_that_is_set_changes_nothing(jump_s: float) -> None:
    def wall(t: float) -> float:
        return WALL_0 + t + (jump_s if t > 400 else 0.0)

    assert watch(lambda t: progress_at(t, [Rank(rank=0), Rank(rank=1)], wall), 1500) is None
    ranks = [Rank(rank=0, stops_s=500.0), Rank(rank=1, stops_s=500.0, phase="fwd")]
    t, stall, _ = found(watch(lambda t: progress_at(t, ranks, wall), 1500))
    assert t <= 500 + LATEST_S
    assert stall.culprit is not None
    assert (stall.culprit.rank, stall.silent_s) == (1, None)


def test_a_stopped_wall_clock_is_no_silence() -> None:
    ranks = [Rank(rank=0, stops_s=500.0), Rank(rank=1, stops_s=500.0, phase="pause:checkpoint", resumes_s=1500.0)]
    assert watch(lambda t: progress_at(t, ranks, lambda _: WALL_0), 1499) is None


def test_a_harness_that_was_suspended_starts_its_clocks_again() -> None:
    looks = [*map(float, range(600)), *map(float, range(1200, 2400))]
    frozen = [replace(rank, resumes_s=1201.0) for rank in eight(stops_s=599.0)]
    assert watch(lambda t: progress_at(t, frozen), 0, looks=looks) is None

    hung = eight(stops_s=599.0)
    t, stall, _ = found(watch(lambda t: progress_at(t, hung), 0, looks=looks))
    assert 1200 + 180 <= t <= 1200 + LATEST_S
    assert stall.stalled_s < LATEST_S


def test_a_short_suspension_counts_too_where_the_floor_is_small() -> None:
    limits = LimitsSpec(stall=StallSpec(factor=2.0, floor_s=10.0))
    looks = [*map(float, range(100)), *map(float, range(125, 400))]
    frozen = [replace(rank, resumes_s=125.0) for rank in eight(stops_s=99.0)]
    assert watch(lambda t: progress_at(t, frozen), 0, limits, looks) is None


def test_ranks_that_were_restarted_make_progress_and_have_the_timeout_of_a_start() -> None:
    def restarted(t: float, again: float) -> Progress:
        """At 500 s all ranks die at step 490, are started anew and take `again` seconds to their first step."""
        ranks = (
            [Rank(rank=rank, stops_s=500.0) for rank in range(2)]
            if t < 505
            else [Rank(rank=rank, first_s=505 + again) for rank in range(2)]
        )
        progress = progress_at(t, ranks)
        pids = tuple(replace(state, pid=state.rank + (100 if t < 505 else 200)) for state in progress.rank_states)
        return replace(progress, rank_states=pids, alive=True)

    assert watch(lambda t: restarted(t, 600.0), 3000) is None
    t, stall, progress = found(watch(lambda t: restarted(t, math.inf), 3000))
    assert 505 + 900 <= t <= 505 + 920
    assert text((t, stall, progress)).startswith("no step for 15m 0")
    assert "since a rank was restarted" in text((t, stall, progress))


def test_a_rank_that_is_late_to_its_first_step_is_waited_for() -> None:
    def late(t: float) -> Progress:
        """Rank 1 is seen only 100 s after the others took the one step they can take without it."""
        first = [Rank(rank=0, stops_s=11.0), Rank(rank=2, stops_s=11.0)]
        return progress_at(t, first if t < 110 else [first[0], Rank(rank=1, first_s=800.0), first[1]])

    assert watch(late, 800) is None


def test_steps_that_jump_or_go_back_are_progress() -> None:
    assert watch_ranks([Rank(rank=0, stride=1000), Rank(rank=1, first_step=10**6)], 2000) is None
    assert watch_ranks([Rank(rank=0, first_step=10**6, stride=-1)], 2000) is None


def test_an_unknown_step_time_has_the_timeout_of_a_start() -> None:
    ranks = [Rank(rank=0, stops_s=500.0), Rank(rank=1, stops_s=500.0)]

    def paceless(t: float) -> Progress:
        progress = progress_at(t, ranks)
        return replace(progress, last_steps=tuple(replace(mark, iter_ms_p50=None) for mark in progress.last_steps))

    t, _, _ = found(watch(paceless, 3000))
    assert t >= 1400


def test_switched_off() -> None:
    assert watch_ranks(eight(stops_s=500.0), 10_000, LimitsSpec(stall=None)) is None


IDLE, SPINNING = Activity(cpu_pct=0.4, gpu_pct=0.0, disk_kib_per_s=12.0, net_kib_per_s=3.0), Activity(cpu_pct=100.0)


def script_at(
    t: float, *, until_s: float = math.inf, every_s: float = 1.0, silent_s: float | None = None, activity: Activity | None = IDLE
) -> Progress:
    """A script without the probe that prints a step every `every_s` until `until_s`, and other output until `silent_s`."""
    lines = math.floor(min(t, until_s) / every_s)
    printed = min(t, until_s if silent_s is None else silent_s)
    mark = LastStep(rank=0, step=lines, step_t=WALL_0 + lines * every_s, iter_ms_p50=every_s * 1000 if lines > 1 else None)
    return Progress(step=lines, alive=True, last_steps=(mark,), output_bytes=1 + int(printed / every_s) * 30, activity=activity)


def one_line_at(t: float, activity: Activity | None = IDLE, line_s: float = 5.0) -> Progress:
    """A script that prints one line and then nothing, and no step."""
    return Progress(alive=t >= line_s, output_bytes=30 if t >= line_s else 0, activity=activity)


def test_a_script_that_prints_one_line_and_then_nothing_is_ended_after_ten_minutes() -> None:
    assert watch(one_line_at, 604) is None
    t, stall, progress = found(watch(one_line_at, 10_000))
    assert 605 <= t <= 606
    assert (stall.key, stall.limit_s, stall.culprit) == ("limits.stall.quiet_s", 600.0, None)
    assert text((t, stall, progress)) == "no output for 10m 00s (limit 10m 00s: limits.stall.quiet_s)"


def test_a_slow_start_is_no_earlier_silence() -> None:
    t, _, _ = found(watch(lambda t: one_line_at(t, line_s=300.0), 10_000))
    assert 900 <= t <= 901


@pytest.mark.parametrize("activity", [SPINNING, Activity(gpu_pct=100.0), Activity(disk_kib_per_s=90_000.0), Activity(net_kib_per_s=9000.0)])
def test_activity_extends_the_silence_at_most_threefold(activity: Activity) -> None:
    assert watch(lambda t: one_line_at(t, activity), 1804) is None
    t, stall, progress = found(watch(lambda t: one_line_at(t, activity), 10_000))
    assert 1805 <= t <= 1806
    assert activity.text and activity.text in text((t, stall, progress))


def test_activity_that_ends_extends_the_silence_until_then() -> None:
    t, _, _ = found(watch(lambda t: one_line_at(t, SPINNING if t < 900 else IDLE), 10_000))
    assert 900 <= t <= 900 + ACTIVE_S


def test_without_telemetry_the_silence_is_extended_and_that_is_reported() -> None:
    t, stall, progress = found(watch(lambda t: one_line_at(t, None), 10_000))
    assert 1805 <= t <= 1806
    assert "telemetry" in text((t, stall, progress))


def test_a_script_that_prints_steps_is_judged_by_its_silence_too() -> None:
    assert watch(lambda t: script_at(t, until_s=500.0), 1099) is None
    t, stall, progress = found(watch(lambda t: script_at(t, until_s=500.0), 3000))
    assert 1100 <= t <= 1102
    assert stall.culprit is None and "last step printed: 500" in text((t, stall, progress))


def test_a_script_that_prints_while_it_evaluates_is_no_stall() -> None:
    assert watch(lambda t: script_at(t, until_s=500.0, silent_s=math.inf), 5000) is None


def test_a_script_that_prints_seldom_gets_a_multiple_of_its_longest_silence() -> None:
    def seldom(t: float) -> Progress:
        return script_at(t, every_s=100.0, until_s=1000.0)

    assert watch(lambda t: script_at(t, every_s=250.0), 20_000) is None
    t, _, _ = found(watch(seldom, 20_000))
    assert 1000 + 20 * 100 <= t <= 1000 + 20 * 100 + 2
    t, _, _ = found(watch(seldom, 20_000, LimitsSpec(stall=StallSpec(factor=8))))
    assert 1000 + 8 * 100 <= t <= 1000 + 8 * 100 + 2


def test_time_in_which_the_harness_was_suspended_is_no_earlier_silence() -> None:
    looks = [*map(float, range(100)), *map(float, range(5000, 9000))]
    t, stall, _ = found(watch(lambda t: script_at(t, until_s=5100.0), 0, looks=looks))
    assert stall.longest_silence_s < 5 and 5700 <= t <= 5701


def test_a_workload_with_the_probe_that_has_not_reported_yet_has_the_time_of_a_start() -> None:
    stalls = StallDetector(LimitsSpec(start_s=900.0), has_probe=True)
    found_s = [t for t in range(2000) if stalls.check(one_line_at(float(t)), float(t))]
    assert 905 <= found_s[0] <= 906


def test_quiet_time_is_known_with_and_without_the_probe_and_where_stalls_are_off() -> None:
    for limits in (LIMITS, LimitsSpec(stall=None)):
        script, ranks = StallDetector(limits), StallDetector(limits)
        for t in range(300):
            script.check(script_at(float(t), until_s=100.0), float(t))
            ranks.check(progress_at(float(t), eight(stops_s=100.0)), float(t))
        assert script.quiet_s == 199.0
        assert 190 <= ranks.quiet_s <= 200


def test_quiet_s_is_exact_for_a_script_with_and_without_steps_busy_or_not() -> None:
    quiet = LimitsSpec(stall=StallSpec(quiet_s=60.0))
    t, stall, _ = found(watch(lambda t: script_at(t, until_s=500.0), 3000, quiet))
    assert 560 <= t <= 562
    assert stall.key == "limits.stall.quiet_s"
    t, stall, progress = found(watch(lambda t: one_line_at(t, SPINNING), 3000, quiet))
    assert 65 <= t <= 66
    assert text((t, stall, progress), quiet) == "no output for 60 s (limit 60 s: limits.stall.quiet_s)"


@pytest.mark.parametrize(("quiet_s", "after_s"), [(60.0, 60.0), (400.0, 400.0)])
def test_quiet_s_holds_with_the_probe_too_shorter_or_longer_than_the_other_limits(quiet_s: float, after_s: float) -> None:
    quiet = LimitsSpec(stall=StallSpec(quiet_s=quiet_s))
    ranks = eight(Rank(rank=3, stops_s=500.2, phase="fwd"), stops_s=500.2, phase="bwd")
    t, stall, progress = found(watch_ranks(ranks, 3000, quiet))
    assert 500 + after_s < t <= 500 + after_s + HEARTBEAT_SPREAD_S + 7.0
    assert stall.culprit is not None and (stall.culprit.rank, stall.key) == (3, "limits.stall.quiet_s")
    assert "limits.stall.quiet_s" in text((t, stall, progress), quiet)
    printing = watch(lambda t: replace(progress_at(t, ranks), output_bytes=int(t)), 500 + int(after_s), quiet)
    assert printing is None


def test_with_the_probe_neither_a_pause_nor_the_time_between_heartbeats_is_quiet() -> None:
    quiet = LimitsSpec(stall=StallSpec(quiet_s=2.0))
    assert watch_ranks([Rank(rank=rank, iter_s=0.9) for rank in range(4)], 1500, quiet) is None
    paused = eight(Rank(rank=0, stops_s=500.0, resumes_s=4100.0, phase="pause:checkpoint"), stops_s=500.0, resumes_s=4100.0)
    assert watch_ranks(paused, 5000, LimitsSpec(stall=StallSpec(quiet_s=60.0))) is None


def test_a_script_before_its_first_output_is_the_start_limit_s() -> None:
    assert watch(lambda t: Progress(), 5000, LimitsSpec(stall=StallSpec(quiet_s=60.0))) is None


@given(
    st.integers(2, 6),
    st.data(),
    st.sampled_from([4.0, 10.0, 40.0]),
    st.floats(0.02, 3.0),
    st.floats(60.0, 90.0),
    st.sampled_from(["fwd", "data_wait", "silent"]),
)
@settings(max_examples=40, deadline=None)
def test_whenever_and_however_one_rank_stops_it_is_found_and_named(
    num_ranks: int, data: st.DataObject, floor_s: float, iter_s: float, stops_s: float, how: str
) -> None:
    culprit = data.draw(st.integers(0, num_ranks - 1))
    limits = LimitsSpec(start_s=900.0, stall=StallSpec(factor=4.0, floor_s=floor_s))
    hung = Rank(rank=culprit, iter_s=iter_s, stops_s=stops_s, phase="bwd", beats_until_s=stops_s)
    if how != "silent":
        hung = Rank(rank=culprit, iter_s=iter_s, stops_s=stops_s, phase=how)
    ranks = [hung if rank == culprit else Rank(rank=rank, iter_s=iter_s, stops_s=stops_s, phase="bwd") for rank in range(num_ranks)]
    t, stall, _ = found(watch_ranks(ranks, 300, limits))
    assert stops_s + floor_s - 5 <= t <= stops_s + max(floor_s, 4 * iter_s) + HEARTBEAT_SPREAD_S + 8
    assert stall.culprit is not None
    assert stall.culprit.rank == culprit


AT_5 = Progress(step=5, total=100)
STALL = Stall(stalled_s=90.0, limit_s=60.0, key=STALL_KEY, culprit=at(1, 5, "bwd"))


@pytest.mark.parametrize(
    ("changes", "progress", "expected"),
    [
        ({}, AT_5, "no step for 90 s (limit 60 s: limits.stall); rank 1 is at step 5 in 'bwd'"),
        ({"num_done": 1}, AT_5, "no step for 90 s (limit 60 s: limits.stall); rank 1 is at step 5 in 'bwd'; 1 rank is done"),
        ({"culprit": None}, Progress(), "no output for 90 s (limit 60 s: limits.stall)"),
        ({"culprit": None}, AT_5, "no step and no output for 90 s (limit 60 s: limits.stall); last step printed: 5"),
        (
            {"culprit": None, "num_done": 4},
            AT_5,
            "every rank is done, but for 90 s the run has neither ended nor printed anything (limit 60 s: limits.stall)",
        ),
        (
            {"iter_ms_p50": 1500.0, "key": START_KEY},
            AT_5,
            "no step for 90 s (limit 60 s: limits.start_s, the larger of it and limits.stall; steps took 1.5 s before); "
            "rank 1 is at step 5 in 'bwd'",
        ),
        (
            {"culprit": at(0, None, "bwd")},
            AT_5,
            "no step for 90 s since a rank was restarted (limit 60 s: limits.stall); rank 0 is before its first step in 'bwd'",
        ),
        (
            {"culprit": at(0, 99, "bwd")},
            Progress(step=99, total=100),
            "all 100 steps are taken, but the run has not ended for 90 s (limit 60 s: limits.stall); rank 0 is at step 99 in 'bwd'",
        ),
    ],
)
def test_description_of_a_stall(changes: dict[str, Any], progress: Progress, expected: str) -> None:
    assert describe_stall(replace(STALL, **changes), progress) == expected


@pytest.mark.parametrize(
    ("others", "moving", "expected"),
    [
        ((at(0, 5, "bwd"),), (), "all 2 ranks are at step 5 in 'bwd'"),
        ((at(0, 5, "fwd"), at(2, 5, "step")), (), "the others at the same step in 'fwd' or 'step'"),
        ((at(0, 6),), (), "the other at 6"),
        ((at(0, 6), at(2, 8)), (), "the others at 6 to 8"),
        ((at(0, 6),), (0,), "the other still takes steps, at 6"),
        ((at(0, 6), at(2, 8)), (0, 2), "the others still take steps, at 6 to 8"),
        ((at(0, None),), (), "the other before the first step"),
    ],
)
def test_where_the_other_ranks_are(others: tuple[RankState, ...], moving: tuple[int, ...], expected: str) -> None:
    assert describe_stall(replace(STALL, others=others, moving=frozenset(moving)), AT_5).endswith(expected)


def test_no_rank_took_a_step() -> None:
    text = describe_stall(replace(STALL, culprit=at(1, None), others=(at(0, None),)), AT_5)
    assert text.endswith("all 2 ranks are before their first step in 'fwd'")


def test_a_silent_rank() -> None:
    silent = replace(STALL, silent_s=700.0, others=(at(0, 5, "bwd"),))
    text = describe_stall(silent, AT_5)
    assert "rank 1 has sent no heartbeat for " in text and "it was at step 5 in 'bwd'" in text
    assert "700 s" not in text, "beyond ten minutes seconds are hard to read"
    assert SILENT_CAUSES in advise_on_stall(silent, 2)


@pytest.mark.parametrize(
    ("phase", "key", "causes"),
    [
        ("data_wait", STALL_KEY, LOADER_CAUSES),
        (BETWEEN_STEPS, STALL_KEY, BETWEEN_STEPS_CAUSES),
        ("bwd", STALL_KEY, COLLECTIVE_CAUSES),
        ("a phase of the user's", STALL_KEY, COLLECTIVE_CAUSES),
    ],
)
def test_advice_names_usual_causes_and_the_limit_to_raise(phase: str, key: str, causes: str) -> None:
    action = advise_on_stall(replace(STALL, culprit=at(1, 5, phase), key=key), 2)
    limit = "limits.stall.floor_s" if key == STALL_KEY else key
    assert causes in action and action.endswith(f"raise {limit}.") and "seatrial logs RUN --rank 1" in action
    assert "--rank" not in advise_on_stall(replace(STALL, culprit=None), 2)


def test_advice_for_one_process_is_about_the_users_own_command() -> None:
    action = advise_on_stall(replace(STALL, culprit=None), 1)
    assert "where your command is" in action
    assert not any(word in action for word in ("rank", "collective", "GPU", "network"))
