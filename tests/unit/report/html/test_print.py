"""PDF by a headless browser, PNGs by vl_convert."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import psutil
import pytest

from seatrial.core.errors import UsageError
from seatrial.report.html.data import ChartData, drawn_spec
from seatrial.report.html.page import all_charts
from seatrial.report.html.print import (
    PNG_CHARTS,
    BrowserError,
    browser_command,
    find_browser,
    headless_browser,
    required_browser,
    standalone_spec,
    write_pdf,
    write_pngs,
)
from tests.unit.report.html.made_page import made_charts
from tests.unit.report.html.stub_browser import StubBrowser
from tests.waiting import wait_until

TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """So that what is left behind there can be seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "a folder" / "summary.html"
    path.parent.mkdir()
    path.write_text("<!doctype html><title>page</title>")
    return path


def test_the_page_is_opened_drawn_and_printed(tmp_path: Path, page: Path, own_temporary_folder: Path) -> None:
    browser = StubBrowser(tmp_path)
    pdf = page.with_suffix(".pdf")
    assert write_pdf(page, pdf, str(browser.program), timeout_s=TIMEOUT_S) == []
    assert pdf.read_bytes().startswith(b"%PDF")
    assert browser.questions["Page.navigate"]["url"] == page.as_uri()
    assert list(browser.questions)[-2:] == ["Runtime.evaluate", "Page.printToPDF"]
    assert browser.questions["Page.printToPDF"]["printBackground"] is True
    assert list(own_temporary_folder.iterdir()) == []
    assert sorted(child.name for child in page.parent.iterdir()) == ["summary.html", "summary.pdf"]


def test_the_load_of_the_page_itself_is_waited_for(tmp_path: Path, page: Path) -> None:
    browser = StubBrowser(tmp_path, loads_late=True)
    write_pdf(page, tmp_path / "p.pdf", str(browser.program), timeout_s=TIMEOUT_S)
    assert not browser.was_hurried
    # Events do not say whose they are: the page is asked, too.
    assert 'document.readyState !== "complete"' in browser.questions["Runtime.evaluate"]["expression"]


def test_the_browser_is_collected(tmp_path: Path, page: Path) -> None:
    before = {child.pid for child in psutil.Process().children()}
    write_pdf(page, tmp_path / "p.pdf", str(StubBrowser(tmp_path).program), timeout_s=TIMEOUT_S)
    assert {child.pid for child in psutil.Process().children()} <= before


def test_charts_that_could_not_be_drawn_are_named(tmp_path: Path, page: Path) -> None:
    browser = StubBrowser(tmp_path, Runtime_evaluate={"result": {"result": {"value": ["steps", "eta"]}}})
    assert write_pdf(page, tmp_path / "p.pdf", str(browser.program), timeout_s=TIMEOUT_S) == ["steps", "eta"]
    failing = StubBrowser(tmp_path, Runtime_evaluate={"result": {"result": {}, "exceptionDetails": {}}})
    assert "script failed" in write_pdf(page, tmp_path / "p.pdf", str(failing.program), timeout_s=TIMEOUT_S)[0]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ends_at_once": True}, "ended too early; its last error: No usable sandbox!"),
        ({"Page_printToPDF": {"error": {"message": "Printing failed"}}}, "refused Page.printToPDF: .*Printing failed"),
        ({"Page_printToPDF": {"result": {"data": "aGVsbG8="}}}, "did not print a PDF"),
        ({"Page_printToPDF": {"result": {"data": "not base64!"}}}, "did not print a PDF"),
        ({"Page_navigate": {"result": {"errorText": "net::ERR_FILE_NOT_FOUND"}}}, "could not open .*ERR_FILE_NOT_FOUND"),
    ],
)
def test_a_browser_that_fails_is_reported_and_the_old_pdf_stays(tmp_path: Path, page: Path, wrong: dict[str, object], says: str) -> None:
    pdf = page.with_suffix(".pdf")
    pdf.write_bytes(b"%PDF-old")
    browser = StubBrowser(tmp_path, **wrong)  # type: ignore[arg-type]
    with pytest.raises(BrowserError, match=says):
        write_pdf(page, pdf, str(browser.program), timeout_s=TIMEOUT_S)
    assert pdf.read_bytes() == b"%PDF-old"
    assert sorted(child.name for child in page.parent.iterdir()) == ["summary.html", "summary.pdf"]


def test_one_that_hangs_is_ended_with_its_group(tmp_path: Path, own_temporary_folder: Path) -> None:
    browser = StubBrowser(tmp_path, silent_at="Page.printToPDF", has_child=True)
    with (
        pytest.raises(BrowserError, match=r"did not answer Page\.printToPDF in time"),
        headless_browser(str(browser.program), TIMEOUT_S) as tools,
    ):
        tools.call("Target.createTarget")
        tools.deadline_m = time.monotonic() + 0.1
        tools.call("Page.printToPDF")
    wait_until(lambda: not is_running(browser.child_pid), "the browser's child did not end with it")
    assert list(own_temporary_folder.iterdir()) == []


def is_running(pid: int) -> bool:
    """A zombie whom nobody has collected yet is none that runs."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_one_that_is_no_program_is_reported(tmp_path: Path, page: Path) -> None:
    with pytest.raises(BrowserError, match="could not be started"):
        write_pdf(page, tmp_path / "p.pdf", str(tmp_path / "none"), timeout_s=TIMEOUT_S)


def test_only_root_goes_without_the_sandbox(tmp_path: Path) -> None:
    assert "--no-sandbox" not in browser_command("chromium", tmp_path, as_root=False)
    words = browser_command("chromium", tmp_path, as_root=True)
    assert "--no-sandbox" in words and f"--user-data-dir={tmp_path}" in words and words[-1] == "about:blank"


def test_the_browser_is_the_one_named_else_the_first_on_path(tmp_path: Path) -> None:
    for name in ("google-chrome", "microsoft-edge", "mine"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": str(tmp_path)}
    assert find_browser(path) == str(tmp_path / "google-chrome")
    assert find_browser({**path, "SEATRIAL_BROWSER": "mine"}) == str(tmp_path / "mine")
    assert find_browser({"PATH": "", "SEATRIAL_BROWSER": str(tmp_path / "mine")}) == str(tmp_path / "mine")
    assert find_browser({**path, "SEATRIAL_BROWSER": "gone"}) is None and find_browser({"PATH": str(tmp_path / "empty")}) is None
    assert required_browser(path) == find_browser(path)
    with pytest.raises(UsageError, match="SEATRIAL_BROWSER names 'gone'"):
        required_browser({**path, "SEATRIAL_BROWSER": "gone"})
    with pytest.raises(UsageError, match="install one"):
        required_browser({"PATH": str(tmp_path / "empty")})


pytest.importorskip("vl_convert")


def test_the_main_charts_are_written(tmp_path: Path) -> None:
    written = write_pngs(made_charts(steps=30), tmp_path / "charts")
    assert [path.name for path in written] == [f"{name}.png" for name in PNG_CHARTS]
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (tmp_path / "charts").iterdir()) == sorted(path.name for path in written)


def test_without_rows_nothing_is_written(tmp_path: Path) -> None:
    assert write_pngs(ChartData(), tmp_path / "charts") == []
    assert not (tmp_path / "charts").exists()


def test_on_paper_a_chart_has_its_own_width_and_ink_and_names_stay_names() -> None:
    data = made_charts(steps=25, name="currentColor")
    spec = standalone_spec(drawn_spec(next(chart for chart in all_charts(data) if chart.id == "ranking"), data), "Ranking")
    assert spec["width"] == 800
    assert spec["background"] == "white"
    assert spec["config"]["axis"]["labelColor"] == "#222222"
    assert spec["datasets"]["rows"][0]["group"] == "currentColor1"
    assert spec["transform"][0]["from"]["data"]["values"][0]["group"] == "currentColor1"
