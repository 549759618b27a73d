"""Which rank the others wait for."""

from __future__ import annotations

from seatrial.observe.culprit import behind, culprit_of
from seatrial.observe.progress import BETWEEN_STEPS, RankStanding

NOBODY: frozenset[int] = frozenset()


def at(rank: int, step: int | None, phase: str = "fwd") -> RankStanding:
    return RankStanding(rank=rank, step=step, phase=phase)


def test_those_with_the_fewest_steps_are_behind() -> None:
    ranks = [at(0, 7), at(1, 5), at(2, 5), at(3, 6)]
    assert [standing.rank for standing in behind(ranks)] == [1, 2]
    assert behind(ranks[:1]) == ranks[:1]


def test_a_rank_before_its_first_step_is_behind_one_that_ended_step_0() -> None:
    assert [standing.rank for standing in behind([at(0, 0), at(1, None)])] == [1]


def test_one_that_is_not_heard_of_comes_before_anything_else() -> None:
    ranks = [at(0, 5, "fwd"), at(1, 5, "bwd"), at(2, 5, "bwd")]
    assert culprit_of(ranks, frozenset({2})).rank == 2
    assert culprit_of(ranks, frozenset({1, 2})).rank == 1, "of two of a kind the lowest"


def test_else_the_one_that_stands_where_no_other_does() -> None:
    assert culprit_of([at(0, 5, "bwd"), at(1, 5, "bwd"), at(2, 5, "step")], NOBODY).rank == 2


def test_else_the_one_in_the_earliest_part_of_a_step() -> None:
    assert culprit_of([at(0, 5, "bwd"), at(1, 5, "data_wait")], NOBODY).rank == 1
    assert culprit_of([at(0, 5, "fwd"), at(1, 5, BETWEEN_STEPS)], NOBODY).rank == 1
    assert culprit_of([at(0, 5, "a phase of the user's"), at(1, 5, "step")], NOBODY).rank == 1


def test_else_the_lowest() -> None:
    assert culprit_of([at(3, 5), at(1, 5), at(2, 5)], NOBODY).rank == 1
    assert culprit_of([at(3, 5)], NOBODY).rank == 3
