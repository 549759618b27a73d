"""Which steps something is done after."""

from __future__ import annotations

import pytest

from seatrial_workloads.common.due import is_due, is_logged


@pytest.mark.parametrize(("every", "due"), [(None, []), (1, [1, 2, 3, 4, 5, 6]), (3, [3, 6]), (7, [])])
def test_what_is_done_now_and_then_never_comes_after_the_first_step(every: int | None, due: list[int]) -> None:
    assert [step for step in range(7) if is_due(step, every)] == due


@pytest.mark.parametrize(("every", "logged"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3, 4]), (100, [0, 4])])
def test_people_hear_of_the_first_step_every_so_many_and_the_last(every: int, logged: list[int]) -> None:
    assert [step for step in range(5) if is_logged(step, every, 5)] == logged
