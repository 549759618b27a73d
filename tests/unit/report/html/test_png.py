from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vl_convert")

from seatrial.report.html.page_data import PageData
from seatrial.report.html.png import DRAWN, on_paper, write_pngs
from seatrial.report.html.rows_for import drawn_spec
from seatrial.report.html.specs.all_charts import all_charts
from tests.unit.report.html.made_page import made_page


def test_the_main_charts_are_written(tmp_path: Path) -> None:
    written = write_pngs(made_page(steps=30), tmp_path / "charts")
    assert [path.name for path in written] == [f"{name}.png" for name in DRAWN]
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (tmp_path / "charts").iterdir()) == sorted(path.name for path in written)


def test_without_rows_nothing_is_written(tmp_path: Path) -> None:
    assert write_pngs(PageData(summary={}), tmp_path / "charts") == []
    assert not (tmp_path / "charts").exists()


def test_on_paper_a_chart_has_its_own_width_and_ink_and_names_stay_names() -> None:
    data = made_page(steps=25, name="currentColor")
    spec = on_paper(drawn_spec(next(chart for chart in all_charts(data) if chart.id == "ranking"), data), "Ranking")
    assert spec["width"] == 800
    assert spec["background"] == "white"
    assert spec["config"]["axis"]["labelColor"] == "#222222"
    assert spec["datasets"]["rows"][0]["group"] == "currentColor1"
    assert spec["transform"][0]["from"]["data"]["values"][0]["group"] == "currentColor1"
