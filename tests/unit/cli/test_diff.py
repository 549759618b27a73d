"""The verb on folders as the harness leaves them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from seatrial.cli import diff
from seatrial.cli.main import run_command
from seatrial.files import write_json
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.codec import to_json
from seatrial.records.command import Provenance
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.run_spec import LauncherSpec, PlaceSpec, RunSpec, WorkloadSpec


def put(out: Path, run: str, number: int = 1, *, how: Outcome = Outcome.OK, bs: int = 8, driver: str = "550") -> AttemptPaths:
    spec = RunSpec(
        run=run, group=run, repeat=1, hash=run, group_key=f"bs{bs}", plan="p", workload=WorkloadSpec(name="t"), axes={"bs": bs},
        launcher=LauncherSpec(kind="python"), place=PlaceSpec(), cwd="/",
    )  # fmt: skip
    attempt = CampaignPaths(out).run(run).attempt(number)
    write_json(attempt.spec, to_json(spec))
    write_json(attempt.provenance, to_json(Provenance(driver_version=driver, fingerprint=driver)))
    write_json(attempt.outcome, to_json(RunOutcome(run=run, attempt=number, hash=run, outcome=how)))
    return attempt


def test_runs_of_two_campaigns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "monday", "bs8_r1")
    put(tmp_path / "tuesday", "bs16_r1", bs=16, driver="560")
    assert run_command(["diff", str(tmp_path / "monday/bs8_r1"), str(tmp_path / "tuesday/bs16_r1"), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["parted_by"] == ["driver_version"]
    assert "8 → 16" in err and "* driver_version" in err


def test_like_runs_say_so_with_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in ("bs8_r1", "bs8_r2"):
        put(tmp_path, run)
    assert run_command(["diff", str(tmp_path / "bs8_r1"), str(tmp_path / "bs8_r2")]) == 0
    text = capsys.readouterr().out
    assert "Nothing that is recorded of the two differs." in text and "may be averaged" in text


def test_newest_attempt_that_ended_is_taken_and_any_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "bs8_r1", 1, how=Outcome.FAILED)
    put(tmp_path, "bs8_r1", 2)
    put(tmp_path, "bs8_r1", 3, how=Outcome.INTERRUPTED)
    run = tmp_path / "bs8_r1"
    assert run_command(["diff", str(run / "attempt-1"), str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["before"]["attempt"], told["after"]["attempt"]) == (1, 2)


def test_the_folder_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(put(tmp_path, "bs8_r1").folder)
    assert run_command(["diff", ".", "..", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []


def test_effective_settings_and_old_environment_files_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run, used in (("bs8_r1", "flash"), ("bs8_r2", "sdpa")):
        attempt = put(tmp_path, run)
        event = {"run": run, "attempt": 1, "rank": 0, "kind": "effective", "setting": "attn", "requested": "auto", "effective": used}
        attempt.events(0).write_text(json.dumps(event) + "\n")
        write_json(attempt.environment, {"variables": [{"name": "HF_HOME", "value": run, "set_by": "caller", "replaced": None}]})
    assert run_command(["diff", str(tmp_path / "bs8_r1"), str(tmp_path / "bs8_r2"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["differences"]
    assert [(one["section"], one["name"], one["before"], one["after"]) for one in found] == [
        ("effective settings", "attn", "flash", "sdpa"),
        ("environment", "HF_HOME", "bs8_r1", "bs8_r2"),
    ]


def test_what_is_no_run_is_refused_with_the_nearest_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "bs8_r1")
    broken = CampaignPaths(tmp_path).run("bs9_r1").attempt(1)
    broken.folder.mkdir(parents=True)
    for wrong, says in (
        (tmp_path / "bs8_r11", "did you mean 'bs8_r1'?"),
        (tmp_path, "is a campaign; name one of its runs: bs8_r1"),
        (tmp_path / "none" / "none", "holds no run"),
        (broken.folder, "no spec.json that can be read"),
    ):
        assert run_command(["diff", str(tmp_path / "bs8_r1"), str(wrong)]) == 1
        text = capsys.readouterr().err
        assert says in text and text.startswith("seatrial: ")


def test_markup_in_names_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run, bs in (("a_r1", 8), ("b_r1", 16)):
        attempt = put(tmp_path, run)
        spec = RunSpec(
            run=run, group=run, repeat=1, plan="p", workload=WorkloadSpec(name="t"), settings={"[bold]x": bs},
            launcher=LauncherSpec(kind="python"), place=PlaceSpec(), cwd="/",
        )  # fmt: skip
        write_json(attempt.spec, to_json(dataclasses.replace(spec, group_key=run)))
    assert run_command(["diff", str(tmp_path / "a_r1"), str(tmp_path / "b_r1")]) == 0
    assert "[bold]x" in capsys.readouterr().out


def test_the_exit_code_says_nothing_of_whether_they_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "a_r1")
    put(tmp_path, "b_r1", bs=16)
    assert diff.diff(tmp_path / "a_r1", tmp_path / "a_r1") == diff.diff(tmp_path / "a_r1", tmp_path / "b_r1") == 0
    assert capsys.readouterr().out
