"""The cheap walk over /proc, with real processes where they can be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from seatrial.machine.proc_files import read_line
from seatrial.machine.process_tree import LOOKS_BETWEEN_JUDGEMENTS, ProcessTree, is_below
from tests.waiting import wait_until

# A parent with two children, one of which has a name that could be taken for the end of its own field.
FAMILY = """
import subprocess, sys
odd = "open('/proc/self/comm', 'w').write('a) R 1 (b'); print(flush=True); input()"
children = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for code in (odd, "input()")]
children[0].stdout.readline()
print(*(child.pid for child in children), flush=True)
input()
"""


def test_every_descendant_and_nobody_else() -> None:
    tree = ProcessTree(os.getpid())
    before = set(tree.look() or {})
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdin is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        found = tree.look() or {}
        assert set(found) - before == {parent.pid, *children}
        assert all(is_below(pid, os.getpid()) for pid in children)
        for pid in children:
            memory = psutil.Process(pid).memory_info()
            assert abs(found[pid].rss_kib - memory.rss // 1024) < 4096
            assert found[pid].vsz_kib == memory.vms // 1024
            assert found[pid].threads == 1 and found[pid].parent == parent.pid
        parent.kill()
    wait_until(lambda: not set(tree.look() or {}) - before - set(children))
    assert os.getpid() not in (tree.look() or {}) and os.getppid() not in (tree.look() or {})


def test_another_s_process_is_not_below() -> None:
    assert is_below(os.getppid(), os.getpid()) is False
    assert is_below(os.getpid(), os.getpid()) is True
    assert is_below(2**22 + 1, os.getpid()) is None


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        wait_until(lambda: (line := read_line("/proc", child.pid)) is not None and line.state == "Z")
        assert child.pid not in (ProcessTree(os.getpid()).look() or {})


def _write(proc: Path, pid: int, parent: int, *, started: int = 5, name: str = "python") -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    rest = ["S", parent, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 100, 0, 0, 20, 0, 7, 0, started, 1024 * 1024, 10]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) " + " ".join(map(str, rest)) + " 0 0\n")


def test_foreign_processes_are_read_once_and_again_after_a_while(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (11, 10), (90, 1)):
        _write(tmp_path, pid, parent)
    tree = ProcessTree(10, tmp_path)
    assert set(tree.look() or {}) == {11}
    # The number 90 now belongs to a process of the run.
    _write(tmp_path, 90, 11, started=6)
    assert set(tree.look() or {}) == {11}
    for _ in range(LOOKS_BETWEEN_JUDGEMENTS):
        last = tree.look()
    assert set(last or {}) == {11, 90}


def test_a_number_of_ours_that_went_to_another_is_let_go(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (11, 10)):
        _write(tmp_path, pid, parent)
    tree = ProcessTree(10, tmp_path)
    assert set(tree.look() or {}) == {11}
    _write(tmp_path, 11, 1, started=99)
    assert tree.look() == {}


def test_a_parent_that_ends_while_we_look_costs_one_look(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (12, 11)):
        _write(tmp_path, pid, parent)
    tree = ProcessTree(10, tmp_path)
    assert tree.look() == {}
    # Adopted, as the kernel does it when the parent is gone.
    _write(tmp_path, 12, 10)
    assert set(tree.look() or {}) == {12}


def test_torn_lines_and_no_proc_at_all(tmp_path: Path) -> None:
    _write(tmp_path, 10, 1)
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "stat").write_text("11 (py")
    assert ProcessTree(10, tmp_path).look() == {}
    assert ProcessTree(10, tmp_path / "none").look() is None
