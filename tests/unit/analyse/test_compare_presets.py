"""The seeds' rules, said beside what the interval says."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.analyse.compare import compare
from seatrial.analyse.compare_presets import check_preset, ruling
from seatrial.analyse.rank_metric import METRICS
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


def last(n: int, mean_ms: float, stdev_ms: float, per_s: float) -> LastSteps:
    return LastSteps(n=n, mean_ms=mean_ms, stdev_ms=stdev_ms, per_s=per_s)


def with_each(made: Side, *of_runs: LastSteps) -> Side:
    runs = tuple(dataclasses.replace(run, last_steps=one) for run, one in zip(made.runs, of_runs, strict=True))
    return dataclasses.replace(made, runs=runs)


def test_names_of_rules() -> None:
    check_preset("")
    check_preset("last50")
    with pytest.raises(UsageError, match="preset 'last5' is not known; did you mean 'last50'"):
        check_preset("last5")


def test_without_a_rule_nothing_is_said() -> None:
    assert ruling("", side("a", [1.0]), side("b", [2.0]), METRICS["samples_per_s"]) == ""


def test_last_steps_of_several_runs_are_one_list() -> None:
    """30 steps of 10 ms and 10 of 20 ms: the mean is 12.5, the squares about it 6.25 and 56.25, and each run's own 1."""
    a = with_each(side("a", [1, 1]), last(30, 10.0, 1.0, 100.0), last(10, 20.0, 1.0, 50.0))
    b = with_each(side("b", [1, 1]), last(50, 10.0, 0.0, 100.0), last(50, 10.0, 0.0, 100.0))
    assert ruling("last50", a, b, METRICS["wall_p50_ms"]) == (
        "By the rule last50: a 12.5 ms a step, stdev 4.44 ms, 75 a second (last 10 and 30 steps of 2 runs); b 10 ms a step, stdev 0 ms, "
        "100 a second (last 50 steps of 2 runs); b wins by its mean."
    )


def test_a_tie_by_last_steps_weighs_deviations_as_rates() -> None:
    """The same rate in steps of unlike work: 1 of 10 ms is more than 1.5 of 20 ms."""
    a, b = with_each(side("a", [1]), last(50, 10.0, 1.0, 100.0)), with_each(side("b", [1]), last(50, 20.0, 1.5, 100.0))
    assert ruling("last50", a, b, METRICS["samples_per_s"]).endswith("the means tie and b wins by the lower variance.")


def test_means_that_print_alike_tie_and_single_runs_know_no_variance() -> None:
    rule = "highest_mean"
    assert ruling(rule, side("a", [1000.2]), side("b", [1000.4]), METRICS["samples_per_s"]) == (
        "By the rule highest_mean: a 1000.2 samples/s in the mean, one run (1 run); b 1000.4 samples/s in the mean, one run (1 run); "
        "neither wins."
    )
    assert ruling(rule, side("a", [1000.0]), side("b", [1001.0]), METRICS["samples_per_s"]).endswith("b wins by its mean.")


def test_a_run_that_does_not_tell_leaves_the_rule_without_a_word() -> None:
    told = side("a", [1.0, 2.0])
    silent = dataclasses.replace(told, runs=(told.runs[0], dataclasses.replace(told.runs[1], figures={})))
    nothing = "By the rule highest_mean nothing can be said: not every run tells samples_per_s."
    assert ruling("highest_mean", told, silent, METRICS["samples_per_s"]) == nothing
    assert ruling("highest_mean", told, side("b", []), METRICS["samples_per_s"]) == nothing
