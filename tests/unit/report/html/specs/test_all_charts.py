from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("vl_convert")

from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.all_charts import all_charts
from tests.unit.report.html.made_page import HOSTILE, made_page
from tests.unit.report.html.specs.drawing import parts, svg, vega

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


def small(**how: Any) -> PageData:
    return made_page(**{"steps": 40, **how})


def test_every_chart_has_its_section_and_its_place() -> None:
    charts = all_charts(small())
    assert [chart.id for chart in charts] == IDS
    assert [chart.section for chart in charts] == [
        "ranking", "heat", "steps", "steps", "distribution", "phases", "startup", "timeline", "ranks", "eta",
    ]  # fmt: skip


def test_without_rows_there_is_no_chart() -> None:
    assert all_charts(PageData(summary={})) == []
    assert all_charts(PageData(summary={"ranking": None, "runs": None})) == []


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
    for tooltip in told:
        if isinstance(tooltip, list):
            assert [one["field"] for one in tooltip[-2:]] == ["window", "n"]
        else:
            assert '"window"' in tooltip["value"]["expr"]
            assert '"n"' in tooltip["value"]["expr"]


def test_charts_have_the_colour_of_the_page_and_no_ground_of_their_own() -> None:
    for chart in all_charts(small()):
        assert chart.spec["config"]["background"] == "transparent"
        assert chart.spec["config"]["axis"]["labelColor"] == "currentColor"
        assert chart.spec["data"] == {"name": "rows"}
        assert chart.spec.get("width", "container") == "container"


def test_documents_of_a_large_campaign_stay_small() -> None:
    data = small(groups=300, repeats=1, steps=21, gpus=0)
    assert sum(len(json.dumps(chart.spec)) for chart in all_charts(data)) < 300_000
