"""Rank files as torchrun and deepspeed make them, followed with the real inotify and without."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seatrial.agent import rank_files
from seatrial.agent.inotify import IN_CREATE, IN_MODIFY, Inotify
from seatrial.agent.rank_files import RankFiles


class Follower:
    """RankFiles with what it gave."""

    def __init__(self, folder: Path) -> None:
        self.text = b""
        self.files = RankFiles(folder, self._take)

    def _take(self, data: bytes) -> None:
        self.text += data

    def told(self) -> None:
        """Act on pending inotify events, as the agent's loop does."""
        assert self.files.inotify is not None
        while select.select([self.files.inotify.fileno()], [], [], 0)[0]:
            self.files.on_change()


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[[], Follower]]:
    followers: list[Follower] = []

    def make() -> Follower:
        followers.append(Follower(tmp_path))
        return followers[-1]

    yield make
    for follower in followers:
        follower.files.finish()


def _stream(folder: Path, rank: int, name: str = "stdout.log", job: str = "none_abc", attempt: int = 0) -> Path:
    path = folder / job / f"attempt_{attempt}" / str(rank) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def _print(path: Path, text: str) -> None:
    with open(path, "a") as stream:
        stream.write(text)


def test_new_files_and_growth_are_told(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    follower = follow()
    first, second = _stream(tmp_path, 0), _stream(tmp_path, 11, "stderr.log")
    follower.told()
    _print(first, "one\ntw")
    follower.told()
    _print(second, "warned\n")
    follower.told()
    _print(first, "o\n")
    follower.told()
    assert follower.text == b"[rank0]: one\n[rank11]: warned\n[rank0]: two\n"


def test_files_of_deepspeed_are_followed(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    _print(tmp_path / "20261114090000_rank0.log", "yesterday\n")
    follower = follow()
    first, second = tmp_path / "20261115124634_rank0.log", tmp_path / "20261115124634_rank11.log"
    first.touch()
    second.touch()
    follower.told()
    _print(second, "warned\n")
    _print(first, "one\ntw")
    follower.told()
    _print(first, "o\n")
    follower.told()
    assert sorted(follower.text.splitlines()) == [b"[rank0]: one", b"[rank0]: two", b"[rank11]: warned"]


def test_restarted_ranks_are_followed_too(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    follower = follow()
    _print(_stream(tmp_path, 0), "first try\n")
    follower.told()
    _print(_stream(tmp_path, 0, attempt=1), "second try\n")
    follower.told()
    assert follower.text == b"[rank0]: first try\n[rank0]: second try\n"


def test_without_inotify_looking_is_enough(tmp_path: Path, follow: Callable[[], Follower], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_files, "inotify_or_none", lambda: None)
    follower = follow()
    assert follower.files.by_clock
    _print(_stream(tmp_path, 1), "seen\n")
    follower.files.look()
    assert follower.text == b"[rank1]: seen\n"


def test_too_few_watches_falls_back_to_the_clock(tmp_path: Path, follow: Callable[[], Follower], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Inotify, path: Path, mask: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Inotify, "watch", refuse)
    assert follow().files.by_clock


def test_older_jobs_in_the_same_folder_are_left_alone(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    _print(_stream(tmp_path, 0, job="old"), "yesterday\n")
    follower = follow()
    _print(_stream(tmp_path, 0, job="new"), "today\n")
    follower.files.look()
    assert follower.text == b"[rank0]: today\n"


def test_foreign_files_are_not_taken_for_ranks(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    follower = follow()
    (tmp_path / "20261115124634_rank1.log").mkdir()
    for path in (
        tmp_path / "rank0.log",
        tmp_path / "2026_rank0.log",
        tmp_path / "a" / "b" / "0" / "stdout.log",
        tmp_path / "a" / "attempt_0" / "x" / "stdout.log",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not a rank\n")
    follower.files.look()
    assert follower.text == b""


def test_flood_of_one_rank_is_taken_in_portions(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    follower = follow()
    _print(_stream(tmp_path, 0), "y\n" * rank_files.MOST_AT_ONCE_BYTES)
    follower.files.look()
    assert follower.text.count(b"y") == rank_files.MOST_AT_ONCE_BYTES // 2
    follower.files.look(most_bytes=2**62)
    assert follower.text.count(b"y") == rank_files.MOST_AT_ONCE_BYTES


def test_unfinished_line_comes_at_the_end(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    _print(_stream(tmp_path, 2), "last words")
    follower.files.look()
    assert follower.text == b""
    follower.files.finish()
    assert follower.text == b"[rank2]: last words\n"


def test_inotify_tells_which_path_changed(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch()
    inotify = Inotify()
    inotify.watch(tmp_path, IN_CREATE)
    inotify.watch(file, IN_MODIFY)
    assert inotify.read() == []
    file.write_text("x")
    (tmp_path / "g").touch()
    changes = inotify.read()
    assert [(change.path, change.mask & (IN_CREATE | IN_MODIFY)) for change in changes] == [(file, IN_MODIFY), (tmp_path, IN_CREATE)]
    with pytest.raises(FileNotFoundError):
        inotify.watch(tmp_path / "none", IN_MODIFY)
    inotify.close()
    with pytest.raises(OSError):
        os.fstat(inotify.fileno())


def test_a_file_that_grows_as_fast_as_it_is_read_is_left_in_time_and_what_is_missing_is_told(tmp_path: Path) -> None:
    stream, now_s = _stream(tmp_path / "logs", 0), [0.0]

    def clock() -> float:
        now_s[0] += 0.1
        return now_s[0]

    _print(stream, "y\n" * 1000)
    (tmp_path / "logs" / "none_abc").rename(tmp_path / "later")
    files = RankFiles(tmp_path / "logs", lambda _: _print(stream, "y" * 65535 + "\n"))
    (tmp_path / "later").rename(tmp_path / "logs" / "none_abc")
    files.drain(2.0, clock)
    assert now_s[0] < 3.0
    assert files.finish() >= 2000


def test_torchrun_names_local_ranks_and_deepspeed_those_of_the_job(tmp_path: Path) -> None:
    told: list[bytes] = []
    files = RankFiles(tmp_path, told.append, first_rank=4)
    _print(_stream(tmp_path, 1), "of torchrun\n")
    _print(tmp_path / "20261116023000_rank6.log", "of deepspeed\n")
    files.look()
    files.finish()
    assert sorted(filter(None, told)) == [b"[rank5]: of torchrun\n", b"[rank6]: of deepspeed\n"]
