"""Injected faults of the dummy workload in real processes. How crashes are diagnosed: tests/faults/test_fault_runs.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workloads.ranks import column, events, rank_environment, run_ranks

TIMEOUT_S = 60.0
SLEEPING = "S"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@contextlib.contextmanager
def started(run_dir: Path, *, stdout: Any = subprocess.DEVNULL, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
    """One rank that would not end by itself."""
    flags = [f"--{name}={value}" for name, value in settings.items()]
    argv = [sys.executable, "-m", "seatrial_workloads.dummy.train", "--run-dir", str(run_dir), *flags]
    process = subprocess.Popen(argv, env=rank_environment(0, 1), stdout=stdout, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def state_of(pid: int) -> str:
    """Its letter in /proc; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def left_behind(stdout: str) -> str:
    (line,) = [line for line in stdout.splitlines() if line.startswith("left behind: ")]
    return line.removeprefix("left behind: ")


def test_a_killed_rank_ends_the_others(run_dir: Path) -> None:
    done = run_ranks("dummy", run_dir, world_size=2, steps=6, step_ms=1, crash_at_step=3, crash_rank=1, crash_with="sigkill")
    assert done.returncodes == [1, -signal.SIGKILL]
    assert "rank 1 was lost at step 3" in done.stderr[0]


HANGING = """
import faulthandler, signal, sys, threading, time
from seatrial_workloads.dummy.faults import hang

def tick():
    while True:
        ticks.write("x")
        ticks.flush()
        time.sleep(0.01)

ticks, stacks = (open(path, "w") for path in sys.argv[2:])
threading.Thread(target=tick, daemon=True).start()
# As the probe does it: at C level, so that a rank which keeps the GIL answers too.
faulthandler.register(signal.SIGUSR1, file=stacks)
print("hanging", flush=True)
hang(sys.argv[1])
"""


@contextlib.contextmanager
def hanging(tmp_path: Path, where: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """A process that hangs there, the file its other thread writes to, and the one for its stacks."""
    ticks, stacks = tmp_path / "ticks", tmp_path / "stacks"
    process = subprocess.Popen([sys.executable, "-c", HANGING, where, str(ticks), str(stacks)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"hanging\n"
        yield process, ticks, stacks
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def grows(path: Path) -> bool:
    before = path.stat().st_size
    time.sleep(0.3)
    return path.stat().st_size > before


@pytest.mark.parametrize(
    ("hang_in", "function", "others_run"),
    [("python", "hang_in_python", True), ("c", "hang_in_c", False), ("c_released", "hang_in_c", True)],
)
def test_a_hang_has_a_stack_that_names_it_and_only_one_that_keeps_the_gil_stops_other_threads(
    tmp_path: Path, hang_in: str, function: str, others_run: bool
) -> None:
    with hanging(tmp_path, hang_in) as (process, ticks, stacks):
        wait_until(lambda: grows(ticks) is others_run)

        def is_named() -> bool:
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.05)
            return f"in {function}\n" in stacks.read_text()

        wait_until(is_named)
        # It would be over by now if a signal could end the wait.
        assert is_named()
        process.terminate()
        assert process.wait(TIMEOUT_S) == -signal.SIGTERM


def test_one_hanging_rank_blocks_the_others(run_dir: Path) -> None:
    ordered = ["--steps", "9", "--step_ms", "1", "--log_every", "1", "--hang_at_step", "3", "--hang_rank", "1"]
    argv = [sys.executable, "-m", "seatrial_workloads.dummy.train", "--run-dir", str(run_dir), *ordered]
    ranks = [subprocess.Popen(argv, env=rank_environment(rank, 2), stdout=subprocess.DEVNULL) for rank in range(2)]
    try:
        wait_until(lambda: "Step 2: " in ((run_dir / "train.log").read_text() if (run_dir / "train.log").exists() else ""))
        assert "Step 3: " not in (run_dir / "train.log").read_text()
        assert [rank.poll() for rank in ranks] == [None, None]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_halt_ends_every_rank_cleanly_at_the_same_step(run_dir: Path, world_size: int) -> None:
    run_dir.mkdir()
    (run_dir / "halt.json").write_text('{"attempt": 1, "at_step": 6, "reason": "a test"}')
    done = run_ranks("dummy", run_dir, world_size=world_size, steps=50, step_ms=1)
    assert done.returncodes == [0] * world_size, done.stderr
    for rank in range(world_size):
        assert column(run_dir, "step", rank) == list(range(6))
        assert [event["at_step"] for event in events(run_dir, "halt", rank)] == [6]
        assert [event["steps"] for event in events(run_dir, "stop", rank)] == [6]


def test_a_halt_of_another_attempt_is_ignored(run_dir: Path) -> None:
    run_dir.mkdir()
    (run_dir / "halt.json").write_text('{"attempt": 3, "at_step": 0, "reason": "a test"}')
    assert run_ranks("dummy", run_dir, steps=5, step_ms=0).returncodes == [0]
    assert column(run_dir, "step") == list(range(5))


def test_no_step_at_all_is_exit_code_0(run_dir: Path) -> None:
    done = run_ranks("dummy", run_dir, world_size=2, steps=6, skip_all_steps=True)
    assert done.returncodes == [0, 0]
    assert (column(run_dir, "step"), events(run_dir, "stop")[0]["steps"]) == ([], 0)


def test_a_slow_start_is_slow_before_the_first_step(run_dir: Path) -> None:
    run_ranks("dummy", run_dir, steps=2, step_ms=0, start_delay_s=0.5)
    (start,), first = events(run_dir, "start"), events(run_dir, "step")[0]
    assert first["m"] - start["m"] >= 0.5
    assert first["iter_ms"] < 400


def test_output_none_silences_even_the_traceback(run_dir: Path) -> None:
    done = run_ranks("dummy", run_dir, steps=4, step_ms=0, output="none", crash_at_step=2)
    assert (done.returncodes, done.stdout, done.stderr) == ([1], "", [""])
    assert column(run_dir, "step") == [0, 1]


def test_rubbish_is_not_text(run_dir: Path) -> None:
    with started(run_dir, stdout=subprocess.PIPE, steps=8, step_ms=0, output="rubbish") as process:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    with pytest.raises(UnicodeDecodeError):
        printed.decode()
    assert printed.count(b"\x1b[31m") == 8
    assert b"\x00" in printed
    assert column(run_dir, "step") == list(range(8))


def test_endless_output_ends_with_the_steps(run_dir: Path) -> None:
    with started(run_dir, stdout=subprocess.PIPE, steps=20, step_ms=2, output="endless") as process:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert printed.count(b"chatter ") > 10_000
    assert column(run_dir, "step") == list(range(20))


def test_an_orphan_survives_its_rank_term_and_hup(run_dir: Path) -> None:
    with started(run_dir, stdout=subprocess.PIPE, steps=3, step_ms=0, orphan="true") as process:
        assert process.stdout is not None
        process.wait(TIMEOUT_S)
        pid = int(left_behind(process.stdout.readline().decode()).removeprefix("process "))
        try:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGHUP)
            assert os.getsid(pid) == pid, "a session of its own: a killed process group leaves it"
            assert str(Path(f"/proc/{pid}/fd/1").readlink()).startswith("pipe:"), "it holds the output open"
            time.sleep(0.1)
            # It would be gone or a zombie by now.
            wait_until(lambda: state_of(pid) == SLEEPING)
        finally:
            os.kill(pid, signal.SIGKILL)


def test_shared_memory_is_left_with_a_name_like_torchs(run_dir: Path) -> None:
    done = run_ranks("dummy", run_dir, steps=3, step_ms=0, shared_memory=True)
    segment = Path(left_behind(done.stdout))
    try:
        assert segment.name.startswith("torch_")
        assert segment.stat().st_size == 1024 * 1024
    finally:
        segment.unlink()


@pytest.mark.parametrize(
    ("lies", "steps", "run", "attempt"),
    [
        ("steps_back", [0, 1, 2, 3, 4, 0, 1, 2], "run", 1),
        ("other_run", [0, 1, 2, 3, 4, 5, 6, 7], "somebody_elses_r1", 1),
        ("other_attempt", [0, 1, 2, 3, 4, 5, 6, 7], "run", 2),
    ],
)
def test_false_steps_follow_the_true_ones(run_dir: Path, lies: str, steps: list[int], run: str, attempt: int) -> None:
    run_ranks("dummy", run_dir, steps=5, step_ms=0, lies=lies)
    assert column(run_dir, "step") == steps
    assert [(step["run"], step["attempt"]) for step in events(run_dir, "step")] == [("run", 1)] * 5 + [(run, attempt)] * 3
