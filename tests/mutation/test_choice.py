"""Which mutants a bounded run takes, and how their ends are counted; mutmut itself is not started."""

from __future__ import annotations

from argparse import Namespace

import pytest

from tests.mutation.__main__ import _counted, _modules, _sample

NAMES = [f"seatrial.analyse.holm.x_holm__mutmut_{at}" for at in range(30)] + ["seatrial.judge.words.x_asked__mutmut_1"]


def test_the_seed_alone_decides_and_a_module_s_sample_is_its_own() -> None:
    chosen = _sample(NAMES, 4, 1)
    assert chosen == _sample(list(reversed(NAMES)), 4, 1) and len(chosen) == len(set(chosen)) == 5
    assert _sample(NAMES[:30], 4, 1) == chosen[:4] and _sample(NAMES, 4, 2) != chosen


def test_modules_by_name_and_those_of_mutants() -> None:
    def chosen(*modules: str, mutants: list[str] | None = None) -> list[str]:
        return _modules(Namespace(modules=list(modules), mutants=mutants))

    assert chosen("holm", "judge.words") == ["analyse.holm", "judge.words"]
    assert chosen("analyse.charts")[0] == "analyse.charts.cells" and chosen("throttled") == ["analyse.charts.throttled"]
    assert chosen(mutants=[NAMES[0]]) == ["analyse.holm"]
    assert {"analyse.interval", "judge.verdict"} < set(chosen()) and not any("__init__" in name for name in chosen())
    with pytest.raises(SystemExit, match="no such module in analyse or judge: hulm"):
        chosen("hulm")


def test_a_mutant_that_never_ends_was_noticed_and_one_that_was_not_reached_was_not_tried() -> None:
    assert _counted(["killed", "timeout", "survived", "suspicious", "no tests", "not checked"]) == {
        "tried": 5,
        "killed": 2,
        "survived": 2,
        "no_test": 1,
        "not_reached": 1,
    }
