"""What all charts share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seatrial.report.html.data import ChartData
from seatrial.report.html.page import all_charts
from seatrial.report.html.vega import (
    MAX_NAMES,
    UNKNOWN,
    first_of,
    group_order,
    lookup_window,
    ranked_groups,
    run_order,
)
from tests.unit.report.html.drawing import parts, svg, vega
from tests.unit.report.html.made_page import HOSTILE, made_charts

GROUPS = {"group": ["slow", "off", "none", "best"], "rank": [2, 1, None, 1], "lane": [True, False, True, True]}
RUNS = {
    "run": ["best_r2", "slow_r1", "odd_r1", "best_r1"],
    "group": ["best", "slow", "odd", "best"],
    "repeat": [2, 1, 1, 1],
    "window": ["steps 1–9", None, "whole run", "steps 1–9"],
    "n": [9, None, 1, 8],
}
DATA = ChartData(tables={"groups": GROUPS, "runs": RUNS, "steps": {"run": ["best_r1", "slow_r1", "nobody_r1"]}})


def test_the_main_lane_is_first_and_what_has_no_place_last() -> None:
    assert [row["group"] for row in ranked_groups(DATA)] == ["best", "slow", "off"]
    assert group_order(DATA) == ["best", "slow", "off", "none"]


def test_runs_are_by_their_group_and_then_by_their_repeat() -> None:
    assert run_order(DATA) == ["best_r1", "best_r2", "slow_r1", "odd_r1"]


def test_only_names_with_rows_are_drawn_and_those_nobody_ranks_come_last() -> None:
    assert first_of(DATA, "steps", "run") == (["best_r1", "slow_r1", "nobody_r1"], 3)
    many = ChartData(tables={"steps": {"run": [f"r{at:03}" for at in range(MAX_NAMES + 5)]}})
    names, in_all = first_of(many, "steps", "run")
    assert len(names) == MAX_NAMES and in_all == MAX_NAMES + 5


def test_a_run_is_reported_its_window_and_its_n() -> None:
    (lookup,) = lookup_window(DATA, "steps")
    assert lookup["from"]["data"]["values"] == [
        {"run": "slow_r1", "window": UNKNOWN, "n": 0},
        {"run": "best_r1", "window": "steps 1–9", "n": 8},
    ]
    assert lookup["default"] == UNKNOWN


pytest.importorskip("vl_convert")


IDS = ["ranking", "heat", "steps", "loss", "step_times", "phases", "startup", "timeline", "ranks", "eta"]
PAGES: dict[str, dict[str, Any]] = {
    "usual": {},
    "one group": {"groups": 1, "repeats": 1},
    "a hundred groups": {"groups": 100, "repeats": 1, "steps": 25, "gpus": 1},
    "no telemetry": {"telemetry": False},
    "a loss that breaks": {"nan_loss": True},
    "three axes": {"groups": 9, "axes": ("a", "b", "c")},
    "many ranks": {"ranks": 64},
    "hostile": {"name": HOSTILE, "axes": (f"a.b[0]{HOSTILE}", "c'd\"")},
}


def small(**how: Any) -> ChartData:
    return made_charts(**{"steps": 40, **how})


def test_every_chart_has_its_section_and_its_place() -> None:
    charts = all_charts(small())
    assert [chart.id for chart in charts] == IDS
    assert [chart.section for chart in charts] == [
        "ranking", "heat", "steps", "steps", "distribution", "phases", "startup", "timeline", "ranks", "eta",
    ]  # fmt: skip


def test_without_rows_there_is_no_chart() -> None:
    assert all_charts(ChartData()) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_document_is_understood(page: str) -> None:
    data = small(**PAGES[page])
    for chart in all_charts(data):
        assert vega(data, chart.id)["marks"], chart.id


@pytest.mark.parametrize("name", IDS)
def test_hostile_names_stay_text(name: str) -> None:
    picture = svg(small(**PAGES["hostile"]), name)
    assert "<script" not in picture
    assert "</script" not in picture


@pytest.mark.parametrize("page", ["usual", "hostile"])
def test_no_name_of_a_user_is_the_name_of_a_field(page: str) -> None:
    for chart in all_charts(small(**PAGES[page])):
        for part in parts(chart.spec):
            for key in ("field", "as", "lookup", "pivot"):
                value = part.get(key)
                assert not isinstance(value, str) or value.isidentifier(), (chart.id, value)


@pytest.mark.parametrize("name", IDS)
def test_every_tooltip_shows_window_and_n(name: str) -> None:
    spec = next(chart for chart in all_charts(small()) if chart.id == name).spec
    told = [part["tooltip"] for part in parts(spec) if part.get("tooltip") is not None]
    assert told
    for shown in told:
        if isinstance(shown, list):
            assert [one["field"] for one in shown[-2:]] == ["window", "n"]
        else:
            assert '"window"' in shown["value"]["expr"]
            assert '"n"' in shown["value"]["expr"]


def test_documents_of_a_large_campaign_stay_small() -> None:
    data = small(groups=300, repeats=1, steps=21, gpus=0)
    assert sum(len(json.dumps(chart.spec)) for chart in all_charts(data)) < 300_000
