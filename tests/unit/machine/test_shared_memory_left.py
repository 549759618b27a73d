"""Shared memory that a run leaves: what is found, and what is let alone."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.machine import shared_memory
from seatrial.machine.shared_memory import left_behind, present


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests run beside: no other campaign, but where a test makes one."""
    if "another_campaign" not in request.node.name:
        monkeypatch.setattr(shared_memory, "_another_agent_runs", lambda proc: False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


def _made(root: Path, *names: str) -> list[Path]:
    for name in names:
        (root / name).write_bytes(b"x" * 4096)
    return [root / name for name in names]


def test_only_new_files_of_known_kinds_are_left_behind(root: Path) -> None:
    _made(root, "psm_old", "nccl-old")
    before = present(root)
    _made(root, "my-own-database", "PSM_other")
    new = _made(root, "nccl-aBcDeF", "psm_12ab", "sem.mp-xyz", "torch_999999999_1_0")
    (root / "torch_folder").mkdir()
    (root / "mp-link").symlink_to(root / "my-own-database")
    assert before == ("nccl-old", "psm_old")
    assert left_behind(before, root=root) == new


def test_what_is_open_or_mapped_is_in_use(root: Path) -> None:
    opened, mapped, _ = _made(root, "psm_open", "psm_mapped", "psm_left")
    with open(opened, "rb"), open(mapped, "r+b") as source:
        memory = mmap.mmap(source.fileno(), 4096)
        source.close()
        assert [path.name for path in left_behind((), root=root)] == ["psm_left"]
        memory.close()
    assert len(left_behind((), root=root)) == 3


def test_memory_in_use_by_another_process_is_let_alone(root: Path) -> None:
    _made(root, "psm_theirs")
    text = "import sys, time; held = open(sys.argv[1]); print('up', flush=True); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", text, str(root / "psm_theirs")], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline()
        assert left_behind((), root=root) == []
    finally:
        other.kill()
        other.communicate()


def test_memory_whose_maker_lives_is_let_alone(root: Path) -> None:
    _made(root, f"torch_{os.getpid()}_77_0")
    assert left_behind((), root=root) == []


def test_memory_younger_than_the_run_is_not_its_own(root: Path) -> None:
    (path,) = _made(root, "psm_new")
    made_t = path.stat().st_ctime
    assert left_behind((), newest_t=made_t - 1.0, root=root) == []
    assert left_behind((), newest_t=made_t + 1.0, root=root) == [path]


def test_no_such_folder_holds_nothing(tmp_path: Path) -> None:
    assert present(tmp_path / "none") == () and left_behind((), root=tmp_path / "none") == []


def test_while_another_campaign_runs_only_segments_whose_maker_is_known_and_gone_are_left_behind(root: Path, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "77").mkdir(parents=True)
    for name in ("psm_ab12cd", "torch_4000000_9_0"):
        (root / name).write_bytes(b"x")
    assert {path.name for path in left_behind((), root=root, proc=proc)} == {"psm_ab12cd", "torch_4000000_9_0"}
    (proc / "77" / "cmdline").write_bytes(b"python\0-m\0seatrial.agent\0/out/agent.json\0")
    assert [path.name for path in left_behind((), root=root, proc=proc)] == ["torch_4000000_9_0"]
