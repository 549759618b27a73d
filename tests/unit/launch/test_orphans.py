from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from seatrial.launch.orphans import find_orphans, kill_orphans, start_ticks
from tests.unit.launch.factory import is_gone, pids_in, wait_until

# A marked process whose child has an empty environment, as after setproctitle or env -i.
PARENT = """\
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={}, start_new_session=True)
open(sys.argv[1], "w").write(f"{child.pid}\\n")
child.wait()
"""


def test_marked_processes_and_their_children_are_killed_and_no_others(tmp_path: Path) -> None:
    mine, other = tmp_path / "attempt-1", tmp_path / "attempt-11"
    written = tmp_path / "pid"
    env = {**os.environ, "SEATRIAL_RUN_DIR": str(mine)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(written)], env=env)
    bystander = subprocess.Popen(["sleep", "600"], env={**os.environ, "SEATRIAL_RUN_DIR": str(other)})
    try:
        wait_until(lambda: len(pids_in(written)) == 1, "the child is up")
        (child,) = pids_in(written)
        assert kill_orphans(mine, {}) == {parent.pid, child}
        assert is_gone(parent.pid) and is_gone(child)
        assert not is_gone(bystander.pid)
    finally:
        for process in (parent, bystander):
            process.kill()
            process.wait()


def test_reported_pid_counts_only_while_it_is_the_same_process(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        ticks = start_ticks(process.pid)
        assert ticks is not None
        assert find_orphans(tmp_path, {process.pid: ticks}) == [process.pid]
        assert find_orphans(tmp_path, {process.pid: ticks - 1}) == []
    finally:
        process.kill()
        process.wait()
    assert start_ticks(process.pid) is None


def test_no_orphans_costs_nothing(tmp_path: Path) -> None:
    assert kill_orphans(tmp_path, {}) == set()
