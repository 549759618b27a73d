"""One owner of a campaign's folder at a time, on whatever host; stop requests reach the right one."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.campaign.lock import (
    LEASE_S,
    Clock,
    Owner,
    OwnerHeartbeat,
    hold_lock,
    is_locked,
    is_running_here,
    is_same_boot,
    is_stop_requested,
    new_owner,
    read_owner,
    request_stop,
)
from seatrial.core import files
from seatrial.core.errors import CampaignError, RefusedError
from seatrial.core.paths import CampaignPaths
from seatrial.records.codec import to_json
from tests.facts import states
from tests.waiting import wait_until

ELSEWHERE = Owner(pid=41, host="node7", token="theirs", since_t=0.0, boot_id="of node7", start_ticks=9)


@pytest.fixture
def paths(tmp_path: Path) -> CampaignPaths:
    return CampaignPaths(tmp_path / "out")


def test_a_folder_that_nobody_touched_has_no_owner_and_no_lock(paths: CampaignPaths) -> None:
    assert read_owner(paths) is None and request_stop(paths) is None and is_locked(paths) is False
    assert not paths.folder.exists()


@pytest.mark.parametrize("used_before", [False, True])
def test_a_folder_has_an_identity_from_its_first_owner_on_and_another_after_it_was_removed(paths: CampaignPaths, used_before: bool) -> None:
    if used_before:
        files.write_json(paths.plan, {"name": "of an earlier version"})
    found = []
    for remove in (False, True, False):
        if remove:
            shutil.rmtree(paths.folder)
        with hold_lock(paths):
            found.append(files.read_json(paths.identity))
    assert [one["adopted"] for one in found] == [used_before, False, False]
    assert found[0]["id"] != found[1]["id"] == found[2]["id"]


def test_where_there_are_no_locks_nobody_can_tell(paths: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: object, how: int) -> None:
        raise OSError(37, "No locks available")

    paths.folder.mkdir()
    paths.lock.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert is_locked(paths) is None


def test_this_process_runs_here_and_its_namesake_of_another_time_does_not() -> None:
    own = new_owner()
    assert is_same_boot(own) and is_running_here(own)
    assert not is_running_here(replace(own, start_ticks=own.start_ticks + 1))
    assert not is_running_here(replace(own, boot_id="before the last boot"))
    assert not is_running_here(replace(own, start_ticks=0)), "an owner of an older version has no start time"
    assert new_owner().token != own.token


def test_a_request_that_cannot_be_written_names_the_process_to_end(paths: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))

    def full(path: Path, value: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_json", full)
    with pytest.raises(CampaignError, match=r"No space left on device.*TERM.*process 41 on node7"):
        request_stop(paths)


def test_stop_request_reaches_the_present_owner_only(paths: CampaignPaths) -> None:
    assert request_stop(paths) is None
    with hold_lock(paths) as owner:
        files.write_json(paths.stop_request, {"token": "of an earlier owner"})
        assert not is_stop_requested(paths, owner)
        assert request_stop(paths) == owner
        assert is_stop_requested(paths, owner)
    assert not paths.stop_request.exists()


def test_owner_file_of_a_dead_harness_does_not_count(paths: CampaignPaths) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    os.utime(paths.owner, (0, 0))
    assert read_owner(paths) is None


def test_an_owner_on_another_host_can_be_asked_to_stop_though_its_lock_is_not_seen(paths: CampaignPaths) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    assert request_stop(paths) == ELSEWHERE and is_stop_requested(paths, ELSEWHERE)


HOLDER = """
import sys, time
from pathlib import Path
from seatrial.campaign.lock import hold_lock
from seatrial.core.paths import CampaignPaths
with hold_lock(CampaignPaths(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


class Watched:
    """A clock that goes on only when somebody waits, and calls `act` at each wait."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.now_m, self.act, self.warnings = 0.0, act, list[str]()

    @property
    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.now_m, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now_m += seconds
        self.act()


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another harness that owns the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: object, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_second_owner_is_refused_with_the_holders_name(paths: CampaignPaths) -> None:
    with hold_lock(paths) as owner, pytest.raises(CampaignError, match=f"process {owner.pid}"), hold_lock(paths):
        raise AssertionError("two owners")
    with hold_lock(paths):
        assert read_owner(paths) is not None
    assert read_owner(paths) is None


def test_a_file_in_place_of_the_folder_is_named(paths: CampaignPaths) -> None:
    paths.folder.write_text("")
    with pytest.raises(RefusedError, match="cannot be created"), hold_lock(paths):
        raise AssertionError("owned a file")


def test_a_full_disk_refuses_before_anything_starts(paths: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_json", full)
    with pytest.raises(RefusedError, match="No space left on device; fix that"), hold_lock(paths):
        raise AssertionError("owned a full disk")
    monkeypatch.undo()
    with hold_lock(paths):
        pass


def test_a_killed_holder_is_followed_at_once(paths: CampaignPaths) -> None:
    with holder(paths.folder) as process:
        process.kill()
        process.wait()
        assert paths.owner.exists() and read_owner(paths) is None
        watched = Watched()
        with hold_lock(paths, watched.warnings.append, watched.clock) as owner:
            assert read_owner(paths) == owner
    assert watched.warnings == [] and watched.now_m == 0


def test_a_suspended_holder_is_respected(paths: CampaignPaths) -> None:
    with holder(paths.folder) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(CampaignError, match=f"process {process.pid}"), hold_lock(paths):
            raise AssertionError("two owners")
        process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("content", [b"{", b'{"pid": "x"}'])
def test_an_unreadable_owner_file_names_nobody(paths: CampaignPaths, content: bytes) -> None:
    paths.folder.mkdir()
    paths.owner.write_bytes(content)
    assert read_owner(paths) is None and request_stop(paths) is None
    with hold_lock(paths) as owner:
        assert read_owner(paths) == owner and not is_stop_requested(paths, owner)


@pytest.mark.parametrize("full", [False, True])
def test_an_owner_on_another_host_that_beats_is_respected(paths: CampaignPaths, full: bool) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    beat = OwnerHeartbeat(paths, ELSEWHERE)
    if full:
        beat.raise_once = lambda: os.utime(paths.owner)  # type: ignore[method-assign]
    watched = Watched(lambda: beat.raise_once() if watched.now_m >= 5 else None)
    with pytest.raises(CampaignError, match="in use by process 41 on node7: "), hold_lock(paths, watched.warnings.append, watched.clock):
        raise AssertionError("two owners")
    assert 5 <= watched.now_m < LEASE_S
    (warning,) = watched.warnings
    assert states(warning, paths.owner, "process 41 on node7", "15 s")
    with pytest.raises(CampaignError, match="node7"), hold_lock(paths, watched.warnings.append, watched.clock):
        raise AssertionError("the lock was not given back")


def test_an_owner_on_another_host_that_gives_no_sign_is_followed(paths: CampaignPaths) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    watched = Watched()
    with hold_lock(paths, watched.warnings.append, watched.clock) as owner:
        assert read_owner(paths) == owner
    assert watched.now_m == pytest.approx(LEASE_S, abs=1)
    assert watched.warnings[1] == "no heartbeat of process 41 on node7: taking over"
    assert not paths.owner.exists()


def test_an_owner_on_another_host_that_leaves_is_followed_without_delay(paths: CampaignPaths) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    watched = Watched(lambda: paths.owner.unlink(missing_ok=True))
    with hold_lock(paths, watched.warnings.append, watched.clock):
        assert watched.now_m < 1


def test_a_beat_is_raised_and_never_over_anothers_name(paths: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    with hold_lock(paths) as owner:
        beat = OwnerHeartbeat(paths, owner)
        beat.raise_once()
        beat.raise_once()
        assert files.read_json(paths.owner)["beat"] == 2 and read_owner(paths) == owner

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(files, "write_json", fail)
        os.utime(paths.owner, (0, 0))
        beat.raise_once()
        assert paths.owner.stat().st_mtime > 0, "a full disk still takes a new time"
        monkeypatch.undo()
        files.write_json(paths.owner, to_json(ELSEWHERE))
        beat.raise_once()
        assert files.read_json(paths.owner)["token"] == "theirs"
        assert is_stop_requested(paths, owner), "its place was taken"
    assert paths.owner.exists(), "another's name is left alone"


def test_the_beat_goes_on_by_itself(paths: CampaignPaths) -> None:
    owner = new_owner()
    files.write_json(paths.owner, to_json(owner))
    before = set(threading.enumerate())
    beat = OwnerHeartbeat(paths, owner, every_s=0.01)
    beat.start()
    wait_until(lambda: files.read_json(paths.owner)["beat"] >= 2, "the heartbeat is raised twice")
    beat.stop()
    assert set(threading.enumerate()) <= before, "its thread has ended"


@pytest.mark.usefixtures("no_locks")
class TestWithoutLocks:
    def test_a_living_process_of_this_host_is_respected(self, paths: CampaignPaths) -> None:
        watched = Watched()
        with hold_lock(paths, watched.warnings.append, watched.clock) as owner:
            assert read_owner(paths) == owner
            with pytest.raises(CampaignError, match=f"process {os.getpid()}"), hold_lock(paths, watched.warnings.append, watched.clock):
                raise AssertionError("two owners")
        assert read_owner(paths) is None and not paths.owner.exists()

    def test_a_process_number_that_is_used_again_is_no_owner(self, paths: CampaignPaths) -> None:
        other = replace(new_owner(), start_ticks=1)
        files.write_json(paths.owner, to_json(other))
        assert read_owner(paths) is None
        watched = Watched()
        with hold_lock(paths, watched.warnings.append, watched.clock) as owner:
            assert read_owner(paths) == owner

    def test_of_two_that_come_at_once_one_stays(self, paths: CampaignPaths) -> None:
        watched = Watched(lambda: files.write_json(paths.owner, to_json(ELSEWHERE)))
        with pytest.raises(CampaignError, match="node7"), hold_lock(paths, watched.warnings.append, watched.clock):
            raise AssertionError("two owners")
