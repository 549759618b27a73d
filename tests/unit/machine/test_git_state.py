from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from seatrial.machine import git
from seatrial.machine.fingerprint import fingerprint
from seatrial.machine.git import UNKNOWN, GitState, git_state, parse_status
from seatrial.records.command import Provenance


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


def test_clean_tree_has_no_hash_and_each_change_has_its_own(repository: Path) -> None:
    script = repository / "train.py"
    hashes = [git_state(repository).diff_sha256]
    for text in ("print(2)\n", "print(3)\n", "print(1)\r\n", "print('\xe9')\n", "print('\xe8')\n"):
        script.write_bytes(text.encode("latin-1"))
        hashes.append(git_state(repository).diff_sha256)
    assert hashes[0] == "" and len(hashes[1]) == 64
    assert len(set(hashes)) == len(hashes), "bytes count: ends of lines, and text that is not UTF-8"
    script.write_text("print(1)\n")
    assert git_state(repository).diff_sha256 == ""


def test_staged_changes_and_those_of_other_folders_count(repository: Path) -> None:
    below = repository / "below"
    below.mkdir()
    (repository / "train.py").write_text("print(2)\n")
    unstaged = git_state(below).diff_sha256
    _git(repository, "add", "train.py")
    assert git_state(below).diff_sha256 == git_state(repository).diff_sha256 == unstaged != ""


def test_untracked_results_do_not_change_the_hash(repository: Path) -> None:
    (repository / "train.py").write_text("print(2)\n")
    before = git_state(repository)
    (repository / "outputs").mkdir()
    (repository / "outputs" / "run_manifest.tsv").write_text("a\n")
    assert git_state(repository) == before


def test_committed_results_do_not_change_the_hash_either(repository: Path) -> None:
    out = repository / "out [1]"
    out.mkdir()
    table = out / "table.csv"
    table.write_text("a\n")
    _git(repository, "add", "-f", str(table))
    _git(repository, "commit", "-m", "results")
    table.write_text("b\n")
    assert git_state(repository).diff_sha256 != ""
    for output in (out, Path("out [1]")):
        assert git_state(repository, output).diff_sha256 == ""
    (repository / "train.py").write_text("print(2)\n")
    code = git_state(repository, out).diff_sha256
    assert code != "" and code != git_state(repository, repository.parent / "elsewhere").diff_sha256


USERS_SETTINGS = (
    ("color.ui", "always"),
    ("diff.noprefix", "true"),
    ("diff.external", "false"),
    ("diff.context", "9"),
    ("diff.algorithm", "patience"),
    ("diff.relative", "true"),
    ("core.abbrev", "6"),
)


def test_users_own_git_settings_do_not_change_the_hash(repository: Path) -> None:
    (repository / "train.py").write_text("print(2)\n")
    before = git_state(repository).diff_sha256
    for name, value in USERS_SETTINGS:
        _git(repository, "config", name, value)
        assert git_state(repository).diff_sha256 == before, name


def test_git_that_takes_too_long_is_unknown_and_not_clean(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "train.py").write_text("print(2)\n")
    slow = repository / "slow" / "git"
    slow.parent.mkdir()
    slow.write_text('#!/bin/sh\ncase "$*" in *"$SLOW"*) exec sleep 60;; esac\nPATH="${PATH#*:}" exec git "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(git, "GIT_TIMEOUT_S", 1.0)
    monkeypatch.setenv("SLOW", " diff ")
    without_diff = [git_state(repository) for _ in range(2)]
    monkeypatch.setenv("SLOW", " status ")
    without_status = git_state(repository)
    assert [state.dirty for state in without_diff] == ["true", "true"] and without_status.commit == ""
    hashes = [state.diff_sha256 for state in (*without_diff, without_status)]
    assert all(value.startswith(f"{UNKNOWN} ") for value in hashes)
    assert len(set(hashes)) == 3, "what is not known is like nothing else, not even like another unknown"
    assert len({fingerprint(Provenance(git_diff_sha256=value)) for value in hashes}) == 3


@pytest.mark.parametrize("script", ["head -c 100000 /dev/urandom", "printf '# branch.oid rubbish\\n'", "exit 128", "echo not git"])
def test_a_git_that_is_none_tells_nothing(script: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other" / "git"
    other.parent.mkdir()
    other.write_text(f"#!/bin/sh\n{script}\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    assert git_state(repository, output=repository / "out") == GitState()


def test_a_git_that_writes_without_end_is_unknown(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other" / "git"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nyes\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(git, "MOST_BYTES", 1 << 20)
    assert git_state(repository).diff_sha256.startswith(f"{UNKNOWN} ")
