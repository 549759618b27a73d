"""Two campaigns in one page: what may be laid side by side, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.campaign.results import remake
from seatrial.campaign.side_by_side import check_other, write_side_by_side
from seatrial.errors import CampaignError, UsageError
from tests.unit.campaign.compared_campaign import write_compared


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("two")
    for name, step_ms in (("monday", 20.0), ("tuesday", 10.0)):
        write_compared(folder / name, {"mb8": [step_ms, step_ms * 1.01, step_ms * 0.99]})
    return folder / "monday", folder / "tuesday"


def test_a_campaign_is_not_compared_with_itself(two: tuple[Path, Path]) -> None:
    check_other(*two)
    with pytest.raises(UsageError, match=r"that is .*monday itself"):
        check_other(two[0], two[0] / ".." / "monday")


def test_a_folder_without_a_campaign_is_refused_before_anything_is_made(two: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(CampaignError):
        check_other(two[0], tmp_path)


def test_the_page_lies_beside_the_reports_and_the_other_stays_as_it_is(two: tuple[Path, Path]) -> None:
    monday, tuesday = two
    results = remake(monday)
    before = sorted(path.name for path in tuesday.rglob("*"))
    page = monday / "compare_tuesday.html"
    page.mkdir()
    found = write_side_by_side(monday, results, tuesday)
    assert found.page == page and page.is_file() and found.page.stat().st_size > 1000
    assert found.moved.startswith("A folder stood where compare_tuesday.html is to be written")
    assert found.compared.refused == "" and len(found.compared.comparisons) == 1
    assert sorted(path.name for path in tuesday.rglob("*")) == before
