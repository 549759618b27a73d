"""`--open`: the user's browser, or how to get to the page without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seatrial.cli.open_page import has_display, open_page

WINDOW = {"DISPLAY": ":0"}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "a folder" / "summary.html"


def test_the_browser_is_given_the_address_of_the_file(page: Path) -> None:
    asked: list[str] = []
    assert open_page(page, lambda address: not asked.append(address), WINDOW) == f"Opened: {page}"
    assert asked == [page.as_uri()] and asked[0].startswith("file:///") and "a%20folder" in asked[0]


def test_a_browser_that_refuses_is_none(page: Path) -> None:
    said = open_page(page, lambda address: False, WINDOW)
    assert said.startswith("No browser can be opened here.") and f"{page}' ." in said and "scp" in said


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="a display is always there")
def test_without_a_display_nobody_is_asked(page: Path) -> None:
    asked: list[str] = []
    assert "scp" in open_page(page, lambda address: not asked.append(address), {})
    assert asked == [] and not has_display({"DISPLAY": ""}) and has_display({"WAYLAND_DISPLAY": "wayland-0"})
