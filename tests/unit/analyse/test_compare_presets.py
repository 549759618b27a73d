"""The seeds' rules, said beside what the interval says."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.analyse.compare import compare
from seatrial.errors import UsageError
from seatrial.records.comparison import Relation, Side
from seatrial.records.health import LastSteps
from tests.unit.analyse.made_sides import side


def with_last(made: Side, mean_ms: float, stdev_ms: float) -> Side:
    last = LastSteps(n=50, mean_ms=mean_ms, stdev_ms=stdev_ms, per_s=16_000 / mean_ms)
    return dataclasses.replace(made, runs=tuple(dataclasses.replace(run, last_steps=last) for run in made.runs))


def test_last50_names_its_winner_where_the_interval_names_none() -> None:
    a, b = with_last(side("a", [1000, 1100, 900]), 16.0, 0.5), with_last(side("b", [1010, 1050, 950]), 15.5, 0.5)
    found = compare(a, b, preset="last50")
    assert found.relation is Relation.AMBIGUOUS
    assert found.method.startswith("preset last50; paired t")
    assert "a 16 ms a step, stdev 0.5 ms, 1000 a second (last 50 steps of 3 runs)" in found.reason
    assert "b wins by its mean" in found.reason and "not told apart" in found.reason


def test_last50_tie_goes_to_the_lower_variance() -> None:
    a, b = with_last(side("a", [1000, 1001]), 16.0, 0.5), with_last(side("b", [1000, 1001]), 16.0, 0.2)
    assert "the means tie and b wins by the lower variance" in compare(a, b, preset="last50").reason


def test_last50_without_them_says_so() -> None:
    assert "not every run tells its last 50 steps" in compare(side("a", [1000, 1001]), side("b", [1000, 1001]), preset="last50").reason


def test_highest_mean_and_its_tie() -> None:
    a = side("a", [1000.0, 1010.0])
    assert "b wins by its mean" in compare(a, side("b", [1020.0, 1030.0]), preset="highest_mean").reason
    assert "b wins by the lower variance" in compare(a, side("b", [1004.0, 1006.0]), preset="highest_mean").reason
    assert "neither wins" in compare(a, side("b", [1000.0, 1010.0]), preset="highest_mean").reason


def test_a_time_wins_by_being_low() -> None:
    a, b = side("a", [10.0, 10.1], metric="wall_p50_ms"), side("b", [9.0, 9.1], metric="wall_p50_ms")
    assert "b wins by its mean" in compare(a, b, metric="wall_p50_ms", preset="highest_mean").reason


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'last50'"):
        compare(side("a", [1.0]), side("b", [1.0]), preset="last_50")
