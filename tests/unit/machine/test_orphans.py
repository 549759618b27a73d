"""Finding and killing what a killed agent left: processes and shared memory."""

from __future__ import annotations

import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from seatrial.core.files import write_private_json
from seatrial.core.paths import BY_HAND, AttemptPaths
from seatrial.machine import orphans
from seatrial.machine.orphans import (
    belongs_to_attempt,
    belongs_to_other_attempt,
    find_abandoned_segments,
    find_leftovers,
    find_processes,
    kill_leftovers,
    kill_orphans,
    list_segments,
)
from seatrial.machine.processes import read_start_ticks
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


def test_what_a_person_started_by_hand_is_not_matched() -> None:
    campaign = Path("/out")
    by_hand = [b"/out/run/attempt-1/" + BY_HAND.encode(), b"/out/run/attempt-1/" + BY_HAND.encode() + b"/nodes/a"]
    for whose in (belongs_to_attempt(campaign / "run" / "attempt-1"), belongs_to_other_attempt(campaign, campaign / "run" / "attempt-2")):
        assert not any(map(whose, by_hand))
        assert whose(b"/out/run/attempt-1") and whose(b"/out/run/attempt-1/nodes/a") and whose(b"/out/run/attempt-1/by-handy")
    assert not any(map(belongs_to_other_attempt(campaign, campaign / "run" / "attempt-1"), by_hand))


@pytest.mark.parametrize("go_on", [True, False])
def test_leftovers_are_killed_only_while_that_is_wanted(tmp_path: Path, go_on: bool) -> None:
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, "SEATRIAL_RUN_DIR": str(tmp_path / "run" / "attempt-1")})
    try:
        assert find_leftovers(tmp_path, tmp_path / "run" / "attempt-2") == [left.pid]
        assert kill_leftovers(tmp_path, tmp_path / "run" / "attempt-2", lambda: go_on) == ({left.pid} if go_on else set())
        assert is_gone(left.pid) is go_on
    finally:
        left.kill()
        left.wait()


def test_an_attempt_of_another_slurm_job_is_a_leftover_only_once_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Slurm puts two jobs of a campaign on one node, the agents of one must not kill the other's ranks."""
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    other, own = (AttemptPaths(tmp_path / run / "attempt-1") for run in ("a_r1", "b_r1"))
    other.folder.mkdir(parents=True)
    is_leftover = belongs_to_other_attempt(tmp_path, own.folder)
    for job, is_over, wanted in [("7", False, False), ("7", True, True), ("8", False, True)]:
        other.job.write_text(json.dumps({"job": job}))
        other.outcome.unlink(missing_ok=True)
        if is_over:
            other.outcome.write_text("{}")
        assert is_leftover(os.fsencode(other.folder / "nodes" / "node1")) is wanted, (job, is_over)


def test_reported_pid_counts_only_while_it_is_the_same_process(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        ticks = read_start_ticks(process.pid)
        assert ticks is not None
        assert find_processes(belongs_to_attempt(tmp_path), {process.pid: ticks}) == [process.pid]
        assert find_processes(belongs_to_attempt(tmp_path), {process.pid: ticks - 1}) == []
    finally:
        process.kill()
        process.wait()
    assert read_start_ticks(process.pid) is None


def _shared_memory(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Path]:
    """Two segments, the first of which was there before; what is asked for is passed over."""
    folder.mkdir()
    files = [folder / "psm_before", folder / "psm_new"]

    def find_abandoned(before: Collection[str], newest_t: float) -> list[Path]:
        assert abs(newest_t - 60.0 - time.time()) < 600.0
        return [path for path in files if path.name not in before]

    for path in files:
        path.touch()
    monkeypatch.setattr(orphans, "find_abandoned_segments", find_abandoned)
    return files


@pytest.mark.parametrize(
    ("host", "mode", "left"),
    [(None, 0o600, ["psm_before"]), ("another", 0o600, ["psm_before", "psm_new"]), (None, 0o666, ["psm_before", "psm_new"])],
)
def test_shared_memory_is_removed_only_on_the_host_of_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str | None, mode: int, left: list[str]
) -> None:
    files = _shared_memory(monkeypatch, tmp_path / "shm")
    own = AttemptPaths(tmp_path / "attempt-1").node("node2")
    own.folder.mkdir(parents=True)
    write_private_json(own.agent_order, {"host": host or socket.gethostname(), "shared_memory": ["psm_before"]})
    own.agent_order.chmod(mode)
    kill_orphans(tmp_path / "attempt-1", {})
    assert [path.name for path in files if path.exists()] == left


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests run beside: no other campaign, but where a test makes one."""
    if "another_campaign" not in request.node.name:
        monkeypatch.setattr(orphans, "another_agent_runs", lambda pids, proc: False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


def _made(root: Path, *names: str) -> list[Path]:
    for name in names:
        (root / name).write_bytes(b"x" * 4096)
    return [root / name for name in names]


def test_only_new_segments_of_known_kinds_are_abandoned(root: Path) -> None:
    _made(root, "psm_old", "nccl-old")
    before = list_segments(root)
    _made(root, "my-own-database", "PSM_other")
    new = _made(root, "nccl-aBcDeF", "psm_12ab", "sem.mp-xyz", "torch_999999999_1_0")
    (root / "torch_folder").mkdir()
    (root / "mp-link").symlink_to(root / "my-own-database")
    assert before == ("nccl-old", "psm_old")
    assert find_abandoned_segments(before, root=root) == new


def test_a_segment_that_is_in_use_or_newer_or_whose_creator_lives_is_kept(root: Path) -> None:
    opened, mapped, left, own = _made(root, "psm_open", "psm_mapped", "psm_left", f"torch_{os.getpid()}_77_0")
    created_t = left.stat().st_ctime
    with open(opened, "rb") as held:
        holder = subprocess.Popen(["sleep", "600"], stdin=held)
    try:
        with open(mapped, "r+b") as source:
            memory = mmap.mmap(source.fileno(), 4096)
        assert find_abandoned_segments((), root=root) == [left]
        memory.close()
    finally:
        holder.kill()
        holder.wait()
    assert set(find_abandoned_segments((), newest_t=created_t + 1.0, root=root)) == {opened, mapped, left} and own.exists()
    assert find_abandoned_segments((), newest_t=created_t - 1.0, root=root) == []
    assert find_abandoned_segments((), root=root / "none") == [] == list(list_segments(root / "none"))


def test_while_another_campaign_runs_only_segments_whose_maker_is_known_and_gone_are_left_behind(root: Path, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "77").mkdir(parents=True)
    for name in ("psm_ab12cd", "torch_4000000_9_0"):
        (root / name).write_bytes(b"x")
    assert {path.name for path in find_abandoned_segments((), root=root, proc=proc)} == {"psm_ab12cd", "torch_4000000_9_0"}
    (proc / "77" / "cmdline").write_bytes(b"python\0-m\0seatrial.agent\0/out/agent.json\0")
    assert [path.name for path in find_abandoned_segments((), root=root, proc=proc)] == ["torch_4000000_9_0"]
