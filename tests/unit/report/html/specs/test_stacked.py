"""Parts of a whole as one bar for each group."""

from __future__ import annotations

from seatrial.report.html.specs.placed import UNKNOWN
from seatrial.report.html.specs.stacked import stacked
from seatrial.report.html.specs.theme import Spec, row_height
from seatrial.report.html.specs.tooltip import number

COLOURS = {"fwd": "#111", "bwd": "#222"}


def made(**more: list[Spec]) -> Spec:
    return stacked(["best", "slow"], "phase", "mean_ms", "ms", COLOURS, windows={"best": "steps 1–9"}, **more)


def test_groups_stand_by_their_place_with_their_windows() -> None:
    lookup = made()["transform"][0]
    assert lookup["from"]["data"]["values"] == [
        {"group": "best", "place": 0, "window": "steps 1–9"},
        {"group": "slow", "place": 1, "window": UNKNOWN},
    ]
    assert made()["height"] == row_height(2)


def test_parts_have_one_order_and_one_colour_each_everywhere() -> None:
    spec = made()
    places = next(one for one in spec["transform"] if one.get("lookup") == "phase")
    assert places["from"]["data"]["values"] == [{"phase": "fwd", "at": 0}, {"phase": "bwd", "at": 1}]
    assert spec["encoding"]["color"]["scale"] == {"domain": ["fwd", "bwd"], "range": ["#111", "#222"]}
    assert spec["encoding"]["order"]["field"] == "at"


def test_a_share_of_nothing_is_nothing() -> None:
    assert any(one.get("calculate") == "datum.whole > 0 ? datum.mean / datum.whole : 0" for one in made()["transform"])


def test_what_is_shown_of_a_group_stands_before_its_runs() -> None:
    of_group = {"calculate": "1", "as": "usual"}
    spec = made(of_group=[of_group], shown=[number("usual", "usual step, ms")])
    fields = [one["field"] for one in spec["encoding"]["tooltip"]]
    assert spec["transform"][-1] == of_group and fields == ["group", "phase", "mean", "share", "usual", "runs", "window", "n"]
