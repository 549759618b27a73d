"""How good the predictions of the end were."""

from __future__ import annotations

from typing import Any

from seatrial.records.measure import Cell
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.eta import MOST_RUNS, eta
from tests.unit.report.html.made_page import columns, made_page


def predicted(*rows: dict[str, Cell], steps: list[tuple[str, Cell]] | None = None) -> PageData:
    usual: dict[str, Cell] = {"run": "a", "step": 5, "elapsed_s": 10.0, "eta_s": 20.0, "low_s": None, "high_s": None, "actual_s": 21.0}
    tables = {"eta": columns([{**usual, **row} for row in rows])}
    if steps:
        tables["steps"] = columns([{"run": run, "step": step} for run, step in steps])
    return PageData(summary={}, tables=tables)


def first_steps(data: PageData) -> dict[str, Any]:
    chart = eta(data)
    assert chart is not None
    lookup = next(one for one in chart.spec["transform"] if one.get("lookup") == "run")
    return {row["run"]: row["first_step"] for row in lookup["from"]["data"]["values"]}


def test_no_chart_where_no_run_predicted_its_end() -> None:
    assert eta(PageData(summary={})) is None
    assert eta(predicted({"eta_s": None}, {"elapsed_s": None})) is None


def test_a_few_runs_are_drawn_and_that_is_said() -> None:
    chart = eta(made_page(steps=40))
    assert chart is not None and f"The first {MOST_RUNS} of the picked runs." in chart.caption and chart.picks == "runs"
    assert {"filter": f"datum.run_number <= {MOST_RUNS}"} in chart.spec["transform"]


def test_a_prediction_is_of_the_steps_from_the_runs_first() -> None:
    told = predicted({}, {"run": "b"}, {"run": "c"}, steps=[("a", 4), ("a", 3), ("b", None)])
    assert first_steps(told) == {"a": 3, "b": 0, "c": 0}


def test_without_a_band_or_an_end_nothing_is_made_up() -> None:
    chart = eta(predicted({}))
    assert chart is not None
    made = {one["as"]: one["calculate"] for one in chart.spec["transform"] if "calculate" in one}
    assert made["low_end_s"] == "datum.elapsed_s + (isValid(datum.low_s) ? datum.low_s : datum.eta_s)"
    assert made["true_end_s"].endswith(": null") and made["error_s"].endswith(": null")


def test_the_true_end_is_a_rule_above_the_points() -> None:
    chart = eta(predicted({}))
    assert chart is not None and [layer["mark"]["type"] for layer in chart.spec["layer"]] == ["area", "line", "point", "rule"]
