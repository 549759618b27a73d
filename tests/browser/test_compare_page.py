"""`seatrial report OUT --compare OUT2`: the page of two campaigns opens like any other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from seatrial.core.paths import CampaignPaths
from tests.browser.campaigns import FAILED
from tests.browser.conftest import OpenPage
from tests.harness import Harness


@pytest.fixture
def compared(real: CampaignPaths, tmp_path: Path) -> Path:
    """The real campaign beside a copy of itself."""
    for name in ("out", "before"):
        shutil.copytree(real.folder, tmp_path / name, symlinks=True)
    told = Harness(tmp_path).run("report", "out", "--compare", "before", "--json", code=FAILED)
    return tmp_path / json.loads(told.splitlines()[-1])["compare"]


@pytest.mark.parametrize("width", [380, 1600])
def test_it_opens_whole_at_any_width(width: int, compared: Path, open_page: OpenPage) -> None:
    opened = open_page(compared, width=width, height=900)
    assert opened.requests == [compared.as_uri()]
    assert opened.ask("edges") == []
    assert opened.charts()
    assert {opened.state(chart) for chart in opened.charts()} <= {"drawn", "empty"}
    assert opened.ask("order") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_both_themes(scheme: str, compared: Path, open_page: OpenPage) -> None:
    assert open_page(compared, color_scheme=scheme).ask("contrast", 4.5) == []
