"""The same with a real two-rank torch job over gloo, started by the real torchrun."""

from __future__ import annotations

import signal

import psutil
import pytest

from tests.faults.campaigns import (
    HANGING,
    INCONCLUSIVE,
    QUICK_STALL_OF_A_SCRIPT,
    agent_of,
    outcome,
    run_and_end,
    send,
    started_ranks,
    torch_job,
)
from tests.harness import Harness
from tests.waiting import wait_until

pytestmark = [pytest.mark.torch]
STALL = f"stall: {QUICK_STALL_OF_A_SCRIPT}"


@pytest.mark.parametrize("where", ["python", "c"])
def test_a_rank_that_hangs_is_named_and_not_the_one_that_waits_for_it(harness: Harness, where: str) -> None:
    ended = run_and_end(harness, torch_job(f', "--hang-at", "40", "--hang-in", "{where}"', limits=STALL, **HANGING))
    assert (ended["outcome"], ended["cause"], ended["rank"]) == ("stalled", "stall", 1)
    assert ended["phase"] == "fwd" or where == "c", "a rank that keeps the GIL cannot report its phase"
    assert "gloo_job.py" in ended["frame"] and "in hang" in ended["frame"]


def test_a_script_without_the_probe_that_hangs(harness: Harness) -> None:
    ended = run_and_end(harness, torch_job(', "--hang-at", "40", "--no-probe"', limits=STALL, **HANGING))
    assert (ended["outcome"], ended["cause"]) == ("stalled", "stall")
    assert ended["rank"] == 1 and "gloo_job.py" in ended["frame"] and "in hang" in ended["frame"]


@pytest.mark.parametrize("victim", ["harness", "agent"])
def test_harness_or_agent_killed_leaves_no_rank(harness: Harness, victim: str) -> None:
    process = harness.start("run", str(harness.plan(torch_job(steps=5_000))))
    started_ranks(harness, 2)
    send(process.pid if victim == "harness" else agent_of(process.pid).pid, signal.SIGKILL)
    wait_until(lambda: not harness.left_behind(), "every process of it ends", 60)
    assert process.wait(60) != 0


def test_a_rank_killed_by_the_kernel_or_anybody(harness: Harness) -> None:
    process = harness.start("run", str(harness.plan(torch_job(steps=5_000))))
    send(started_ranks(harness, 2)[1], signal.SIGKILL)
    assert process.wait(60) == 2
    assert (outcome(harness)["outcome"], outcome(harness)["cause"]) == ("failed", "killed")


def test_torchrun_killed(harness: Harness) -> None:
    process = harness.start("run", str(harness.plan(torch_job(steps=5_000))))
    rank = psutil.Process(started_ranks(harness, 2)[1])
    send(rank.ppid(), signal.SIGKILL)
    assert process.wait(60) == 2
    assert (outcome(harness)["outcome"], outcome(harness)["cause"]) == ("failed", "killed")
    assert not rank.is_running()


def test_a_suspended_rank_is_named_as_such(harness: Harness) -> None:
    process = harness.start("run", str(harness.plan(torch_job(steps=5_000, limits=STALL, **HANGING))))
    send(started_ranks(harness, 2, least_step=60)[1], signal.SIGSTOP)
    assert process.wait(90) == INCONCLUSIVE
    ended = outcome(harness)
    assert (ended["outcome"], ended["cause"], ended["rank"]) == ("stalled", "suspended", 1)


def test_an_interrupt_ends_both_ranks_at_the_same_step(harness: Harness) -> None:
    process = harness.start("run", str(harness.plan(torch_job(steps=5_000))))
    started_ranks(harness, 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    ended = outcome(harness)
    assert (ended["outcome"], ended["cause"], ended["exit_code"]) == ("interrupted", "user", 0)
