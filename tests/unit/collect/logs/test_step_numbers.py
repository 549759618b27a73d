"""Numbers of steps: epochs, late lines, bars."""

from __future__ import annotations

import math

import pytest

from seatrial.collect.logs.source import StampedLine
from seatrial.collect.logs.step_numbers import Numbered, Told, number_steps


def numbered(numbers: list[float], *, total: int | None = None, is_bar: bool = False) -> Numbered:
    extra = {} if total is None else {"total": total}
    told = [
        Told(line=StampedLine(None, "", float(at), float(at)), at=at, values={"step": number, **extra}, teller=0)
        for at, number in enumerate(numbers)
    ]
    return number_steps(told, is_bar=is_bar)


def steps(found: Numbered) -> list[int]:
    return [each.step for each in found.printed]


@pytest.mark.parametrize(
    ("numbers", "expected", "restarts"),
    [
        ([0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 4, 5], 1),
        ([1, 2, 3, 1, 2, 3], [1, 2, 3, 4, 5, 6], 1),
        ([0, 10, 20, 0, 10, 20], [0, 10, 20, 30, 40, 50], 1),
        ([10, 20, 10, 20, 10, 20], [10, 20, 30, 40, 50, 60], 2),
        ([0, 5, 10, 2, 5, 10], [0, 5, 10, 15, 18, 23], 1),
        ([7], [7], 0),
        ([], [], 0),
    ],
)
def test_epochs_are_counted_on(numbers: list[float], expected: list[int], restarts: int) -> None:
    found = numbered(numbers)
    assert (steps(found), found.restarts, found.passed_over) == (expected, restarts, 0)


def test_a_number_that_goes_back_to_the_midst_is_late() -> None:
    found = numbered([*range(30), 20, *range(30, 60), 58])
    assert (steps(found), found.restarts, found.passed_over, found.grown_only) == (list(range(60)), 0, 2, False)


def test_where_many_are_late_only_growing_numbers_are_kept() -> None:
    found = numbered([0, 1, 0, 1, 2, 2, 3, 0, 4, 3])
    assert (steps(found), found.restarts, found.grown_only) == ([0, 1, 2, 3, 4], 0, True)
    assert (found.lines, found.passed_over) == (10, 5)


def test_two_patterns_may_speak_of_one_step_and_one_pattern_twice_is_two_processes() -> None:
    line = StampedLine(None, "", 0.0, 0.0)
    told = [Told(line=line, at=at, values={"step": 10, name: 1.0}, teller=at % 2) for at, name in enumerate(("loss", "tokens", "samples"))]
    found = number_steps(told)
    assert found.printed[0].values == {"loss": 1.0, "tokens": 1.0}
    assert (len(found.printed), found.passed_over) == (1, 1)


def test_a_line_without_a_step_speaks_of_the_last_one() -> None:
    line = StampedLine(None, "", 0.0, 0.0)
    values: list[dict[str, float]] = [{"loss": 9.0}, {"step": 1}, {"loss": 2.0}, {"step": math.nan, "tokens": 3.0}]
    found = number_steps([Told(line=line, at=at, values=each) for at, each in enumerate(values)])
    assert [(each.step, each.values) for each in found.printed] == [(1, {"loss": 2.0, "tokens": 3.0})]


def test_numbers_that_count_down_are_all_starts() -> None:
    assert [each.restarts for each in numbered([5, 4, 3, 2]).printed] == [False, True, True, True]


def test_a_bar_shows_steps_done_and_may_be_drawn_again() -> None:
    found = numbered([0, 1, 2, 2, 3, 3, 0, 1, 3], total=3, is_bar=True)
    assert steps(found) == [0, 1, 2, 3, 5]
    assert [each.at for each in found.printed] == [1, 2, 4, 7, 8]
    assert [each.restarts for each in found.printed] == [False, False, False, True, False]
    assert found.passed_over == 0


def test_a_bar_not_drawn_to_its_end_is_as_long_as_it_says() -> None:
    assert steps(numbered([0, 4, 8, 0, 4, 8], total=10, is_bar=True)) == [3, 7, 13, 17]
    assert steps(numbered([0, 4, 8, 0, 4, 8], is_bar=True)) == [3, 7, 11, 15]
