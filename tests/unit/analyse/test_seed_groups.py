"""The seeds' group columns, by the seeds' rules."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from seatrial.analyse.seed_groups import MIXED, seed_group_cells
from seatrial.records.columns import GROUP_SEED
from seatrial.records.measure import Cell
from seatrial.records.results import MeasuredRun
from tests.unit.analyse.factory import measured, spec


def run(repeat: int = 1, micro_batch: int = 8, **seed: Cell) -> MeasuredRun:
    return measured(spec("a", repeat, settings={"micro_batch": micro_batch}), measure={"seed": seed})


def cells(*runs: MeasuredRun, counted: tuple[MeasuredRun, ...] | None = None) -> dict[str, Any]:
    return seed_group_cells(runs, runs if counted is None else counted)


def test_every_column_but_those_that_others_fill() -> None:
    assert list(cells(run())) == [name for name in GROUP_SEED if name not in ("group", "mode", "runs")]


def test_configuration_is_one_value_or_mixed() -> None:
    columns = [name for name, value in cells(run(micro_batch=8), run(2, micro_batch=16)).items() if value == MIXED]
    assert columns == ["micro_batch"]
    assert cells(run(), run(2))["micro_batch"] == 8


def test_configuration_is_of_all_runs_and_numbers_are_of_those_that_count() -> None:
    good, bad = run(tail_mean_iter_p50_ms=10.0), run(2, micro_batch=16, tail_mean_iter_p50_ms=90.0)
    found = cells(good, bad, counted=(good,))
    assert found["micro_batch"] == MIXED and found["tail_mean_iter_p50_ms_mean"] == 10.0


def test_mean_and_deviation_of_the_runs_columns() -> None:
    found = cells(*(run(at, tail_mean_iter_p50_ms=value) for at, value in enumerate((10.0, 20.0, 60.0), start=1)))
    assert found["tail_mean_iter_p50_ms_mean"] == 30.0
    assert found["tail_mean_iter_p50_ms_std"] == pytest.approx(statistics.stdev([10.0, 20.0, 60.0]))


@pytest.mark.parametrize(
    ("values", "mean", "std"),
    [((10.0,), 10.0, 0.0), ((None, float("nan"), float("inf"), True, "x"), None, None), ((4, None), 4.0, 0.0)],
)
def test_what_is_no_number_does_not_count(values: tuple[Cell, ...], mean: float | None, std: float | None) -> None:
    found = cells(*(run(at, tail_mean_iter_p50_ms=value) for at, value in enumerate(values, start=1)))
    assert (found["tail_mean_iter_p50_ms_mean"], found["tail_mean_iter_p50_ms_std"]) == (mean, std)


def test_unstable_runs_are_a_share_of_those_that_tell() -> None:
    found = cells(run(unstable_run_flag=True), run(2, unstable_run_flag=False), run(3))
    assert (found["unstable_run_count"], found["unstable_run_ratio"]) == (1, 0.5)
    none = cells(run(), run(2))
    assert (none["unstable_run_count"], none["unstable_run_ratio"]) == (None, None)


def test_the_stability_score_is_made_worse_by_unstable_runs() -> None:
    tail = {"tail_mean_iter_p50_ms": 10.0, "tail_mean_iter_p90_ms": 15.0}
    assert cells(run(**tail))["stability_score"] == 1.5
    assert cells(run(**tail, unstable_run_flag=True), run(2, **tail, unstable_run_flag=False))["stability_score"] == 1.5 * 1.5
    assert cells(run(tail_mean_iter_p50_ms=0.0, tail_mean_iter_p90_ms=1.0))["stability_score"] is None
    assert cells(run(tail_mean_iter_p50_ms=10.0))["stability_score"] is None


def test_a_run_of_which_nothing_was_measured_has_its_configuration() -> None:
    bare = MeasuredRun(attempt=run().attempt, measure=None)
    assert cells(bare)["micro_batch"] == 8 and cells(bare)["tail_mean_iter_p50_ms_mean"] is None
