"""How a process stands to its parents and children, asked of the kernel itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial import kinship

LIVES = [sys.executable, "-c", "input()"]


def _in_a_child(act: Callable[[], bool]) -> bool:
    """What `act` says in a process of its own, so that nothing of it stays here."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if act() else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_children_are_listed_until_they_are_collected() -> None:
    with subprocess.Popen(LIVES, stdin=subprocess.PIPE) as child:
        assert child.pid in kinship.children()
    assert child.pid not in kinship.children()


def test_children_of_all_threads_count_and_a_thread_that_ended_meanwhile_does_not(tmp_path: Path) -> None:
    for task, listed in (("10", "101 102 "), ("11", ""), ("12", "103 ")):
        (tmp_path / task).mkdir()
        (tmp_path / task / "children").write_text(listed)
    (tmp_path / "13").mkdir()
    assert kinship.children(tmp_path) == {101, 102, 103}
    assert kinship.children(tmp_path / "none") == set()


def test_orphans_come_to_who_adopts_them() -> None:
    def adopts() -> bool:
        if not kinship.adopt_orphans():
            return False
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            # A child that starts one of its own, tells its pid, and leaves it behind.
            orphan = os.fork()
            if orphan == 0:
                signal.pause()
            os.write(write_end, str(orphan).encode())
            os._exit(0)
        orphan = int(os.read(read_end, 20))
        os.wait()
        os.kill(orphan, signal.SIGKILL)
        return os.wait()[0] == orphan

    assert _in_a_child(adopts)


def test_who_ceases_to_adopt_gets_no_more() -> None:
    assert _in_a_child(lambda: kinship.adopt_orphans() and kinship.adopt_orphans(False))


def test_a_child_ends_with_its_parent() -> None:
    def outlived() -> bool:
        kinship.adopt_orphans()
        read_end, write_end = os.pipe()
        parent = os.fork()
        if parent == 0:
            if os.fork() == 0:
                kinship.end_with_parent(signal.SIGTERM)
                os.write(write_end, str(os.getpid()).encode())
                signal.pause()
            signal.pause()
        child = int(os.read(read_end, 20))
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        return os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM

    assert _in_a_child(outlived)


def test_a_kernel_that_knows_no_such_thing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(*arguments: object, **more: object) -> None:
        raise OSError("no libc here")

    monkeypatch.setattr(kinship.ctypes, "CDLL", no_library)
    assert not kinship.adopt_orphans() and not kinship.end_with_parent(signal.SIGTERM) and not kinship.let_look(os.getpid())
