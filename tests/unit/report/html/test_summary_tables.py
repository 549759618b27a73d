"""Groups and runs of a page, also of a summary that an earlier version wrote."""

from __future__ import annotations

from typing import Any

from seatrial.report.html.summary_tables import groups_table, runs_table, standings

EARLIER: dict[str, Any] = {
    "ranking": {"metric": "samples_per_s", "unit": "samples/s", "winner": "a", "decided": True},
    "ranked_groups": [
        {"rank": 1, "group": "a", "wall_samples_per_sec": 10.0, "axis_bs": 8, "runs": 2},
        {"rank": 2, "group": "b", "wall_samples_per_sec": 9.0, "ratio_to_leader": 0.9, "ratio_low": 0.8, "ratio_high": 0.95, "lane": False},
    ],
    "runs": [{"run": "a_r1", "group": "a", "wall_samples_per_sec": 10.0, "window_first_step": 5, "window_last_step": 9, "window_n": 5}],
    "skipped_runs": [{"run": "b_r1", "group": "b", "outcome": "failed"}],
}


def test_standings_of_an_earlier_version() -> None:
    first, second = standings(EARLIER)
    assert (first["note"], first["value"], first["ratio"], first["axes"], first["lane"]) == ("winner", 10.0, None, {"bs": 8}, True)
    assert (second["note"], second["ratio"], second["ratio_low"], second["ratio_high"], second["lane"]) == ("", 0.9, 0.8, 0.95, False)
    assert standings({**EARLIER, "pending": ["a_r2"]})[0]["note"] == "leads"
    assert groups_table(EARLIER)["axis_bs"] == [8, None]


def test_runs_of_an_earlier_version() -> None:
    table = runs_table(EARLIER)
    assert (table["run"], table["outcome"], table["value"]) == (["a_r1", "b_r1"], ["ok", "failed"], [10.0, None])
    assert (table["window"], table["n"]) == (["steps 5–9", ""], [5, None])


def test_what_is_told_now_comes_first() -> None:
    told = {"rank": 1, "group": "z", "ratio": 1.0, "axes": {}}
    assert standings({**EARLIER, "standings": [told]}) == [told]
    assert groups_table({}) == {} and runs_table({}) == {}
