"""Reading /proc: processes, trees, running agents, OOM kills."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from seatrial.machine.processes import (
    READS_BETWEEN_RECHECKS,
    OomKillCounter,
    ProcessTree,
    is_descendant,
    list_own_pids,
    list_pids,
    list_running_campaigns,
    read_cmdline,
    read_environ,
    read_oom_kills,
    read_process,
    read_start_ticks,
)
from tests.waiting import wait_until

STAT = "7 ({name}) {state} 3 7 7 0 -1 0 0 0 0 0 100 50 20 10 20 0 4 0 9876 8192 25 0"


def _process(proc: Path, pid: int, stat: str = STAT.format(name="python", state="S")) -> Path:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(stat)
    return folder


def test_pids_are_listed_and_a_zombie_has_no_start(tmp_path: Path) -> None:
    _process(tmp_path, 7)
    _process(tmp_path, 8, STAT.format(name="python", state="Z"))
    (tmp_path / "self").mkdir()
    (tmp_path / "cpuinfo").touch()
    assert list_pids(tmp_path) == list_own_pids(tmp_path) == {7, 8}
    assert (read_start_ticks(7, tmp_path), read_start_ticks(8, tmp_path), read_start_ticks(9, tmp_path)) == (9876, None, None)
    assert os.getpid() in list_own_pids() <= list_pids()
    assert list_pids(tmp_path / "none") == list_own_pids(tmp_path / "none") == set()


@pytest.mark.parametrize("name", ["python", "a) R 1 (b", ""])
def test_one_process_whatever_its_name(tmp_path: Path, name: str) -> None:
    _process(tmp_path, 7, STAT.format(name=name, state="S"))
    line = read_process(str(tmp_path), 7)
    assert line is not None and (line.name, line.parent, line.state, line.threads, line.started_ticks) == (name, 3, "S", 4, 9876)
    assert line.cpu_s == 150 / os.sysconf("SC_CLK_TCK") and line.reaped_s == 30 / os.sysconf("SC_CLK_TCK") and line.vsz_kib == 8


def test_a_process_that_is_gone_or_half_read_is_none(tmp_path: Path) -> None:
    _process(tmp_path, 7, "7 (python) S 3")
    assert read_process(str(tmp_path), 7) is None and read_process(str(tmp_path), 8) is None


def test_argv_and_environment_are_bytes_and_may_be_empty(tmp_path: Path) -> None:
    folder = _process(tmp_path, 7)
    (folder / "cmdline").write_bytes(b"python\0\0-c\0\xff\0")
    (folder / "environ").write_bytes(b"A=1\0B=\0")
    assert read_cmdline(7, tmp_path) == (b"python", b"", b"-c", b"\xff")
    assert read_environ(7, tmp_path) == (b"A=1", b"B=")
    assert read_cmdline(8, tmp_path) == read_environ(8, tmp_path) == ()
    # A thread of the kernel, and a process that was started with one empty argument.
    (folder / "cmdline").write_bytes(b"")
    (folder / "environ").write_bytes(b"\0")
    assert read_cmdline(7, tmp_path) == () and read_environ(7, tmp_path) == (b"",)
    # As setproctitle leaves it.
    (folder / "cmdline").write_bytes(b"a title without an end")
    assert read_cmdline(7, tmp_path) == (b"a title without an end",)


# A parent with two children, one of which has a name that could be taken for the end of its own field. All have started up when it prints.
FAMILY = """
import subprocess, sys
odd = "open('/proc/self/comm', 'w').write('a) R 1 (b'); print(flush=True); input()"
plain = "print(flush=True); input()"
children = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for code in (odd, plain)]
for child in children:
    child.stdout.readline()
print(*(child.pid for child in children), flush=True)
input()
"""


def _is_asleep(pid: int) -> bool:
    line = read_process("/proc", pid)
    return line is not None and line.state == "S"


def test_every_descendant_and_nobody_else() -> None:
    tree = ProcessTree(os.getpid())
    before = set(tree.read() or {})
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdin is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        # Between its line and input() a child still allocates: two readings of its memory agree once it waits.
        wait_until(lambda: all(map(_is_asleep, children)))
        found = tree.read() or {}
        assert set(found) - before == {parent.pid, *children}
        assert all(is_descendant(pid, os.getpid()) for pid in children)
        for pid in children:
            memory = psutil.Process(pid).memory_info()
            assert abs(found[pid].rss_kib - memory.rss // 1024) < 4096
            assert found[pid].vsz_kib == memory.vms // 1024
            assert found[pid].threads == 1 and found[pid].parent == parent.pid
        parent.kill()
    wait_until(lambda: not set(tree.read() or {}) - before - set(children))
    assert os.getpid() not in (tree.read() or {}) and os.getppid() not in (tree.read() or {})


def test_a_foreign_process_is_no_descendant() -> None:
    assert is_descendant(os.getppid(), os.getpid()) is False
    assert is_descendant(os.getpid(), os.getpid()) is True
    assert is_descendant(2**22 + 1, os.getpid()) is None


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        wait_until(lambda: (line := read_process("/proc", child.pid)) is not None and line.state == "Z")
        assert child.pid not in (ProcessTree(os.getpid()).read() or {})


def _write(proc: Path, pid: int, parent: int, *, started: int = 5, name: str = "python") -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    rest = ["S", parent, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 100, 0, 0, 20, 0, 7, 0, started, 1024 * 1024, 10]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) " + " ".join(map(str, rest)) + " 0 0\n")


def test_foreign_processes_are_read_once_and_again_after_a_while(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (11, 10), (90, 1)):
        _write(tmp_path, pid, parent)
    tree = ProcessTree(10, tmp_path)
    assert set(tree.read() or {}) == {11}
    # The number 90 now belongs to a process of the run.
    _write(tmp_path, 90, 11, started=6)
    assert set(tree.read() or {}) == {11}
    for _ in range(READS_BETWEEN_RECHECKS):
        last = tree.read()
    assert set(last or {}) == {11, 90}


def test_a_reused_pid_is_dropped(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (11, 10)):
        _write(tmp_path, pid, parent)
    tree = ProcessTree(10, tmp_path)
    assert set(tree.read() or {}) == {11}
    _write(tmp_path, 11, 1, started=99)
    assert tree.read() == {}


def test_a_parent_that_ends_meanwhile_costs_one_read(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (12, 11)):
        _write(tmp_path, pid, parent)
    tree = ProcessTree(10, tmp_path)
    assert tree.read() == {}
    # Adopted, as the kernel does it when the parent is gone.
    _write(tmp_path, 12, 10)
    assert set(tree.read() or {}) == {12}


def test_no_children_and_no_proc_at_all(tmp_path: Path) -> None:
    _write(tmp_path, 10, 1)
    assert ProcessTree(10, tmp_path).read() == {}
    assert ProcessTree(10, tmp_path / "none").read() is None


def process(proc: Path, pid: int, *argv: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes(b"\0".join(word.encode() for word in argv) + b"\0")


def test_running_agents_are_found_and_nothing_else(tmp_path: Path) -> None:
    process(tmp_path, 1, "python", "-P", "-m", "seatrial.agent", "/a/out/r1/attempt-2/agent.json")
    process(tmp_path, 2, "python", "-P", "-m", "seatrial.agent", "--call", "/b/out/r1/attempt-1/nodes/n/call.json")
    process(tmp_path, 3, "python", "-P", "-m", "seatrial.agent", "--call", "/b/out/r2/attempt-1/nodes/n/call.json")
    process(tmp_path, 4, "vim", "/c/out/r1/attempt-2/agent.json")
    process(tmp_path, 5, "python", "-m", "seatrial.agent.query_handler")
    process(tmp_path, 6, "python", "-m", "seatrial.agent", "--end", "/d/out/r1/attempt-1")
    (tmp_path / "7").mkdir()
    assert list_running_campaigns(tmp_path) == ["/a/out", "/b/out"]
    assert list_running_campaigns(tmp_path / "none") == []


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("cgroup", "file"),
    [
        ("0::/user.slice/job\n", "user.slice/job/memory.events"),
        # In a container the folder of its group is the root that it sees, whatever path the kernel names.
        ("0::/\n", "memory.events"),
        ("0::/kubepods/pod1\n", "memory.events"),
        ("5:cpu:/a\n4:memory:/slurm/job_7\n0::/\n", "memory/slurm/job_7/memory.oom_control"),
        ("4:hugetlb,memory:/slurm/job_7\n", "memory/memory.oom_control"),
    ],
)
def test_an_oom_kill_in_the_cgroup(tmp_path: Path, cgroup: str, file: str) -> None:
    write(tmp_path / "proc/self/cgroup", cgroup)
    write(tmp_path / "proc/vmstat", "nr_free_pages 1\noom_kill 7\n")
    counter = write(tmp_path / "cgroup" / file, "low 0\noom 3\noom_kill 3\noom_group_kill 0\n")
    counter_before = OomKillCounter(tmp_path / "proc", tmp_path / "cgroup")
    assert counter_before.describe_increase() == ""
    counter.write_text("low 0\noom 4\noom_kill 4\noom_group_kill 0\n")
    assert counter_before.describe_increase() == "oom_kill 3 → 4 in its cgroup"


def test_an_oom_kill_on_the_host(tmp_path: Path) -> None:
    vmstat = write(tmp_path / "vmstat", "oom_kill 7\n")
    counter_before = OomKillCounter(tmp_path, tmp_path)
    vmstat.write_text("oom_kill 9\n")
    assert counter_before.describe_increase() == "oom_kill 7 → 9 on this host"


def test_without_oom_counters_nothing_increases(tmp_path: Path) -> None:
    assert read_oom_kills(tmp_path, tmp_path) == {}
    assert OomKillCounter(tmp_path, tmp_path / "nowhere").describe_increase() == ""
