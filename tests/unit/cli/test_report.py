"""`report` with everything it makes besides, and `why`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.browser import has_display, open_page
from seatrial.cli.main import run_command
from seatrial.core.paths import CampaignPaths
from seatrial.results.recompute import recompute
from tests.original_campaign import OriginalAttempt, sweep_run, write_original_campaign
from tests.unit.report.html.stub_browser import StubBrowser
from tests.unit.results.campaigns import write_campaign

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
    assert code == 1 and "`pip install 'seatrial[charts]'`" in err
    assert not campaign.summary_json.exists()


def test_a_package_that_is_there_and_does_not_load_is_reported_with_its_reason(
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
    monkeypatch.setattr("seatrial.report.html.print.write_pngs", lambda data, folder: [])
    campaign.charts.mkdir(exist_ok=True)
    mine, outdated = campaign.charts / "mine.png", campaign.charts / "heat.png"
    for picture in (mine, outdated):
        picture.write_bytes(b"old")
    code, out, _ = report("--png", "--json")
    assert code == FAIL and last_line(out)["png"] is None
    assert "heat.png" not in campaign.summary_md.read_text()
    assert mine.read_bytes() == b"old" and not outdated.exists()


def test_folders_that_are_where_files_go_are_kept_aside_and_cost_nothing(
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
    monkeypatch.setattr("seatrial.report.html.print.write_pngs", failing)
    monkeypatch.setattr("seatrial.results.compare_page.compare_page", failing)
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

    monkeypatch.setattr("seatrial.report.html.page.all_charts", broken)
    monkeypatch.setattr(Path, "unlink", refused)
    code, out, _ = report("--json")
    assert campaign.summary_html.is_file() and last_line(out)["html"] is None and code == 2


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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_the_other_folder_need_not_be_writable(report: Report, tmp_path: Path) -> None:
    other = write_campaign(tmp_path / "monday")
    other.folder.chmod(0o555)
    try:
        assert report("--compare", str(other.folder))[0] == FAIL
    finally:
        other.folder.chmod(0o755)


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


FAILED = OriginalAttempt(status="failed", exit_code=1, last_step=100, launcher_lines=("torch.OutOfMemoryError: CUDA out of memory.",))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [sweep_run(repeat=number) for number in (1, 2)]
    folder = tmp_path_factory.mktemp("original") / "bench_2x4090"
    return write_original_campaign(folder, *runs, sweep_run(0, 160, attempts=(FAILED, OriginalAttempt())), torn_line=True, own_tables=True)


def test_the_head_says_what_it_was_made_of(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = (bench / "summary.md").read_text()
    assert run_command(["report", str(bench)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        out.startswith("Translated from the folder of the original stage-1 scripts,")
        and "512.0" in out
        and "PASS 1 of 1 criterion met" in out
    )
    assert out.count("original stage-1 scripts,") == 1
    page = (bench / "seatrial" / "summary.md").read_text()
    assert page.startswith("# Sea trial: original-stage1-scripts") and "Translated from the folder of the original" in page
    assert (bench / "summary.md").read_text() == own and not (bench / "plan.json").exists()


def test_machines_get_the_same(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", str(bench), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "PASS"
    summary = json.loads((bench / "seatrial" / "summary.json").read_text())
    assert summary["tail_points"] == 20 and summary["cautions"][0]["kind"] == "original_scripts"


def test_tables_are_exported(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", str(bench), "manifest"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Four attempts: one of them failed and was made again.
    assert len(lines) == 1 + 4 and lines[0].startswith("mode,group,repeat,status")


def test_runs_are_compared(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(bench / name) for name in ("sweep_z0_mb128_nw6_pf4_r1", "sweep_z0_mb160_nw6_pf4_r1")]
    assert run_command(["diff", *runs]) == 0
    assert "128 → 160" in capsys.readouterr().out


def test_what_cannot_be_used_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run_manifest.tsv").write_text("group\trepeat\tstatus\n")
    assert run_command(["report", str(tmp_path)]) == 1
    assert "holds no run that can be read" in capsys.readouterr().err


FIRST = "1-failed_runs-campaign"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    paths = write_campaign(tmp_path_factory.mktemp("why") / "out")
    recompute(paths.folder)
    return paths.folder


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy of out", symlinks=True))


def content(folder: Path) -> dict[str, str]:
    found = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {str(path): hashlib.sha256(data).hexdigest() for path, data in found.items()}


def told(out: Path, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, object]:
    assert run_command(["why", str(out), *words, "--json"]) == code
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_without_a_finding_all_are_listed(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["why", str(out)]) == 0
    text = capsys.readouterr().out
    assert f"x {FIRST}  FAIL" in text and "! failure:exception  problem" in text and "winner" in text


@pytest.mark.parametrize("name", [FIRST, "1", "1-fail"])
def test_a_finding_by_id_number_or_beginning(out: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run_command(["why", str(out), name]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{FIRST}: FAIL")
    assert "mb16_r2/attempt-1/outcome.json" in text
    assert "--remake" in text and f"'{FIRST}'" in text


def test_every_finding_can_be_traced_and_made_again_without_a_write(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(out)
    verdict = json.loads(CampaignPaths(out).verdict.read_text())
    for finding in (*verdict["findings"], *verdict["statements"]):
        found = told(out, capsys, finding["id"], "--remake")
        assert found["same"] is True, found
        for number in found["numbers"]:  # type: ignore[attr-defined]
            assert number["file"] and number["computed"] and number["raw"], number
            assert all((out / raw).is_file() for raw in number["raw"])
    assert content(out) == before


def test_raw_files_that_changed_are_seen(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = out / "mb8_r2/attempt-1/events_rank0.jsonl"
    lines = events.read_text().splitlines()
    events.write_text("\n".join(lines[: len(lines) // 2]) + "\n")
    assert run_command(["why", str(out), "winner", "--remake"]) == 2
    text = capsys.readouterr().out
    assert "Not the same:" in text and "recomputed:" in text


def test_a_table_edited_by_hand_is_seen(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = CampaignPaths(out).per_run_metrics
    header, *rows = table.read_text().splitlines()
    column = header.split(",").index("wall_samples_per_sec")
    cells = rows[0].split(",")
    cells[column] = "99999"
    table.write_text("\n".join([header, ",".join(cells), *rows[1:]]) + "\n")
    found = told(out, capsys, "steady_state", "--remake", code=2)
    assert "wall_samples_per_sec: the table has '99999'" in str(found["differences"])


def test_a_verdict_edited_by_hand_is_seen(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = CampaignPaths(out).verdict
    verdict = json.loads(path.read_text())
    verdict["findings"][0] |= {"verdict": "PASS"}
    verdict["findings"][0]["evidence"][0]["value"] = 0
    path.write_text(json.dumps(verdict))
    found = told(out, capsys, "1", "--remake", code=2)
    assert found["differences"] == ["verdict: recorded PASS, recomputed: FAIL", "campaign, value: recorded 0, recomputed: 1"]


@pytest.mark.parametrize("damage", [None, "", '{"verdict": 7'])
def test_without_a_readable_verdict_it_is_made_from_the_runs(out: Path, capsys: pytest.CaptureFixture[str], damage: str | None) -> None:
    path = CampaignPaths(out).verdict
    path.unlink()
    if damage is not None:
        path.write_text(damage)
    assert run_command(["why", str(out), "1", "--remake"]) == 0
    assert "There is no verdict.json to compare with" in capsys.readouterr().out


def test_remaking_wants_a_finding(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["why", str(out), "--remake"]) == 1
    assert "name it" in capsys.readouterr().err


def test_a_folder_of_the_original_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = write_original_campaign(tmp_path / "bench", *(sweep_run(repeat=number) for number in (1, 2)))
    run_command(["report", str(bench)])
    capsys.readouterr()
    ids = [one["id"] for part in ("findings", "statements") for one in json.loads((bench / "seatrial/verdict.json").read_text())[part]]
    for name in ids:
        found = told(bench, capsys, name, "--remake")
        assert found["same"] is True, found
        for number in found["numbers"]:  # type: ignore[attr-defined]
            assert number["raw"] and all((bench / "seatrial" / raw).is_file() for raw in number["raw"]), number
