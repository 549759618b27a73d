from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from seatrial.files import write_json
from seatrial.machine.orphans import (
    find_leftovers,
    find_orphans,
    kill_leftovers,
    kill_orphans,
    of_attempt,
    of_other_attempts,
)
from seatrial.machine.proc_files import start_ticks
from seatrial.paths import BY_HAND, AttemptPaths
from tests.processes import is_gone, pids_in
from tests.waiting import wait_until

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


def test_what_a_person_started_by_hand_is_nobodys() -> None:
    campaign = Path("/out")
    by_hand = [b"/out/run/attempt-1/" + BY_HAND.encode(), b"/out/run/attempt-1/" + BY_HAND.encode() + b"/nodes/a"]
    for whose in (of_attempt(campaign / "run" / "attempt-1"), of_other_attempts(campaign, campaign / "run" / "attempt-2")):
        assert not any(map(whose, by_hand))
        assert whose(b"/out/run/attempt-1") and whose(b"/out/run/attempt-1/nodes/a") and whose(b"/out/run/attempt-1/by-handy")
    assert not any(map(of_other_attempts(campaign, campaign / "run" / "attempt-1"), by_hand))


@pytest.mark.parametrize("go_on", [True, False])
def test_leftovers_are_ended_only_while_that_is_wanted(tmp_path: Path, go_on: bool) -> None:
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, "SEATRIAL_RUN_DIR": str(tmp_path / "run" / "attempt-1")})
    try:
        assert find_leftovers(tmp_path, tmp_path / "run" / "attempt-2") == [left.pid]
        assert kill_leftovers(tmp_path, tmp_path / "run" / "attempt-2", lambda: go_on) == ({left.pid} if go_on else set())
        assert is_gone(left.pid) is go_on
    finally:
        left.kill()
        left.wait()


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


def _shared_memory(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Path]:
    """Two segments, the first of which was there before; what is asked for is passed over."""
    folder.mkdir()
    files = [folder / "psm_before", folder / "psm_new"]

    def left_behind(before: Collection[str], newest_t: float) -> list[Path]:
        assert abs(newest_t - 60.0 - time.time()) < 600.0
        return [path for path in files if path.name not in before]

    for path in files:
        path.touch()
    monkeypatch.setattr("seatrial.machine.orphans.left_behind", left_behind)
    return files


@pytest.mark.parametrize(("host", "left"), [(None, ["psm_before"]), ("another", ["psm_before", "psm_new"])])
def test_shared_memory_goes_on_the_host_of_the_order_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str | None, left: list[str]
) -> None:
    files = _shared_memory(monkeypatch, tmp_path / "shm")
    own = AttemptPaths(tmp_path / "attempt-1").node("node2")
    own.folder.mkdir(parents=True)
    write_json(own.agent_order, {"host": host or socket.gethostname(), "shared_memory": ["psm_before"]})
    kill_orphans(tmp_path / "attempt-1", {})
    assert [path.name for path in files if path.exists()] == left
