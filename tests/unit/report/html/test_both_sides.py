"""Two campaigns as one for the charts."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.report.html import both_sides as module
from seatrial.report.html.both_sides import both_sides
from seatrial.report.html.page_data import PageData
from seatrial.report.html.summary_tables import groups_table, runs_table


def campaign(groups: dict[str, float], *, unit: str = "samples/s", steps: int = 3, axis: str = "micro_batch") -> PageData:
    standings = [
        {"rank": place, "group": name, "value": value, "note": "winner" if place == 1 else "", "axes": {axis: place}, "lane": True}
        for place, (name, value) in enumerate(groups.items(), start=1)
    ]
    runs = [{"run": f"{name}_r{repeat}", "group": name, "repeat": repeat, "outcome": "ok"} for name in groups for repeat in (1, 2)]
    summary: dict[str, Any] = {"standings": standings, "current_runs": runs, "ranking": {"unit": unit, "winner": next(iter(groups), None)}}
    of_steps = [(run, at) for run in runs for at in range(steps)]
    table = {
        "run": [run["run"] for run, _ in of_steps],
        "group": [run["group"] for run, _ in of_steps],
        "step": [at for _, at in of_steps],
    }
    tables = {"groups": groups_table(summary), "runs": runs_table(summary), "steps": table}
    return PageData(summary=summary, tables={name: one for name, one in tables.items() if one and any(one.values())})


def test_names_tell_their_side() -> None:
    both = both_sides(campaign({"fast": 2.0, "slow": 1.0}), campaign({"fast": 3.0}, axis="workers"))
    groups = both.data.tables["groups"]
    assert groups["group"] == ["A fast", "A slow", "B fast"] and groups["side"] == ["A", "A", "B"]
    assert groups["axis_micro_batch"] == [1, 2, None] and groups["axis_workers"] == [None, None, 1]
    assert set(both.data.tables["steps"]["run"]) == {"A fast_r1", "A fast_r2", "A slow_r1", "A slow_r2", "B fast_r1", "B fast_r2"}
    assert {len(column) for column in both.data.tables["steps"].values()} == {3 * 6}
    assert [row["group"] for row in both.data.summary["standings"]] == groups["group"]


def test_the_winners_are_picked() -> None:
    both = both_sides(campaign({"fast": 2.0, "slow": 1.0}), campaign({"other": 3.0, "last": 1.0}))
    assert both.picks["runs"] == ["A fast_r1", "A fast_r2", "B other_r1", "B other_r2"] and both.picks["timeline"] == "A fast_r1"


def test_unlike_units_are_not_on_one_scale() -> None:
    both = both_sides(campaign({"a": 2.0}), campaign({"b": 1.0}, unit="tokens/s"))
    assert "groups" not in both.data.tables and "steps" in both.data.tables
    assert "A is ranked by samples/s and B by tokens/s" in both.remarks[0]


def test_a_side_without_anything_leaves_the_other() -> None:
    both = both_sides(campaign({"a": 2.0}), PageData(summary={}))
    assert both.data.tables["groups"]["group"] == ["A a"] and both.remarks == ()
    assert both_sides(PageData(summary={}), PageData(summary={})).data.tables == {}


def test_of_large_campaigns_the_best_runs_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_OF_A_SIDE", 25)
    both = both_sides(campaign({f"g{place:02}": 1.0 for place in range(20)}), campaign({"b": 1.0}))
    drawn = set(both.data.tables["steps"]["run"])
    # Those of the winner and of the last, which are picked, and then by place.
    assert drawn == {
        *(f"A {run}" for run in ("g00_r1", "g00_r2", "g19_r1", "g19_r2", "g01_r1", "g01_r2", "g02_r1", "g02_r2")),
        "B b_r1",
        "B b_r2",
    }
    assert len(both.data.tables["runs"]["run"]) == 42
    assert both.remarks == ("Of A, the 8 runs of the best groups are drawn; there are 40.",)
