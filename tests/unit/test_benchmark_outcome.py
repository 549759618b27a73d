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
    report("some", figures, {"cost_us": 20.0}, n=3)

    assert json.loads(capsys.readouterr().out) == {
        "benchmark": "some",
        "figures": figures,
        "bounds": {"cost_us": 20.0},
        "holds": holds,
        "n": 3,
    }


def test_every_benchmark_shows_how_it_is_run() -> None:
    names = {path.stem for path in BENCHMARKS.glob("*.py")} - {"outcome", "eta_jobs", "endurance_job"}
    assert names == {"probe_overhead", "sampler_cost", "harness_gap", "startup", "eta_error", "analysis_scale", "endurance"}
    lacking = [name for name in names if f"python benchmarks/{name}.py" not in (BENCHMARKS / f"{name}.py").read_text()]
    assert lacking == []
