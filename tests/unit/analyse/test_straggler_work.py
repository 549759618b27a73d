"""What the ranks did in common steps, and where they wait for one another."""

from __future__ import annotations

import numpy as np
import pytest

from seatrial.analyse.straggler_work import rank_work, synchronising_phase
from seatrial.records.measure import Window
from tests.unit.analyse import factory
from tests.unit.analyse.meeting_ranks import as_tables, meeting, own_work, run


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


def test_a_step_with_a_phase_missing_is_left_out() -> None:
    rows = [factory.steps_of([10.0] * 5, rank=rank, fwd_ms=4.0, bwd_ms=[6.0, 6.0, None, 6.0, 6.0]) for rank in range(2)]
    assert rank_work(factory.tables(*rows), None).steps.tolist() == [0, 1, 3, 4]


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
@pytest.mark.parametrize("slow_in", ["data_wait", "fwd", "bwd", "step", ""])
def test_the_phase_in_which_ranks_meet_is_found(meets_in: str, ranks: int, slow_in: str) -> None:
    tables = run(ranks, 60, meets_in=meets_in, extra={(1, slow_in): 12.0})
    assert synchronising_phase(rank_work(tables, None)) == meets_in


@pytest.mark.parametrize("meets_in", ["bwd", "step"])
def test_it_is_found_in_steps_that_do_not_follow_one_another(meets_in: str) -> None:
    tables = run(4, 600, meets_in=meets_in, extra={(1, "fwd"): 12.0}, phase_every=10)
    assert synchronising_phase(rank_work(tables, None)) == meets_in


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
    told = meeting(own_work(2, 30))
    told["bwd"][0] = np.nan
    told["step"][0] = told["fwd"][0] = told["preprocess"][1] = np.nan
    assert synchronising_phase(rank_work(as_tables(told), None)) is None
