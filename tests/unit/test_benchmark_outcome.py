"""The last line of every benchmark."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
report: Any = runpy.run_path(str(BENCHMARKS / "outcome.py"))["report"]


@pytest.mark.parametrize(
    ("figures", "holds"),
    [({"cost_us": 20.0}, True), ({"cost_us": 20.1}, False), ({"cost_us": None}, False), ({}, False)],
)
def test_a_bound_holds_when_its_figure_is_there_and_not_above(figures: dict[str, float | None], holds: bool, capsys: Any) -> None:
    assert exit_code("some", figures, {"cost_us": 20.0}, n=3) == (0 if holds else 1)

    assert json.loads(capsys.readouterr().out) == {
        "benchmark": "some",
        "figures": figures,
        "bounds": {"cost_us": 20.0},
        "holds": holds,
        "n": 3,
    }


@pytest.mark.parametrize(("rate", "holds"), [(2000.0, True), (1999.9, False), (None, False)])
def test_a_lower_bound_holds_when_its_figure_is_not_below(rate: float | None, holds: bool, capsys: Any) -> None:
    assert exit_code("some", {"per_s": rate}, {}, {"per_s": 2000.0}) == (0 if holds else 1)

    printed = json.loads(capsys.readouterr().out)
    assert printed["bounds"] == {"per_s": {"at_least": 2000.0}}
    assert printed["holds"] is holds


def test_a_quick_run_says_nothing_about_its_bounds(capsys: Any) -> None:
    assert exit_code("some", {"cost_us": 20.1}, {"cost_us": 20.0}, quick=True) == 0

    assert json.loads(capsys.readouterr().out)["holds"] is None


def exit_code(*figures: object, **notes: object) -> int:
    try:
        report(*figures, **notes)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
