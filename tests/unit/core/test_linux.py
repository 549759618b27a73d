"""Parent-death signal, subreaper, children, file descriptor limit, inotify, garbage collector."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.core import linux
from seatrial.core.linux import IN_CREATE, IN_MODIFY, Inotify, garbage_collector_off, raise_fd_limit

LIVES = [sys.executable, "-c", "input()"]


def _in_a_child(act: Callable[[], bool]) -> bool:
    """What `act` returns in a process of its own, so that nothing of it stays here."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if act() else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_children_are_listed_until_they_are_waited_for() -> None:
    with subprocess.Popen(LIVES, stdin=subprocess.PIPE) as child:
        assert child.pid in linux.child_pids()
    assert child.pid not in linux.child_pids()


def test_children_of_all_threads_count_and_a_thread_that_ended_meanwhile_does_not(tmp_path: Path) -> None:
    for task, listed in (("10", "101 102 "), ("11", ""), ("12", "103 ")):
        (tmp_path / task).mkdir()
        (tmp_path / task / "children").write_text(listed)
    (tmp_path / "13").mkdir()
    assert linux.child_pids(tmp_path) == {101, 102, 103}
    assert linux.child_pids(tmp_path / "none") == set()


def test_orphans_go_to_the_subreaper() -> None:
    def adopts() -> bool:
        if not linux.set_subreaper():
            return False
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            # A child that starts one of its own, writes its pid, and ends.
            orphan = os.fork()
            if orphan == 0:
                signal.pause()
            os.write(write_end, str(orphan).encode())
            os._exit(0)
        orphan = int(os.read(read_end, 20))
        os.wait()
        os.kill(orphan, signal.SIGKILL)
        return os.wait()[0] == orphan and linux.set_subreaper(False)

    assert _in_a_child(adopts)


def test_a_child_ends_with_its_parent() -> None:
    def outlived() -> bool:
        linux.set_subreaper()
        read_end, write_end = os.pipe()
        parent = os.fork()
        if parent == 0:
            if os.fork() == 0:
                linux.set_parent_death_signal(signal.SIGTERM)
                os.write(write_end, str(os.getpid()).encode())
                signal.pause()
            signal.pause()
        child = int(os.read(read_end, 20))
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        return os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM

    assert _in_a_child(outlived)


def test_without_prctl_the_functions_return_false(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(*arguments: object, **more: object) -> None:
        raise OSError("no libc here")

    monkeypatch.setattr(linux.ctypes, "CDLL", no_library)
    assert not linux.set_subreaper() and not linux.set_parent_death_signal(signal.SIGTERM) and not linux.allow_ptrace(os.getpid())


@pytest.mark.parametrize(
    ("limits", "wanted", "allowed"),
    [
        ((1024, 4096), 3000, 3000),
        ((1024, 4096), 9000, 4096),
        ((1024, resource.RLIM_INFINITY), 9000, 9000),
        ((1024, 4096), 100, 1024),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 9000, sys.maxsize),
    ],
)
def test_the_limit_is_raised(limits: tuple[int, int], wanted: int, allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda what: held[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda what, both: held.append(both))
    assert raise_fd_limit(wanted) == allowed
    assert held[-1][1] == limits[1] and (held[-1][0] == allowed or allowed == sys.maxsize)


@pytest.mark.parametrize("was_on", [True, False])
def test_the_garbage_collector_is_as_before_after_an_error_too(was_on: bool) -> None:
    gc.enable() if was_on else gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), garbage_collector_off():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() is was_on
    finally:
        gc.enable()


def test_inotify_names_the_path_that_changed(tmp_path: Path) -> None:
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
