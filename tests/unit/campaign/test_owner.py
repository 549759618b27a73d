"""One owner at a time, and stop requests that reach the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial import files
from seatrial.campaign.owner import ask_to_stop, asked_to_stop, owned, read_owner
from seatrial.errors import CampaignError, RefusedError
from seatrial.paths import CampaignPaths


def test_second_owner_is_told_who_holds_it(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path / "out")
    with owned(paths) as owner, pytest.raises(CampaignError, match=f"process {owner.pid}"), owned(paths):
        raise AssertionError("two owners")
    with owned(paths):
        assert read_owner(paths) is not None
    assert read_owner(paths) is None


def test_stop_request_reaches_the_present_owner_only(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path / "out")
    assert ask_to_stop(paths) is None
    with owned(paths) as owner:
        files.write_json(paths.stop_request, {"token": "of an earlier owner"})
        assert not asked_to_stop(paths, owner)
        assert ask_to_stop(paths) == owner
        assert asked_to_stop(paths, owner)
    assert not paths.stop_request.exists()


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(RefusedError, match="cannot be made"), owned(CampaignPaths(tmp_path / "out")):
        raise AssertionError("owned a file")


def test_owner_file_of_a_dead_harness_does_not_count(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    files.write_json(paths.owner, {"pid": 1, "host": "h", "token": "t", "since_t": 0.0})
    assert read_owner(paths) is None
