from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from seatrial.machine.git import GitState, git_state, parse_status


def _git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "-b", "trunk")
    (tmp_path / "train.py").write_text("print(1)\n")
    _git(tmp_path, "add", "train.py")
    _git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_clean_commit_on_a_branch(repository: Path) -> None:
    state = git_state(repository)
    assert len(state.commit) == 40
    assert (state.branch, state.dirty) == ("trunk", "false")


def test_only_tracked_files_make_it_dirty(repository: Path) -> None:
    (repository / "outputs.txt").write_text("result\n")
    assert git_state(repository).dirty == "false"
    (repository / "train.py").write_text("print(2)\n")
    assert git_state(repository).dirty == "true"


def test_detached_head_is_called_head(repository: Path) -> None:
    _git(repository, "checkout", "--detach")
    assert git_state(repository).branch == "HEAD"


def test_repository_without_a_commit() -> None:
    assert parse_status("# branch.oid (initial)\n# branch.head main\n") == GitState(commit="", branch="main", dirty="false")


@pytest.mark.parametrize("name", ["", "no/such/folder"])
def test_no_repository_gives_empty_strings(tmp_path: Path, name: str) -> None:
    assert git_state(tmp_path / name) == GitState()
