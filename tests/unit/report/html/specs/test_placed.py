"""Which groups and runs a chart draws, and how a row is told its place."""

from __future__ import annotations

from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.placed import (
    MOST,
    UNKNOWN,
    first_of,
    group_order,
    is_number,
    only_best,
    ranked_groups,
    rows_of,
    run_order,
    told,
    told_place,
    told_window,
)

GROUPS = {"group": ["slow", "off", "none", "best"], "rank": [2, 1, None, 1], "lane": [True, False, True, True]}
RUNS = {
    "run": ["best_r2", "slow_r1", "odd_r1", "best_r1"],
    "group": ["best", "slow", "odd", "best"],
    "repeat": [2, 1, 1, 1],
    "window": ["steps 1–9", None, "whole run", "steps 1–9"],
    "n": [9, None, 1, 8],
}
DATA = PageData(summary={}, tables={"groups": GROUPS, "runs": RUNS, "steps": {"run": ["best_r1", "slow_r1", "nobody_r1"]}})
NOTHING = PageData(summary={})


def test_no_table_has_no_rows() -> None:
    assert rows_of(None) == [] and rows_of({}) == [] and ranked_groups(NOTHING) == [] and run_order(NOTHING) == []
    assert first_of(NOTHING, "steps", "run") == ([], 0)


def test_text_is_as_the_page_shows_it() -> None:
    assert rows_of({"group": ["a\u202eb"], "n": [1]}) == [{"group": rows_of({"x": ["a\u202eb"]})[0]["x"], "n": 1}]
    assert "\u202e" not in str(rows_of({"group": ["a\u202eb"]})[0]["group"])


def test_the_main_lane_stands_first_and_what_has_no_place_last() -> None:
    assert [row["group"] for row in ranked_groups(DATA)] == ["best", "slow", "off"]
    assert group_order(DATA) == ["best", "slow", "off", "none"]


def test_runs_stand_by_their_group_and_then_by_their_repeat() -> None:
    assert run_order(DATA) == ["best_r1", "best_r2", "slow_r1", "odd_r1"]


def test_only_names_with_rows_are_drawn_and_those_nobody_ranks_come_last() -> None:
    assert first_of(DATA, "steps", "run") == (["best_r1", "slow_r1", "nobody_r1"], 3)
    many = PageData(summary={}, tables={"steps": {"run": [f"r{at:03}" for at in range(MOST + 5)]}})
    names, in_all = first_of(many, "steps", "run")
    assert len(names) == MOST and in_all == MOST + 5


def test_what_is_not_in_the_list_is_not_drawn() -> None:
    assert told("group", []) == [{"filter": "false"}]
    lookup, dropped = told_place("group", ["best", "it's"])
    assert lookup["from"]["data"]["values"] == [{"group": "best", "place": 0}, {"group": "it's", "place": 1}], "names are data"
    assert lookup["from"]["fields"] == ["place"] and dropped == {"filter": "isValid(datum.place)"}


def test_a_run_is_told_its_window_and_its_n() -> None:
    (lookup,) = told_window(DATA, "steps")
    assert lookup["from"]["data"]["values"] == [
        {"run": "slow_r1", "window": UNKNOWN, "n": 0},
        {"run": "best_r1", "window": "steps 1–9", "n": 8},
    ]
    assert lookup["default"] == UNKNOWN


def test_it_is_said_where_not_all_are_drawn() -> None:
    assert only_best(40, 40, "runs") == "" and only_best(40, 99, "runs") == " Only the best 40 of 99 runs are drawn."


def test_a_number_that_can_be_drawn() -> None:
    assert [is_number(value) for value in (1, 2.5, True, None, "1", float("nan"))] == [True, True, False, False, False, False]
