"""Shared memory, a suspended agent and endless output at the end of a run."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path

import psutil
import pytest

from seatrial.core.timeouts import SUSPENDED_S
from seatrial.machine.orphans import SHARED_MEMORY
from tests.unit.agent.running import agent_on, attempt_of, hear, order_for
from tests.waiting import wait_until

# Segments whose creator is killed with its resource tracker; one is still open in a process of the run when it ends.
LEAVES = """\
import os, time
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *_: None
held = shared_memory.SharedMemory(name=f"torch_{os.getpid()}_1_0", create=True, size=4096)
left = shared_memory.SharedMemory(name=f"torch_{os.getpid()}_2_0", create=True, size=4096)
left.close()
open("names.part", "w").write(f"{held.name} {left.name}")
os.rename("names.part", "names")
time.sleep(600)
"""


def _names(folder: Path) -> list[str]:
    wait_until((folder / "names").exists, "the segments are made")
    return (folder / "names").read_text().split()


@pytest.mark.parametrize("agent_dies", [False, True], ids=["by the agent", "by the harness that lost it"])
def test_segments_of_a_killed_run_are_removed_and_no_others(tmp_path: Path, agent_dies: bool) -> None:
    order = order_for(tmp_path, LEAVES, host=os.uname().nodename)
    # A child of this process that does not belong to the run, as the harness may have.
    resource_tracker.ensure_running()
    with agent_on(order) as agent:
        names = _names(tmp_path)
        others = shared_memory.SharedMemory(create=True, size=4096)
        try:
            assert all((SHARED_MEMORY / name).exists() for name in names)
            agent.poll()
            if agent_dies:
                os.kill(agent.pid, signal.SIGKILL)
            else:
                agent.kill()
            hear(agent, "lost" if agent_dies else "gone")
            assert not any((SHARED_MEMORY / name).exists() for name in names)
            assert (SHARED_MEMORY / others.name).exists(), "in use by a process that does not belong to the run"
        finally:
            others.close()
            others.unlink()


def test_an_agent_that_was_suspended_kills_nothing_when_it_wakes(tmp_path: Path) -> None:
    order = order_for(tmp_path, "import time\nprint('up', flush=True)\ntime.sleep(600)", ranks=2, term_s=600.0)
    attempt = attempt_of(order)
    with agent_on(order) as agent:
        wait_until(lambda: attempt.launcher_log.is_file() and attempt.launcher_log.read_text().count("up") == 2, "the ranks are up")
        ranks = psutil.Process(agent.pid).children()
        os.kill(agent.pid, signal.SIGSTOP)
        time.sleep(SUSPENDED_S + 1.5)
        os.kill(agent.pid, signal.SIGCONT)
        wait_until(lambda: "did not run for" in attempt.agent_log.read_text(), "the agent logs it")
        assert all(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
        agent.kill()
        assert hear(agent, "gone").killed == 2


def _has_written(process: psutil.Process) -> bool:
    return process.io_counters().write_chars > 2**20


def test_endless_output_holds_up_neither_stacks_nor_the_end(tmp_path: Path) -> None:
    text = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: os.write(1, b'y' * 65536)"
    order = order_for(tmp_path, text, ranks=2, term_s=0.5)
    attempt = attempt_of(order)
    attempt.launcher_log.symlink_to("/dev/null")
    attempt.rank_logs.mkdir()
    for rank in range(2):
        (attempt.rank_logs / f"rank{rank}.log").symlink_to("/dev/null")
    with agent_on(order) as agent:
        hear(agent, "started")
        wait_until(lambda: sorted(map(_has_written, psutil.Process(agent.pid).children())) == [True, True], "both ranks write")
        agent.stacks()
        assert "by py-spy: rank 0" in hear(agent, "stacks", 60.0).detail
        agent.stop()
        # TERM, half a second, KILL; reading the endless output to its end would never return.
        assert hear(agent, "gone", 60.0).killed == 2
        assert psutil.Process().memory_info().rss < 2**30
