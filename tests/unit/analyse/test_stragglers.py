"""Which rank is the straggler, and when that is unknown."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from seatrial.analyse.stragglers import (
    RankLag,
    RankWork,
    chance_of_at_least,
    driving_rank,
    find_straggler,
    latest_rank,
    rank_work,
    slow_ranks,
    synchronising_phase,
)
from seatrial.collect.steps import read_log_steps
from seatrial.records.attempt import StepTables
from seatrial.records.measure import RankLocation, Straggler, StragglerVerdict, Window
from tests.unit.analyse import factory
from tests.unit.analyse.factory import WORK_MS, as_tables, assert_golden, meeting, own_work, run
from tests.unit.collect.on_disk import RECORDED, write_attempt, write_log


def judged(tables: StepTables, window: Window | None = None) -> Straggler:
    found = find_straggler(tables, window)
    assert found is not None
    assert found.reason.endswith((".", ". ")) and found.source == tables.source
    return found


@pytest.mark.parametrize(("count", "n"), [(16, 20), (20, 20), (41, 80), (900, 1000), (81_000, 100_000)])
def test_the_chance_is_the_tail_of_the_binomial_distribution(count: int, n: int) -> None:
    special = pytest.importorskip("scipy.special")
    assert chance_of_at_least(count, n) == pytest.approx(float(special.bdtrc(count - 1, n, 0.5)), rel=1e-9)


def test_a_single_rank_waits_for_nobody() -> None:
    assert find_straggler(factory.tables(factory.steps_of([10.0] * 50)), None) is None


@pytest.mark.parametrize("slow_in", ["data_wait", "preprocess", "fwd", "step"])
def test_the_slow_rank_and_its_phase_are_named_though_all_steps_are_as_long(slow_in: str) -> None:
    tables = run(4, 60, extra={(2, slow_in): 20.0})
    longest = tables.steps.group_by("rank").mean().sort("rank")["iter_ms"].to_list()
    assert longest == pytest.approx([longest[0]] * 4, rel=0.01)
    found = judged(tables)
    assert (found.verdict, found.rank, found.phase) == (StragglerVerdict.NAMED, 2, slow_in)
    assert found.score == pytest.approx(0.2, abs=0.03)
    assert found.held_up_ms == pytest.approx(18.0, abs=3.0)
    assert (found.n, found.first_step, found.last_step) == (60, 0, 59)
    assert "waits least in bwd" in found.reason and f"in {slow_in} (+" in found.reason


def test_where_the_ranks_meet_in_step_a_slow_backward_is_named() -> None:
    found = judged(run(3, 60, meets_in="step", extra={(0, "bwd"): 15.0}))
    assert (found.rank, found.phase) == (0, "bwd") and "waits least in step" in found.reason


def test_only_the_window_counts() -> None:
    work = own_work(2, 120)
    work["fwd"][1, 60:] += 20.0
    tables = as_tables(meeting(work))
    quick, slow = (Window(first_step=first, last_step=first + 59, n=60, warmup_steps=0) for first in (0, 60))
    assert judged(tables, quick).verdict is StragglerVerdict.NONE
    assert judged(tables, slow).rank == 1


def test_phases_of_every_tenth_step_are_enough_where_there_are_twenty() -> None:
    found = judged(run(4, 400, extra={(3, "fwd"): 12.0}, phase_every=10))
    assert (found.rank, found.phase, found.n) == (3, "fwd", 40)
    few = judged(run(4, 150, extra={(3, "fwd"): 12.0}, phase_every=10))
    assert few.verdict is StragglerVerdict.ABSTAINED and few.n == 15


def test_where_no_rank_is_slow_none_is_named() -> None:
    found = judged(run(8, 100, noise=0.05))
    assert found.verdict is StragglerVerdict.NONE and found.rank is None
    assert found.n == 100


def test_a_rank_that_is_slow_now_and_then_is_not_one_that_is_slow() -> None:
    work = own_work(4, 100)
    work["data_wait"][1, ::4] += 50.0
    assert judged(as_tables(meeting(work))).verdict is StragglerVerdict.NONE


def test_noise_that_lasts_for_half_the_run_is_no_slow_rank() -> None:
    work = own_work(4, 60)
    work["fwd"][1, :30] += 6.0
    work["fwd"][2, 30:] += 6.0
    assert judged(as_tables(meeting(work))).rank is None


def test_work_outside_the_phases_counts_where_more_than_two_ranks_report_their_time() -> None:
    outside = np.zeros((4, 60))
    outside[0] = 20.0
    found = judged(as_tables(meeting(own_work(4, 60), outside=outside)))
    assert (found.verdict, found.rank, found.phase) == (StragglerVerdict.NAMED, 0, "")
    pair = judged(as_tables(meeting(own_work(2, 60), outside=outside[:2])))
    assert pair.verdict is StragglerVerdict.ABSTAINED


def test_a_rank_slow_inside_the_meeting_phase_alone_is_suspected_and_not_named() -> None:
    found = judged(run(4, 300, noise=0.04, extra={(2, "bwd"): 30.0}))
    assert (found.verdict, found.rank, found.phase, found.score) == (StragglerVerdict.ABSTAINED, 2, "bwd", None)


def test_timing_rank_lines_of_a_foreign_script_are_enough(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=4))
    write_log(attempt, (RECORDED / "timing_rank.log").read_text())
    tables = read_log_steps(attempt)
    assert tables is not None and tables.source == "log:seed"
    assert tables.steps["rank"].unique().to_list() == [0, 1, 2, 3]
    found = judged(tables)
    assert (found.verdict, found.rank, found.phase) == (StragglerVerdict.NAMED, 2, "data_wait")
    assert found.n == 30 and found.score == pytest.approx(0.15, abs=0.04)


def test_they_are_enough_beside_lines_of_another_format_and_without_the_plan_knowing_the_ranks(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=1))
    lines = (RECORDED / "timing_rank.log").read_text().splitlines()
    own = [f"iter {number}: loss 2.0, time 50.00ms" for number in range(0, 1500, 50)]
    write_log(attempt, "\n".join(sorted([*lines, *own], key=lambda line: "iter" not in line)) + "\n")
    tables = read_log_steps(attempt)
    assert tables is not None and tables.source == "log:nanogpt"
    assert judged(tables).rank == 2


def test_where_two_phases_are_as_likely_and_nobody_is_late_in_either_no_rank_stands_out() -> None:
    """Two ranks that differ by as little in bwd as in step: nothing tells where they meet, and it does not matter."""
    phases = {name: np.full((2, 60), mean_ms) for name, mean_ms in WORK_MS.items()}
    phases["bwd"][0] += 0.5
    phases["step"][1] += 0.5
    found = judged(as_tables({**phases, "iter": np.sum(list(phases.values()), axis=0)}))
    assert found.verdict is StragglerVerdict.NONE


def test_a_host_is_slow_where_all_its_ranks_are_and_no_others() -> None:
    locations = tuple(RankLocation(rank=rank, host="a" if rank < 4 else "b" if rank < 6 else "c") for rank in range(8))
    for slow, host in (((4, 5), ("b", 2)), ((4,), ("", 0)), ((3, 4), ("", 0)), ((0, 4, 5), ("", 0))):
        found = judged(run(8, 60, extra={(rank, "fwd"): 20.0 for rank in slow}, locations=locations))
        assert found.rank in slow and (found.slow_host, found.slow_host_ranks) == host
    one_host = tuple(RankLocation(rank=rank, host="b") for rank in range(8))
    assert judged(run(8, 60, extra={(4, "fwd"): 20.0}, locations=one_host)).slow_host == ""
    unplaced = judged(run(8, 60, extra={(4, "fwd"): 20.0, (5, "fwd"): 20.0}, locations=locations[:5]))
    assert unplaced.slow_host == ""


def test_sentences() -> None:
    """Every sentence on stragglers, whole."""
    locations = tuple(RankLocation(rank=rank, host=f"node{rank // 2}", gpu=str(rank % 2)) for rank in range(8))
    outside, alone = np.zeros((4, 60)), factory.steps_of([10.0] * 50, fwd_ms=4.0, bwd_ms=6.0)
    outside[0] = 20.0
    less = [
        factory.steps_of([100.0 - 20.0 * (rank == 1)] * 50, rank=rank, fwd_ms=30.0, bwd_ms=70.0 - 20.0 * (rank == 1)) for rank in range(4)
    ]
    nothing_shared = meeting(own_work(2, 60))
    nothing_shared["bwd"][0] = nothing_shared["step"][0] = nothing_shared["fwd"][1] = nothing_shared["preprocess"][1] = np.nan
    cases = {
        "named": run(8, 60, extra={(5, "fwd"): 20.0}, locations=locations),
        "named without a place": run(4, 60, extra={(2, "step"): 20.0}),
        "named on a GPU": run(4, 60, extra={(2, "step"): 20.0}, locations=(RankLocation(rank=2, gpu="3"),)),
        "host": run(8, 60, extra={(4, "fwd"): 20.0, (5, "fwd"): 22.0}, locations=locations),
        "two hosts": run(8, 60, extra={(1, "fwd"): 20.0, (5, "fwd"): 22.0}, locations=locations),
        "many": run(16, 60, extra={(rank, "fwd"): 20.0 + (rank == 1) for rank in range(1, 8)}),
        "log": run(4, 60, extra={(2, "step"): 20.0}, source="log:seed"),
        "outside": as_tables(meeting(own_work(4, 60), outside=outside)),
        "two outside": as_tables(meeting(own_work(2, 60), outside=outside[:2])),
        "nobody": run(8, 100, noise=0.05),
        "hidden": run(4, 300, noise=0.04, extra={(2, "bwd"): 30.0}),
        "unexplained": factory.tables(*less),
        "few steps": run(4, 150, extra={(3, "fwd"): 12.0}, phase_every=10),
        "no phases": factory.tables(*(factory.steps_of([10.0] * 50, rank=rank, data_wait_ms=1.0) for rank in range(2))),
        "as likely": run(2, 60, meets_in="step", noise=0.0, extra={(1, "bwd"): 12.0}),
        "nothing shared": as_tables(nothing_shared),
        "no rank": factory.tables(world_size=2, source="whole"),
        "some ranks": factory.tables(alone, world_size=6),
        "few ranks": factory.tables(alone, world_size=1024),
        "garbled rank": factory.tables(alone, factory.steps_of([10.0] * 50, rank=999_999_999, fwd_ms=4.0, bwd_ms=6.0)),
    }
    found = {name: judged(tables) for name, tables in cases.items()}
    assert_golden("stragglers", [f"{name}: {one.verdict.value}: {one.reason}" for name, one in found.items()])
    assert (found["named"].host, found["named"].gpu, found["host"].rank) == ("node2", "1", 5)
    assert found["host"].held_up_ms == pytest.approx(20.0, abs=4.0)


STEPS = 40


def work(phases: dict[str, list[float]], iter_ms: list[float] | None = None, steps: int = STEPS) -> RankWork:
    """Every step alike: phases by rank, and the time of the whole step."""
    tables = {name: np.repeat(np.array(values)[:, None], steps, axis=1) for name, values in phases.items()}
    ranks = len(next(iter(phases.values())))
    known = None if iter_ms is None else np.repeat(np.array(iter_ms)[:, None], steps, axis=1)
    return RankWork(ranks=np.arange(ranks), steps=np.arange(steps), phases=tables, shared=tuple(phases), iter_ms=known)


def late(**changes: object) -> RankLag:
    values = {
        "at": 0,
        "extra_ms": 10.0,
        "share": 1.0,
        "errors": 9.0,
        "own_ms": 50.0,
        "rest_ms": 10.0,
        "outside_ms": 0.0,
        "longer": {"fwd": 10.0},
    }
    return RankLag(**{**values, **changes})  # type: ignore[arg-type]


def test_the_rank_that_waits_least_and_where_it_works_longer() -> None:
    # Rank 1 works 8 ms longer in fwd and 2 ms in step, and waits 10 ms less in bwd than the others.
    found = latest_rank(work({"fwd": [30, 38, 30], "bwd": [50, 40, 50], "step": [15, 17, 15]}, [100, 100, 100]), "bwd")
    assert (found.at, found.extra_ms, found.share, found.errors) == (1, 10.0, 1.0, math.inf)
    assert found.longer == {"fwd": 8.0, "step": 2.0} and found.rest_ms == 10.0 and found.phase == "fwd"
    assert found.outside_ms == 0.0
    # A step of 100 ms, less 50 of waiting, and of that the 40 that all must spend there.
    assert found.own_ms == 90.0 and found.score == pytest.approx(10 / 90)


def test_what_is_outside_of_all_phases() -> None:
    found = latest_rank(work({"fwd": [30, 30], "bwd": [50, 40]}, [80, 82]), "bwd")
    assert (found.at, found.outside_ms, found.rest_ms, found.phase) == (1, 12.0, 0.0, "")
    assert latest_rank(work({"fwd": [30, 30], "bwd": [50, 40]}), "bwd").outside_ms is None


def test_of_three_ranks_one_odd_one_moves_nothing() -> None:
    """Against 50 and 90 the lower counts."""
    assert latest_rank(work({"bwd": [40, 50, 90]}), "bwd").extra_ms == 10.0
    assert latest_rank(work({"bwd": [40, 50, 60, 90]}), "bwd").extra_ms == 20.0


@pytest.mark.parametrize(("rest_ms", "is_in"), [(5.0, True), (4.9, False)])
def test_half_of_it_must_be_found_in_phases(rest_ms: float, is_in: bool) -> None:
    found = late(rest_ms=rest_ms, longer={"fwd": 3.0, "step": 4.0})
    assert found.is_in_phases is is_in and found.phase == ("step" if is_in else "")
    assert not late(longer={}).is_in_phases


def test_a_score_needs_work_of_the_others() -> None:
    assert late().score == 0.2 and late(own_ms=0.0).score == 0.0 == late(own_ms=-1.0).score


def test_slow_ranks_wait_less_by_so_much_and_in_nearly_all_steps() -> None:
    waits = np.full((3, 10), 50.0)
    waits[0] = 40.0
    assert slow_ranks(waits, 10.0).tolist() == [True, False, False]
    assert slow_ranks(waits, 10.1).tolist() == [False, False, False]
    waits[0, :2] = 50.0
    assert slow_ranks(waits, 10.0).tolist() == [True, False, False], "eight of ten are nearly all"
    waits[0, :3] = 50.0
    assert slow_ranks(waits, 10.0).tolist() == [False, False, False]


def test_the_extra_is_reported_in_standard_errors_and_steps_that_go_together_count_as_fewer() -> None:
    chance = np.random.default_rng(5).normal(0.0, 1.0, 400)
    apart, together = work({"bwd": [50.0, 40.0]}, steps=400), work({"bwd": [50.0, 40.0]}, steps=400)
    apart.phases["bwd"][1] += chance
    together.phases["bwd"][1] += np.sort(chance)
    assert latest_rank(apart, "bwd").errors == pytest.approx(10 / (1.2533 / 20), rel=0.15)
    assert latest_rank(together, "bwd").errors < latest_rank(apart, "bwd").errors / 5


def driven(ranks: int = 4, steps: int = 300, *, drives: bool = True) -> RankWork:
    """Chance delays of every rank before bwd; the step is as long as rank 2 makes it, or as a delay of nobody's."""
    chance = np.random.default_rng(7).normal(0.0, 2.0, (ranks, steps))
    common = chance[2] if drives else np.random.default_rng(8).normal(0.0, 2.0, steps)
    phases = {"fwd": 30.0 + chance, "bwd": 50.0 + common - chance}
    return RankWork(ranks=np.arange(ranks), steps=np.arange(steps), phases=phases, shared=("fwd", "bwd"), iter_ms=None)


def test_the_rank_whose_chance_delays_become_everybodys() -> None:
    assert driving_rank(driven(), "bwd", 60.0) == 2
    assert driving_rank(driven(drives=False), "bwd", 60.0) is None


def test_what_ranks_do_after_they_met_counts_for_the_next_step() -> None:
    work = driven()
    work.phases["step"] = np.tile(20.0 + np.random.default_rng(9).normal(0.0, 4.0, 300), (4, 1))
    assert driving_rank(work, "bwd", 60.0) == 2


def test_delays_too_small_to_matter_and_none_at_all_show_nothing() -> None:
    assert driving_rank(driven(), "bwd", 60_000.0) is None
    assert driving_rank(driven(), "bwd", 0.0) is None
    assert driving_rank(work({"fwd": [30, 30], "bwd": [50, 50]}), "bwd", 60.0) is None


def test_the_steps_are_those_of_the_window_that_every_rank_has_without_a_pause() -> None:
    rows = [factory.steps_of([10.0] * 30, rank=rank, first_step=rank, fwd_ms=4.0, bwd_ms=6.0) for rank in range(2)]
    tables = factory.tables(*rows, pauses=factory.pauses_of((0, 12, "eval", 5.0)))
    work = rank_work(tables, Window(first_step=10, last_step=20, n=11, warmup_steps=10))
    assert work.steps.tolist() == [10, 11, *range(13, 21)]
    assert work.ranks.tolist() == [0, 1] and work.phases["fwd"].shape == (2, 10)
    assert rank_work(tables, None).steps.tolist() == [*range(1, 12), *range(13, 30)]


def test_steps_whose_phases_were_not_taken_are_left_out() -> None:
    work = rank_work(run(2, 100, phase_every=10), None)
    assert work.steps.tolist() == list(range(0, 100, 10))
    assert list(work.phases) == ["data_wait", "preprocess", "fwd", "bwd", "step"]


def test_a_phase_that_one_rank_does_not_have_is_nothing_there_and_not_shared() -> None:
    rows = [
        factory.steps_of([10.0] * 5, rank=0, fwd_ms=4.0, bwd_ms=6.0, preprocess_ms=1.0),
        factory.steps_of([10.0] * 5, rank=1, fwd_ms=4.0, bwd_ms=7.0),
    ]
    work = rank_work(factory.tables(*rows), None)
    assert work.phases["preprocess"].tolist() == [[1.0] * 5, [0.0] * 5]
    assert work.shared == ("fwd", "bwd")


def test_without_the_wall_clock_of_every_rank_a_step_is_the_sum_of_its_phases() -> None:
    rows = [factory.steps_of([20.0] * 5, rank=rank, fwd_ms=4.0, bwd_ms=6.0) for rank in range(2)]
    assert rank_work(factory.tables(*rows), None).total_ms.tolist() == [[20.0] * 5] * 2
    untimed = rows[1].with_columns(iter_ms=None)
    assert rank_work(factory.tables(rows[0], untimed), None).total_ms.tolist() == [[10.0] * 5] * 2


def test_tables_without_steps_have_no_work() -> None:
    work = rank_work(factory.tables(world_size=2), None)
    assert len(work.steps) == 0 and work.phases == {}


@pytest.mark.parametrize("meets_in", ["bwd", "step"])
@pytest.mark.parametrize("ranks", [2, 3, 16])
@pytest.mark.parametrize("slow_in", ["fwd", "bwd", "step", ""])
def test_the_phase_in_which_ranks_meet_is_found(meets_in: str, ranks: int, slow_in: str) -> None:
    tables = run(ranks, 60, meets_in=meets_in, extra={(1, slow_in): 12.0})
    assert synchronising_phase(rank_work(tables, None)) == meets_in


@pytest.mark.parametrize("meets_in", ["bwd", "step"])
def test_it_is_found_in_steps_that_do_not_follow_one_another(meets_in: str) -> None:
    tables = run(4, 600, meets_in=meets_in, extra={(1, "fwd"): 12.0}, phase_every=10)
    assert synchronising_phase(rank_work(tables, None)) == meets_in


def test_only_steps_that_follow_one_another_show_where_ranks_meet() -> None:
    """Ranks meet in bwd, whose time makes up for what they did in step before. Most steps follow no other: taken for pairs, they would show
    as much noise for bwd as for step, and by its level alone it would be step."""
    steps = np.array([*range(30), *range(40, 4000, 10)])
    in_step = np.random.default_rng(3).normal(0.0, 2.0, (4, 4000))
    bwd = 50.0 - np.roll(in_step, 1, axis=1)
    level = np.array([[6.0], [0.0], [0.0], [0.0]])
    phases = {"fwd": np.full((4, 4000), 30.0) + level, "bwd": bwd, "step": 20.0 + in_step - level}
    reported = {name: values[:, steps] for name, values in phases.items()}
    work = RankWork(ranks=np.arange(4), steps=steps, phases=reported, shared=tuple(phases), iter_ms=None)
    assert synchronising_phase(work) == "bwd"


def test_ranks_may_meet_in_fwd_where_neither_bwd_nor_step_differs() -> None:
    tables = run(4, 60, meets_in="fwd", noise=0.0, extra={(1, "data_wait"): 12.0})
    assert synchronising_phase(rank_work(tables, None)) == "fwd"


def test_of_two_ranks_without_noise_bwd_and_step_are_as_likely() -> None:
    tables = run(2, 60, meets_in="step", noise=0.0, extra={(1, "bwd"): 12.0})
    assert synchronising_phase(rank_work(tables, None)) is None


@pytest.mark.parametrize(("meets_in", "slow_in"), [("bwd", "step"), ("step", "bwd")])
def test_of_three_the_one_that_stands_out_is_slow_and_not_quick(meets_in: str, slow_in: str) -> None:
    tables = run(3, 60, meets_in=meets_in, noise=0.0, extra={(1, slow_in): 12.0})
    assert synchronising_phase(rank_work(tables, None)) == meets_in


def test_ranks_that_share_no_phase_meet_nowhere_that_is_known() -> None:
    phases = meeting(own_work(2, 30))
    phases["bwd"][0] = np.nan
    phases["step"][0] = phases["fwd"][0] = phases["preprocess"][1] = np.nan
    assert synchronising_phase(rank_work(as_tables(phases), None)) is None
