"""One owner at a time, on whatever host."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial import files
from seatrial.campaign.owner import Owner, ask_to_stop, asked_to_stop, read_owner, this_process
from seatrial.campaign.owning import WATCH_S, WatchClock, _Beat, owned
from seatrial.errors import CampaignError, RefusedError
from seatrial.paths import CampaignPaths
from seatrial.records.codec import to_json

ELSEWHERE = Owner(pid=41, host="node7", token="theirs", since_t=0.0, boot_id="of node7", start_ticks=9)
HOLDER = """
import sys, time
from pathlib import Path
from seatrial.campaign.owning import owned
from seatrial.paths import CampaignPaths
with owned(CampaignPaths(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


class Watched:
    """A clock that goes on only when somebody waits, and does `each_s` of waiting whatever the test says."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.now_m, self.act, self.said = 0.0, act, list[str]()

    @property
    def clock(self) -> WatchClock:
        return WatchClock(monotonic=lambda: self.now_m, sleep=self.sleep)

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
def paths(tmp_path: Path) -> CampaignPaths:
    return CampaignPaths(tmp_path / "out")


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: object, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_second_owner_is_told_who_holds_it(paths: CampaignPaths) -> None:
    with owned(paths) as owner, pytest.raises(CampaignError, match=f"process {owner.pid}"), owned(paths):
        raise AssertionError("two owners")
    with owned(paths):
        assert read_owner(paths) is not None
    assert read_owner(paths) is None


def test_the_message_says_who_where_and_what_to_do(paths: CampaignPaths) -> None:
    with holder(paths.folder) as process, pytest.raises(CampaignError) as caught, owned(paths):
        raise AssertionError("two owners")
    assert str(caught.value) == (
        f"{paths.folder} is in use by process {process.pid} on {os.uname().nodename}: wait for it, stop it with "
        f"`seatrial stop {paths.folder}`, or choose another folder"
    )


def test_a_file_in_place_of_the_folder_is_named(paths: CampaignPaths) -> None:
    paths.folder.write_text("")
    with pytest.raises(RefusedError, match="cannot be made"), owned(paths):
        raise AssertionError("owned a file")


def test_a_full_disk_refuses_before_anything_starts(paths: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_json", full)
    with pytest.raises(RefusedError, match="No space left on device; mend that"), owned(paths):
        raise AssertionError("owned a full disk")
    monkeypatch.undo()
    with owned(paths):
        pass


def test_a_killed_holder_is_followed_at_once(paths: CampaignPaths) -> None:
    with holder(paths.folder) as process:
        process.kill()
        process.wait()
        assert paths.owner.exists() and read_owner(paths) is None
        watched = Watched()
        with owned(paths, watched.said.append, watched.clock) as owner:
            assert read_owner(paths) == owner
    assert watched.said == [] and watched.now_m == 0


def test_a_suspended_holder_is_respected(paths: CampaignPaths) -> None:
    with holder(paths.folder) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(CampaignError, match=f"process {process.pid}"), owned(paths):
            raise AssertionError("two owners")
        process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff"])
def test_rubbish_in_the_owners_file_names_nobody(paths: CampaignPaths, content: bytes) -> None:
    paths.folder.mkdir()
    paths.owner.write_bytes(content)
    assert read_owner(paths) is None and ask_to_stop(paths) is None
    with owned(paths) as owner:
        assert read_owner(paths) == owner and not asked_to_stop(paths, owner)


@pytest.mark.parametrize("full", [False, True])
def test_an_owner_on_another_host_that_beats_is_respected(paths: CampaignPaths, full: bool) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    beat = _Beat(paths, ELSEWHERE)
    if full:
        beat.raise_once = lambda: os.utime(paths.owner)  # type: ignore[method-assign]
    watched = Watched(lambda: beat.raise_once() if watched.now_m >= 5 else None)
    with pytest.raises(CampaignError, match="in use by process 41 on node7: "), owned(paths, watched.said.append, watched.clock):
        raise AssertionError("two owners")
    assert 5 <= watched.now_m < WATCH_S
    assert watched.said == [f"{paths.owner} names process 41 on node7: watching for 15 s whether it lives"]
    with pytest.raises(CampaignError, match="node7"), owned(paths, watched.said.append, watched.clock):
        raise AssertionError("the lock was not given back")


def test_an_owner_on_another_host_that_gives_no_sign_is_followed(paths: CampaignPaths) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    watched = Watched()
    with owned(paths, watched.said.append, watched.clock) as owner:
        assert read_owner(paths) == owner
    assert watched.now_m == pytest.approx(WATCH_S, abs=1)
    assert watched.said[1] == "process 41 on node7 gives no sign of life: its place is taken"
    assert not paths.owner.exists()


def test_an_owner_on_another_host_that_leaves_is_followed_without_delay(paths: CampaignPaths) -> None:
    files.write_json(paths.owner, to_json(ELSEWHERE))
    watched = Watched(lambda: paths.owner.unlink(missing_ok=True))
    with owned(paths, watched.said.append, watched.clock):
        assert watched.now_m < 1


def test_a_beat_is_raised_and_never_over_anothers_name(paths: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    with owned(paths) as owner:
        beat = _Beat(paths, owner)
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
        assert asked_to_stop(paths, owner), "its place was taken"
    assert paths.owner.exists(), "another's name is left alone"


def test_the_beat_goes_on_by_itself(paths: CampaignPaths) -> None:
    owner = this_process()
    files.write_json(paths.owner, to_json(owner))
    beat = _Beat(paths, owner, every_s=0.01)
    beat.start()
    for _ in range(1000):
        if files.read_json(paths.owner)["beat"] >= 2:
            break
        beat._stopping.wait(0.01)
    beat.stop()
    assert files.read_json(paths.owner)["beat"] >= 2 and not beat._thread.is_alive()


@pytest.mark.usefixtures("no_locks")
class TestWithoutLocks:
    def test_a_living_process_of_this_host_is_respected(self, paths: CampaignPaths) -> None:
        watched = Watched()
        with owned(paths, watched.said.append, watched.clock) as owner:
            assert read_owner(paths) == owner
            with pytest.raises(CampaignError, match=f"process {os.getpid()}"), owned(paths, watched.said.append, watched.clock):
                raise AssertionError("two owners")
        assert read_owner(paths) is None and not paths.owner.exists()

    def test_a_process_number_that_is_used_again_is_no_owner(self, paths: CampaignPaths) -> None:
        other = replace(this_process(), start_ticks=1)
        files.write_json(paths.owner, to_json(other))
        assert read_owner(paths) is None
        watched = Watched()
        with owned(paths, watched.said.append, watched.clock) as owner:
            assert read_owner(paths) == owner

    def test_of_two_that_come_at_once_one_stays(self, paths: CampaignPaths) -> None:
        watched = Watched(lambda: files.write_json(paths.owner, to_json(ELSEWHERE)))
        with pytest.raises(CampaignError, match="node7"), owned(paths, watched.said.append, watched.clock):
            raise AssertionError("two owners")
