"""`seatrial report` with --pdf, --png, --compare and --open: what is made, said, refused, and what the exit code is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli import report as verb
from seatrial.cli.main import run_command
from seatrial.cli.report_extras import Extras, Made, refuse_what_cannot_be
from seatrial.errors import UsageError
from seatrial.paths import CampaignPaths
from tests.unit.campaign.made_campaign import write_campaign
from tests.unit.report.html.stub_browser import StubBrowser

# The made campaign has a run that failed.
FAIL = 2
Report = Callable[..., tuple[int, str, str]]


@pytest.fixture
def campaign(tmp_path: Path) -> CampaignPaths:
    return write_campaign(tmp_path / "tuesday")


@pytest.fixture
def report(campaign: CampaignPaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Report:
    """Exit code, stdout and stderr of `report OUT WORDS…`."""
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        code = run_command(["report", str(campaign.folder), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubBrowser:
    folder = tmp_path / "browser"
    folder.mkdir()
    found = StubBrowser(folder)
    monkeypatch.setenv("SEATRIAL_BROWSER", str(found.program))
    return found


def last_line(out: str) -> dict[str, Any]:
    told = json.loads(out.splitlines()[-1])
    assert isinstance(told, dict)
    return told


def test_nothing_more_is_made_than_asked(report: Report, campaign: CampaignPaths) -> None:
    code, out, _ = report("--json")
    told = last_line(out)
    assert code == FAIL and told["html"] == str(campaign.summary_html) and campaign.summary_html.is_file()
    assert [told[name] for name in ("pdf", "png", "compare", "comparison")] == [None] * 4
    assert out.count("\n") == 1


def test_the_page_is_printed(report: Report, campaign: CampaignPaths, browser: StubBrowser) -> None:
    code, out, _ = report("--pdf")
    assert code == FAIL and f"PDF: {campaign.summary_pdf}" in out
    assert campaign.summary_pdf.read_bytes().startswith(b"%PDF")
    assert browser.questions["Page.navigate"]["url"] == campaign.summary_html.as_uri()


def test_a_browser_that_fails_keeps_nothing_else_from_being_made(
    report: Report, campaign: CampaignPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = StubBrowser(tmp_path, ends_at_once=True)
    monkeypatch.setenv("SEATRIAL_BROWSER", str(failing.program))
    code, out, err = report("--pdf", "--json")
    assert code == 1 and "--pdf: " in err and "No usable sandbox!" in err
    assert last_line(out)["pdf"] is None and last_line(out)["verdict"] == "FAIL"
    assert campaign.summary_html.is_file() and not campaign.summary_pdf.exists()


def test_without_a_browser_it_is_refused_before_anything_is_made(
    report: Report, campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("SEATRIAL_BROWSER", raising=False)
    code, _, err = report("--pdf")
    assert code == 1 and "install one" in err and "SEATRIAL_BROWSER" in err
    assert not campaign.summary_json.exists()


def test_without_the_package_that_draws_pictures_are_refused(
    report: Report, campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nowhere:
        def find_spec(self, name: str, *rest: Any) -> None:
            if name == "vl_convert":
                raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.delitem(sys.modules, "vl_convert", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Nowhere(), *sys.meta_path])
    code, _, err = report("--png")
    assert code == 1 and "which is not installed here: `pip install 'seatrial[charts]'`" in err
    assert not campaign.summary_json.exists()


def test_a_package_that_is_there_and_does_not_load_is_told_with_its_reason(
    report: Report, campaign: CampaignPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vl_convert.py").write_text("raise ImportError('GLIBC_2.99 not found')")
    monkeypatch.delitem(sys.modules, "vl_convert", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    code, _, err = report("--png")
    assert code == 1 and "cannot be loaded here (GLIBC_2.99 not found)" in err and "pip install" in err
    assert not campaign.summary_json.exists()


def test_pictures_are_drawn_and_shown_in_the_summary(report: Report, campaign: CampaignPaths) -> None:
    code, out, err = report("--png", "--json")
    pictures = [Path(path) for path in last_line(out)["png"]]
    assert code == FAIL and pictures and "Pictures: " in err
    assert {path.parent for path in pictures} == {campaign.charts}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    assert f"charts/{pictures[0].name}" in campaign.summary_md.read_text()


def test_outdated_pictures_of_ours_go_and_the_users_own_stay(
    report: Report, campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.report.html.png.write_pngs", lambda data, folder: [])
    campaign.charts.mkdir(exist_ok=True)
    mine, outdated = campaign.charts / "mine.png", campaign.charts / "heat.png"
    for picture in (mine, outdated):
        picture.write_bytes(b"old")
    code, out, _ = report("--png", "--json")
    assert code == FAIL and last_line(out)["png"] is None
    assert "heat.png" not in campaign.summary_md.read_text()
    assert mine.read_bytes() == b"old" and not outdated.exists()


def test_folders_that_stand_where_files_go_are_kept_aside_and_cost_nothing(
    report: Report, campaign: CampaignPaths, browser: StubBrowser, tmp_path: Path
) -> None:
    other = write_campaign(tmp_path / "monday")
    names = ("compare_monday.html", "summary.pdf", "charts/ranking.png")
    for name in names:
        (campaign.folder / name).mkdir(parents=True)
        (campaign.folder / name / "kept").touch()
    code, out, err = report("--compare", str(other.folder), "--pdf", "--png", "--json")
    told = last_line(out)
    assert code == FAIL
    assert all((campaign.folder / name).is_file() and (campaign.folder / f"{name}.folder-1" / "kept").is_file() for name in names)
    assert told["compare"] and told["pdf"] and str(campaign.charts / "ranking.png") in told["png"]
    assert all(f"it is now {Path(name).name}.folder-1" in err for name in names)


@pytest.mark.parametrize("wrong", [ValueError("no such scale"), PermissionError(13, "Permission denied", "ranking.png")])
def test_one_that_fails_costs_none_of_the_others(
    report: Report, campaign: CampaignPaths, browser: StubBrowser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Exception
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise wrong

    other = write_campaign(tmp_path / "monday")
    monkeypatch.setattr("seatrial.report.html.png.write_pngs", failing)
    monkeypatch.setattr("seatrial.campaign.side_by_side.write_compare_page", failing)
    code, out, err = report("--png", "--compare", str(other.folder), "--pdf", "--json")
    told = last_line(out)
    assert code == 1 and told["png"] is told["compare"] is None and told["pdf"] == str(campaign.summary_pdf)
    reason = "ranking.png: Permission denied" if isinstance(wrong, OSError) else "ValueError: no such scale"
    assert f"--png: {reason}; --compare: {reason}" in err


def test_a_picture_into_a_folder_that_is_not_there_is_refused(report: Report, campaign: CampaignPaths, tmp_path: Path) -> None:
    code, _, err = report("--svg", str(tmp_path / "none" / "picture.svg"))
    assert code == 1 and "there is no folder" in err and not (tmp_path / "none").exists() and not campaign.summary_json.exists()
    assert report("--svg", str(tmp_path / "picture.svg"))[0] == FAIL
    assert "<svg" in (tmp_path / "picture.svg").read_text()


def test_a_campaign_beside_itself_is_refused(report: Report, campaign: CampaignPaths, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(campaign.folder)
    for same in (campaign.folder, tmp_path / "link", campaign.folder / ".." / "tuesday"):
        code, _, err = report("--compare", str(same))
        assert code == 1 and "itself" in err and not campaign.summary_json.exists()


def test_unlike_machines_are_sent_to_the_verb_that_compares_them_all_the_same(
    report: Report, campaign: CampaignPaths, tmp_path: Path
) -> None:
    other = write_campaign(tmp_path / "monday")
    for run in other.runs():
        for attempt in run.attempts():
            told = json.loads(attempt.provenance.read_text())
            attempt.provenance.write_text(json.dumps({**told, "host": "another"}))
            outcome = json.loads(attempt.outcome.read_text())
            attempt.outcome.write_text(json.dumps({**outcome, "started_t": outcome["started_t"] + 1e5}))
    _, out, _ = report("--compare", str(other.folder), "--json")
    refused = last_line(out)["comparison"]["refused"]
    assert f"by `seatrial compare {campaign.folder} {other.folder} --across`" in refused


def test_two_others_of_one_name_have_a_page_each(report: Report, campaign: CampaignPaths, tmp_path: Path) -> None:
    pages = []
    for machine in ("m1", "m2"):
        _, out, _ = report("--compare", str(write_campaign(tmp_path / machine / "out").folder), "--json")
        pages.append(Path(last_line(out)["compare"]))
    assert len(set(pages)) == 2 and all(page.is_file() and page.name.startswith("compare_out-") for page in pages)


def test_a_page_that_could_not_be_drawn_is_not_offered_though_an_old_one_lies_there(
    report: Report, campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    report()

    def broken(data: object) -> None:
        raise ValueError("no such column")

    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path == campaign.summary_html:
            raise PermissionError(13, "denied")
        unlink(path, missing_ok)

    monkeypatch.setattr("seatrial.report.html.specs.all_charts.all_charts", broken)
    monkeypatch.setattr(Path, "unlink", refused)
    code, out, _ = report("--json")
    assert campaign.summary_html.is_file() and last_line(out)["html"] is None and code == 2


def test_without_a_display_it_says_how_to_get_the_page(report: Report, campaign: CampaignPaths) -> None:
    code, out, _ = report("--open")
    assert code == FAIL and "No browser can be opened here." in out and str(campaign.summary_html) in out


def test_two_campaigns_side_by_side(report: Report, campaign: CampaignPaths, tmp_path: Path) -> None:
    other = write_campaign(tmp_path / "monday")
    before = {path.relative_to(other.folder) for path in other.folder.rglob("*")}
    code, out, err = report("--compare", str(other.folder), "--json")
    page = campaign.folder / "compare_monday.html"
    told = last_line(out)
    assert code == FAIL and told["compare"] == str(page) and f"Side by side: {page}" in err
    assert "monday" in page.read_text() and "tuesday" in page.read_text()
    assert {path.relative_to(other.folder) for path in other.folder.rglob("*")} == before
    # The two are the same runs, copied: that is not compared, and told everywhere.
    refused = told["comparison"]["refused"]
    assert refused and f"Not compared: {refused}" in " ".join(err.split())


def test_what_is_no_campaign_is_refused_before_anything_is_made(report: Report, campaign: CampaignPaths, tmp_path: Path) -> None:
    code, _, err = report("--compare", str(tmp_path / "nothing"))
    assert code == 1 and "holds no campaign" in err and not campaign.summary_json.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_the_other_folder_need_not_be_writable(report: Report, tmp_path: Path) -> None:
    other = write_campaign(tmp_path / "monday")
    other.folder.chmod(0o555)
    try:
        assert report("--compare", str(other.folder))[0] == FAIL
    finally:
        other.folder.chmod(0o755)


def test_what_was_not_asked_for_is_null_in_the_machines_line() -> None:
    assert Made().told() == {"html": None, "pdf": None, "compare": None, "png": None, "comparison": None}
    made = Made(html=Path("a.html"), png=(Path("b.png"),), comparison={"refused": "x"})
    assert made.told() == {"html": "a.html", "pdf": None, "compare": None, "png": ["b.png"], "comparison": {"refused": "x"}}


def test_nothing_asked_for_is_nothing_refused(tmp_path: Path) -> None:
    refuse_what_cannot_be(Extras(), tmp_path)
    refuse_what_cannot_be(Extras(svg=tmp_path / "a.svg"), tmp_path)
    with pytest.raises(UsageError, match=r"^--svg .*: there is no folder .*none; make it first"):
        refuse_what_cannot_be(Extras(svg=tmp_path / "none" / "a.svg"), tmp_path)
    assert verb.EXAMPLES.count("seatrial report") == 4
