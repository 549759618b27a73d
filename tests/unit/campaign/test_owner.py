"""Who runs a campaign, read from its folder, and stop requests that reach the right one."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial import files
from seatrial.campaign.owner import Owner, ask_to_stop, asked_to_stop, is_locked, is_this_kernel, read_owner, runs_here, this_process
from seatrial.campaign.owning import owned
from seatrial.errors import CampaignError
from seatrial.paths import CampaignPaths
from seatrial.records.codec import to_json

ELSEWHERE = Owner(pid=41, host="node7", token="theirs", since_t=0.0, boot_id="of node7", start_ticks=9)


@pytest.fixture
def paths(tmp_path: Path) -> CampaignPaths:
    return CampaignPaths(tmp_path / "out")


def test_a_folder_that_nobody_touched_has_no_owner_and_no_lock(paths: CampaignPaths) -> None:
    assert read_owner(paths) is None and ask_to_stop(paths) is None and is_locked(paths) is False
    assert not paths.folder.exists()


def test_the_lock_is_seen_while_it_is_held(paths: CampaignPaths) -> None:
    paths.folder.mkdir()
    with open(paths.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_locked(paths) is True
    assert is_locked(paths) is False


def test_where_there_are_no_locks_nobody_can_tell(paths: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: object, how: int) -> None:
        raise OSError(37, "No locks available")

    paths.folder.mkdir()
    paths.lock.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert is_locked(paths) is None


def test_this_process_runs_here_and_its_namesake_of_another_time_does_not() -> None:
    own = this_process()
    assert is_this_kernel(own) and runs_here(own)
    assert not runs_here(replace(own, start_ticks=own.start_ticks + 1))
    assert not runs_here(replace(own, boot_id="before the last boot"))
    assert not runs_here(replace(own, start_ticks=0)), "an owner of an older version says nothing of when it began"
    assert this_process().token != own.token


def test_a_request_that_cannot_be_written_names_the_process_to_end(paths: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))

    def full(path: Path, value: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_json", full)
    with pytest.raises(CampaignError, match=r"No space left on device\): send TERM to process 41 on node7 instead"):
        ask_to_stop(paths)


def test_stop_request_reaches_the_present_owner_only(paths: CampaignPaths) -> None:
    assert ask_to_stop(paths) is None
    with owned(paths) as owner:
        files.write_json(paths.stop_request, {"token": "of an earlier owner"})
        assert not asked_to_stop(paths, owner)
        assert ask_to_stop(paths) == owner
        assert asked_to_stop(paths, owner)
    assert not paths.stop_request.exists()


def test_owner_file_of_a_dead_harness_does_not_count(paths: CampaignPaths) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    os.utime(paths.owner, (0, 0))
    assert read_owner(paths) is None


def test_an_owner_on_another_host_can_be_asked_to_stop_though_its_lock_is_not_seen(paths: CampaignPaths) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    assert ask_to_stop(paths) == ELSEWHERE and asked_to_stop(paths, ELSEWHERE)
