"""How step times spread in each run."""

from __future__ import annotations

from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.placed import MOST
from seatrial.report.html.specs.step_times import SHOWN, step_times
from tests.unit.report.html.made_page import made_page


def test_no_chart_where_no_run_has_quantiles() -> None:
    assert step_times(PageData(summary={})) is None


def test_a_row_a_run_of_the_best_group_first() -> None:
    chart = step_times(made_page(steps=40, groups=2, repeats=2))
    assert chart is not None and (chart.section, chart.table, chart.picks) == ("distribution", "step_times", "all")
    names = [row["run"] for row in chart.spec["transform"][0]["from"]["data"]["values"]]
    assert names == ["g1_r1", "g1_r2", "g2_r1", "g2_r2"] and "Only the best" not in chart.caption


def test_least_to_most_the_middle_and_the_median_are_drawn_and_told() -> None:
    chart = step_times(made_page(steps=40, groups=1, repeats=1))
    assert chart is not None
    drawn = [(layer["encoding"]["x"]["field"], layer["encoding"].get("x2", {}).get("field")) for layer in chart.spec["layer"]]
    assert drawn == [("q0", "q100"), ("q5", "q95"), ("q25", "q75"), ("q50", None)]
    assert [one["field"] for one in chart.spec["encoding"]["tooltip"]][1:-2] == list(SHOWN)


def test_of_too_many_runs_the_best_are_drawn_and_that_is_said() -> None:
    chart = step_times(made_page(steps=4, groups=MOST + 1, repeats=1, gpus=1, telemetry=False))
    assert chart is not None and f"Only the best {MOST} of {MOST + 1} runs are drawn." in chart.caption
