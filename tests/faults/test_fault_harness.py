"""The harness killed, suspended, interrupted, started twice: nothing is lost and no process is left."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MadeOnce
from tests.faults.campaigns import HANGING, INCONCLUSIVE, QUICK_STALL, agent_of, dummy, outcome, outcomes, send, started_ranks
from tests.harness import Harness
from tests.stubs.clock import WallClock
from tests.waiting import wait_until

FOUR_RUNS = dummy(steps=50, more="axes: {micro_batch: [4, 8]}\nrepeats: 2")
LONG = dummy(steps=60_000, soft_s=15)
# Parts of the names of columns that may differ between a campaign that was killed twenty times and one that was not.
TIMES = (
    "duration", "_ms", "eta", "_sec", "per_s", "_gib", "started", "port", "attempt", "run_dir", "log", "speed", "ratio", "p50", "stab",
    "wall_s", "window", "warmup", "steady", "telemetry_rows",
)  # fmt: skip


def start_long(harness: Harness, ranks: int = 2, plan: str = LONG) -> subprocess.Popen[str]:
    process = harness.start("run", str(harness.plan(plan)))
    started_ranks(harness, ranks)
    return process


@pytest.fixture(scope="module")
def four_runs(made_once: MadeOnce) -> Harness:
    """An undisturbed campaign of FOUR_RUNS. Read only."""
    return Harness(made_once("four_runs", lambda folder: Harness(folder).run("run", str(Harness(folder).plan(FOUR_RUNS)))))


def test_killed_at_20_moments_and_resumed_it_ends_as_if_undisturbed(harness: Harness, four_runs: Harness) -> None:
    chance = random.Random(4)
    plan = str(harness.plan(FOUR_RUNS))
    for number in range(20):
        process = harness.start("run", plan)
        # Most of them during runs, the last ones at any stage.
        time.sleep(chance.uniform(0.1, 1.6) if number < 16 else chance.uniform(0.5, 4.0))
        process.kill()
        process.wait()
        wait_until(lambda: not harness.left_behind(), "all of it ends", 60)
    harness.run("run", plan)
    for killed, whole in zip(finished(harness), finished(four_runs), strict=True):
        assert killed == whole, {name: (value, killed.get(name)) for name, value in whole.items() if killed.get(name) != value}
    assert {row["outcome"] for row in harness.manifest()} <= {"ok", "interrupted"}


def finished(harness: Harness) -> Iterator[dict[str, str]]:
    """The rows of the runs that ended well, without what depends on time."""
    for row in sorted(harness.manifest(), key=lambda row: row["run"]):
        if row["outcome"] == "ok":
            yield {name: value for name, value in row.items() if not any(word in name for word in TIMES)}


def test_a_killed_agent_is_noticed_and_its_processes_are_killed(harness: Harness) -> None:
    process = start_long(harness)
    agent_of(process.pid).kill()
    assert process.wait(60) == INCONCLUSIVE
    assert (outcome(harness)["outcome"], outcome(harness)["cause"]) == ("failed", "agent_lost")
    assert harness.left_behind() == []


def test_the_agent_sent_term_ends_the_run_and_is_named(harness: Harness) -> None:
    process = start_long(harness)
    agent_of(process.pid).terminate()
    assert process.wait(60) == INCONCLUSIVE
    ended = outcome(harness)
    assert (ended["outcome"], ended["cause"]) == ("failed", "agent_lost") and "received SIGTERM" in ended["detail"]


def test_a_suspended_agent_is_resumed_to_end_the_run(harness: Harness) -> None:
    process = start_long(harness, plan=dummy(steps=60_000, limits="run_s: 6"))
    agent_of(process.pid).suspend()
    assert process.wait(60) == 2
    assert (outcome(harness)["outcome"], outcome(harness)["cause"]) == ("timeout", "run_limit")


def test_harness_and_agent_killed_together(harness: Harness) -> None:
    started_t = time.time()
    process = start_long(harness)
    agent = agent_of(process.pid)
    for pid in (process.pid, agent.pid):
        send(pid, signal.SIGKILL)
    wait_until(lambda: not harness.left_behind(), "the ranks end with their parent", 60)
    process.wait()
    killed_t = time.time()
    harness.run("run", str(harness.plan(LONG.replace("60000", "30"))))
    assert set(outcomes(harness).values()) == {("interrupted", "harness_lost"), ("ok", "none")}
    killed = outcome(harness)
    assert 0 < killed["duration_s"] <= killed_t - started_t + 1 and killed["last_seen_in"], "not until the next start"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_once_it_stops_softly_writes_results_and_resumes(harness: Harness, number: signal.Signals) -> None:
    process = start_long(harness)
    send(process.pid, number)
    assert process.wait(60) == 130
    ended = outcome(harness)
    assert (ended["outcome"], ended["cause"], ended["exit_code"]) == ("interrupted", "user", 0)
    assert "interrupted" in harness.out.summary_md.read_text() and not harness.out.owner.exists()
    harness.run("run", str(harness.plan(LONG.replace("60000", "30"))))
    assert set(outcomes(harness).values()) == {("interrupted", "user"), ("ok", "none")}


def test_interrupted_twice_it_is_over_at_once(harness: Harness) -> None:
    process = start_long(harness, plan=dummy("hang_at_step: 20", steps=60, soft_s=100))
    send(process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "it waits for the ranks to stop"
    send(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    assert harness.left_behind() == [] and outcome(harness)["outcome"] == "interrupted"


def test_interrupted_during_preflight(harness: Harness) -> None:
    process = harness.start("run", str(harness.plan(LONG)))
    wait_until(lambda: harness.out.owner.exists(), "the folder is owned")
    send(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    assert set(outcomes(harness).values()) <= {("interrupted", "user")} if harness.out.manifest.exists() else True
    harness.run("run", str(harness.plan(LONG.replace("60000", "30"))))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_during_the_report(harness: Harness, four_runs: Harness, number: signal.Signals) -> None:
    shutil.copytree(four_runs.out.folder, harness.out.folder, symlinks=True)
    chance = random.Random(number)
    for _ in range(4):
        process = harness.start("report", "out")
        wait_until(lambda pid=process.pid: catches(pid, number), "the program handles signals", 60)
        time.sleep(chance.uniform(0.0, 1.0))
        send(process.pid, number)
        assert process.wait(60) in (0, 130)
        assert not list(harness.out.folder.rglob(".*.part"))
    harness.run("report", "out")


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for a signal: before that, Python itself is still starting."""
    (mask,) = (line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    # Python catches INT from its first moment on; ours come together.
    wanted = signal.SIGTERM if number is signal.SIGINT else number
    return bool(int(mask, 16) & 1 << (wanted - 1))


def test_a_suspended_harness_is_no_stall(harness: Harness) -> None:
    plan = dummy(steps=1_400, limits=f"stall: {QUICK_STALL}")
    process = start_long(harness, plan=plan)
    send(process.pid, signal.SIGSTOP)
    # Longer than the limit plus the interval of heartbeats.
    time.sleep(13)
    send(process.pid, signal.SIGCONT)
    assert process.wait(60) == 0
    assert outcome(harness)["outcome"] == "ok"


def test_a_rank_suspended_for_a_while_goes_on(harness: Harness) -> None:
    process = start_long(harness, plan=dummy(steps=400, limits="stall: {factor: 3, floor_s: 20}"))
    pid = started_ranks(harness, 2)[1]
    send(pid, signal.SIGSTOP)
    time.sleep(4)
    send(pid, signal.SIGCONT)
    assert process.wait(60) == 0


def test_a_rank_suspended_for_good_is_named_and_not_the_other(harness: Harness) -> None:
    process = start_long(harness, plan=dummy(steps=60_000, limits=f"stall: {QUICK_STALL}", **HANGING))
    send(started_ranks(harness, 2)[0], signal.SIGSTOP)
    assert process.wait(60) == INCONCLUSIVE
    ended = outcome(harness)
    assert (ended["outcome"], ended["cause"], ended["rank"]) == ("stalled", "suspended", 0)


def test_the_clock_set_back_while_it_runs(harness: Harness) -> None:
    """The wall clock of harness, agent and ranks goes back by an hour in the middle of the run."""
    clock = WallClock(harness.folder / "clock")
    process = harness.start("run", str(harness.plan(dummy(steps=600, limits=f"stall: {QUICK_STALL}"))), env=clock.environment())
    started_ranks(harness, 2, least_step=100)
    clock.set(-3600)
    assert process.wait(90) == 0
    (row,) = harness.manifest()
    assert row["outcome"] == "ok" and 0 < float(row["duration_sec"]) < 80
