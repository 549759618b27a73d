"""`seatrial stop`: whom it asks, and that there is somebody."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial import files
from seatrial.campaign.owning import owned
from seatrial.cli import stop
from seatrial.cli.main import run_command
from seatrial.paths import CampaignPaths


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_stop_asks_the_owner_and_says_whom(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = CampaignPaths(here / "out")
    with owned(paths) as owner:
        assert run_command(["stop", "out"]) == 0
        assert files.read_json(paths.stop_request) == {"token": owner.token}
    assert capsys.readouterr().out == f"asked process {owner.pid} on {owner.host} to stop; it ends its run and writes what it has\n"
    assert run_command(["stop", "out"]) == 1
    assert "no campaign is running in out" in capsys.readouterr().err
    assert stop.EXAMPLES.startswith("seatrial stop ")
