"""Which mutants a bounded run draws, and how their statuses are counted; mutmut itself is not started."""

from __future__ import annotations

from argparse import Namespace

import pytest

from tests.mutation.__main__ import _counted, _modules, _sample

HOLM = [f"seatrial.analyse.statistics.x_holm__mutmut_{at}" for at in range(30)]
NAMES = [*HOLM, *(f"seatrial.judge.verdict.x_f{number}__mutmut_1" for number in range(40))]


def test_one_mutant_of_each_function_by_the_seed_alone() -> None:
    chosen = _sample(NAMES, 10, 1)
    assert len(chosen) == 10 and chosen == _sample(list(reversed(NAMES)), 10, 1)
    assert _sample(NAMES, 10, 2) != chosen
    assert len(_sample(NAMES, 99, 1)) == 41


def test_a_function_that_moved_keeps_its_place_in_the_sample() -> None:
    moved = [name.replace("analyse.statistics", "analyse.holm") for name in HOLM]
    (before,), (after,) = _sample(HOLM, 1, 1), _sample(moved, 1, 1)
    assert before.rpartition(".")[2] == after.rpartition(".")[2]


def test_modules_by_name_and_those_of_mutants() -> None:
    def chosen(*modules: str, mutants: list[str] | None = None) -> list[str]:
        return _modules(Namespace(modules=list(modules), mutants=mutants))

    assert chosen("statistics", "judge.verdict") == ["analyse.statistics", "judge.verdict"]
    assert chosen("analyse.charts")[0] == "analyse.charts.run_charts" and chosen("thinning") == ["analyse.charts.thinning"]
    assert chosen(mutants=[HOLM[0]]) == ["analyse.statistics"]
    assert {"analyse.ranking", "judge.verdict"} < set(chosen()) and not any("__init__" in name for name in chosen())
    with pytest.raises(SystemExit, match=r"no such module in .*: rankin"):
        chosen("rankin")


def test_a_mutant_that_never_ends_was_noticed_and_one_that_was_not_reached_was_not_tried() -> None:
    assert _counted(["killed", "timeout", "survived", "suspicious", "no tests", "not checked"]) == {
        "tried": 5,
        "killed": 2,
        "survived": 2,
        "no_test": 1,
        "not_reached": 1,
    }
