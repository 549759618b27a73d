"""`seatrial why` on a campaign as the harness leaves one."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from seatrial.campaign.results import remake
from seatrial.cli import why
from seatrial.cli.main import run_command
from seatrial.paths import CampaignPaths
from tests.original_campaign import sweep_run, write_original_campaign
from tests.unit.campaign.made_campaign import write_campaign

FIRST = "1-failed_runs-campaign"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    paths = write_campaign(tmp_path_factory.mktemp("why") / "out")
    remake(paths.folder)
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
    assert f"x {FIRST}  FAIL" in text and "failure:exception  FAIL" in text and "winner" in text


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
    assert run_command(["why", str(out), "winner", "--remake"]) == why.DIFFERS
    text = capsys.readouterr().out
    assert "Not the same:" in text and "the files give" in text


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
    assert found["differences"] == ["verdict: said PASS, the files give FAIL", "campaign, value: said 0, the files give 1"]


@pytest.mark.parametrize("damage", [None, "", '{"verdict": 7'])
def test_without_a_readable_verdict_it_is_made_from_the_runs(out: Path, capsys: pytest.CaptureFixture[str], damage: str | None) -> None:
    path = CampaignPaths(out).verdict
    path.unlink()
    if damage is not None:
        path.write_text(damage)
    assert run_command(["why", str(out), "1", "--remake"]) == 0
    assert "There is no verdict.json to compare with" in capsys.readouterr().out


def test_an_unknown_id_names_the_nearest(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["why", str(out), "1-failed_run-campain"]) == 1
    assert f"did you mean '{FIRST}'?" in capsys.readouterr().err


def test_remaking_wants_a_finding(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["why", str(out), "--remake"]) == 1
    assert "name it" in capsys.readouterr().err


def test_a_folder_that_holds_no_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["why", str(tmp_path)]) == 1
    assert "holds no campaign" in capsys.readouterr().err


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
