"""`seatrial watch` in a terminal: how a campaign stands, and that it ends when that does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial import files
from seatrial.campaign.owning import owned
from seatrial.cli import watch
from seatrial.cli.main import run_command
from seatrial.paths import CampaignPaths
from seatrial.records.codec import to_json
from seatrial.records.live import LiveState

STATE = LiveState(t=1.0, pid=1, host="node1", plan="nightly", count=4, finished=1, run="mb8_r2", step=6, total_steps=10, elapsed_s=3.0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("over", [False, True])
def test_watch_says_once_how_it_stands(here: Path, over: bool, capsys: pytest.CaptureFixture[str]) -> None:
    paths = CampaignPaths(here / "out")
    files.write_json(paths.progress, {**to_json(STATE), "over": over})
    assert run_command(["watch", "out", "--once"]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert line.endswith(f"{watch.NOBODY}\n") is not over, "nobody runs one that did not say it was over"
    assert ("nightly: over, 1 of 4 runs done" if over else "mb8_r2: step 6 of 10") in line


def test_watch_ends_when_the_campaign_does(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = CampaignPaths(here / "out")
    files.write_json(paths.progress, to_json(STATE))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            files.write_json(paths.progress, {**to_json(STATE), "over": True, "finished": 4})

    monkeypatch.setattr(watch.time, "sleep", sleep)
    with owned(paths):
        assert run_command(["watch", "out"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nightly: over, 4 of 4 runs done, 0 failed"
    assert slept == [watch.LOOK_EVERY_S] * 2


@pytest.mark.parametrize("content", ["", "[]", "{", json.dumps({"plan": 3})])
def test_a_progress_file_that_cannot_be_read_is_none(here: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    CampaignPaths(here).progress.write_text(content)
    assert run_command(["watch", ".", "--once"]) == 1
    assert "nothing has run in" in capsys.readouterr().err
