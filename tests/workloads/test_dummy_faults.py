"""The dummy's faults, by real processes: each is the thing it says, and Seatrial's registry knows it by its own words."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seatrial.collect.failure.cause import diagnose
from seatrial.records.outcome import Cause
from seatrial_workloads.dummy.faults import Faults, OutOfMemoryError
from seatrial_workloads.dummy.settings import Settings
from tests import waiting
from tests.workloads.ranks import column, events, rank_environment, run_ranks

PATIENCE_S = 60.0
wait_until = partial(waiting.wait_until, patience_s=PATIENCE_S)
SLEEPING = "S"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@contextlib.contextmanager
def started(run_dir: Path, *, stdout: Any = subprocess.DEVNULL, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
    """One rank that would not end by itself."""
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    argv = [sys.executable, "-m", "seatrial_workloads.dummy.train", "--run-dir", str(run_dir), *words]
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


def told_behind(stdout: str) -> str:
    (line,) = [line for line in stdout.splitlines() if line.startswith("left behind: ")]
    return line.removeprefix("left behind: ")


@pytest.mark.parametrize(
    ("crash_with", "returncode", "cause"),
    [
        ("sigkill", -signal.SIGKILL, Cause.KILLED),
        ("segfault", -signal.SIGSEGV, Cause.NATIVE_CRASH),
        ("cuda_oom", 1, Cause.CUDA_OOM),
        ("host_oom", 1, Cause.HOST_OOM),
        ("port_in_use", 1, Cause.PORT_IN_USE),
    ],
)
def test_each_crash_is_known_by_what_it_leaves(run_dir: Path, crash_with: str, returncode: int, cause: Cause) -> None:
    done = run_ranks("dummy", run_dir, steps=6, step_ms=1, crash_at_step=3, crash_with=crash_with)
    assert done.returncodes == [returncode], done.stderr
    assert diagnose(done.returncodes[0], done.stderr[0].splitlines()).cause is cause
    assert events(run_dir, "stop") == []


def test_a_rank_killed_from_outside_ends_the_others(run_dir: Path) -> None:
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


@pytest.mark.parametrize(("hang_in", "function"), [("python", "hang_in_python"), ("c", "hang_in_c"), ("c_released", "hang_in_c")])
def test_a_hang_has_a_stack_that_names_it_and_ends_at_term(tmp_path: Path, hang_in: str, function: str) -> None:
    with hanging(tmp_path, hang_in) as (process, _, stacks):

        def is_named() -> bool:
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.05)
            return f"in {function}\n" in stacks.read_text()

        wait_until(is_named)
        # It would be over by now if a signal could end the wait.
        assert is_named()
        process.terminate()
        assert process.wait(PATIENCE_S) == -signal.SIGTERM


@pytest.mark.parametrize(("hang_in", "others_run"), [("python", True), ("c", False), ("c_released", True)])
def test_only_a_hang_that_keeps_the_gil_stops_the_other_threads(tmp_path: Path, hang_in: str, others_run: bool) -> None:
    with hanging(tmp_path, hang_in) as (process, ticks, _):
        wait_until(lambda: grows(ticks) is others_run)
        assert process.poll() is None


def test_one_hanging_rank_holds_up_the_others(run_dir: Path) -> None:
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
def test_a_halt_ends_every_rank_at_the_same_step_and_well(run_dir: Path, world_size: int) -> None:
    run_dir.mkdir()
    (run_dir / "halt.json").write_text('{"attempt": 1, "at_step": 6, "reason": "a test"}')
    done = run_ranks("dummy", run_dir, world_size=world_size, steps=50, step_ms=1)
    assert done.returncodes == [0] * world_size, done.stderr
    for rank in range(world_size):
        assert column(run_dir, "step", rank) == list(range(6))
        assert [event["at_step"] for event in events(run_dir, "halt", rank)] == [6]
        assert [event["steps"] for event in events(run_dir, "stop", rank)] == [6]


def test_a_stale_halt_of_another_attempt_stops_nobody(run_dir: Path) -> None:
    run_dir.mkdir()
    (run_dir / "halt.json").write_text('{"attempt": 3, "at_step": 0, "reason": "a test"}')
    assert run_ranks("dummy", run_dir, steps=5, step_ms=0).returncodes == [0]
    assert column(run_dir, "step") == list(range(5))


def test_an_end_without_a_step_is_no_failure_of_its_own(run_dir: Path) -> None:
    done = run_ranks("dummy", run_dir, world_size=2, steps=6, skip_all_steps=True)
    assert done.returncodes == [0, 0]
    assert (column(run_dir, "step"), events(run_dir, "stop")[0]["steps"]) == ([], 0)


def test_a_slow_start_is_slow_before_the_first_step(run_dir: Path) -> None:
    run_ranks("dummy", run_dir, steps=2, step_ms=0, start_delay_s=0.5)
    (start,), first = events(run_dir, "start"), events(run_dir, "step")[0]
    assert first["m"] - start["m"] >= 0.5
    assert first["iter_ms"] < 400


def test_no_output_is_none_at_all(run_dir: Path) -> None:
    done = run_ranks("dummy", run_dir, steps=4, step_ms=0, output="none", crash_at_step=2)
    assert (done.returncodes, done.stdout, done.stderr) == ([1], "", [""])
    assert column(run_dir, "step") == [0, 1]


def test_rubbish_is_no_text(run_dir: Path) -> None:
    with started(run_dir, stdout=subprocess.PIPE, steps=8, step_ms=0, output="rubbish") as process:
        printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    with pytest.raises(UnicodeDecodeError):
        printed.decode()
    assert printed.count(b"\x1b[31m") == 8
    assert b"\x00" in printed
    assert column(run_dir, "step") == list(range(8))


def test_endless_output_goes_on_beside_the_steps_and_ends_with_them(run_dir: Path) -> None:
    with started(run_dir, stdout=subprocess.PIPE, steps=20, step_ms=2, output="endless") as process:
        printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert printed.count(b"chatter ") > 10_000
    assert column(run_dir, "step") == list(range(20))


def test_an_orphan_outlives_its_rank_and_every_polite_signal(run_dir: Path) -> None:
    with started(run_dir, stdout=subprocess.PIPE, steps=3, step_ms=0, orphan="true") as process:
        assert process.stdout is not None
        process.wait(PATIENCE_S)
        pid = int(told_behind(process.stdout.readline().decode()).removeprefix("process "))
        try:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGHUP)
            assert os.getsid(pid) == pid, "a session of its own: a killed process group leaves it"
            assert str(Path(f"/proc/{pid}/fd/1").readlink()).startswith("pipe:"), "it holds the output open"
            time.sleep(0.1)
            assert state_of(pid) == SLEEPING
        finally:
            os.kill(pid, signal.SIGKILL)


def test_shared_memory_is_left_under_a_name_like_torchs(run_dir: Path) -> None:
    done = run_ranks("dummy", run_dir, steps=3, step_ms=0, shared_memory=True)
    segment = Path(told_behind(done.stdout))
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
def test_lies_stand_behind_the_truth(run_dir: Path, lies: str, steps: list[int], run: str, attempt: int) -> None:
    run_ranks("dummy", run_dir, steps=5, step_ms=0, lies=lies)
    assert column(run_dir, "step") == steps
    assert [(step["run"], step["attempt"]) for step in events(run_dir, "step")] == [("run", 1)] * 5 + [(run, attempt)] * 3


def test_a_hang_of_a_rank_that_is_not_there_is_told(run_dir: Path) -> None:
    done = run_ranks("dummy", run_dir, steps=3, step_ms=0, hang_at_step=1, hang_rank=4)
    assert done.returncodes == [0]
    (told,) = events(run_dir, "effective")
    assert (told["setting"], told["requested"], told["effective"]) == ("hang_rank", 4, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hang_at_step": 7, "steps": 7}, r"hang_at_step \(7\) lies after the last step \(6\): lower it or raise steps"),
        ({"hang_in": "rust"}, "hang_in is 'rust'; expected one of python, c, c_released"),
        ({"crash_with": "boredom"}, "crash_with is 'boredom'; expected one of exception, exit, sigkill, segfault, cuda_oom"),
        ({"output": "some"}, "output is 'some'; expected one of normal, none, endless, rubbish"),
        ({"lies": "white"}, "lies is 'white'; expected one of none, steps_back, other_run, other_attempt"),
        ({"start_delay_s": -1.0}, "start_delay_s is -1.0; it must be 0 or more"),
        ({"skip_all_steps": True, "crash_at_step": 2}, "skip_all_steps leaves no step to fail in: take one of the two away"),
    ],
)
def test_faults_that_could_not_happen_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**values)


@pytest.mark.parametrize(
    ("ordered", "rank", "step"),
    [({}, 0, 3), ({"crash_at_step": 3}, 1, 3), ({"crash_at_step": 3}, 0, 2), ({"hang_at_step": 3, "hang_rank": 1}, 0, 3)],
)
def test_a_step_passes_where_nothing_was_ordered_of_this_rank_and_step(
    run_dir: Path, ordered: dict[str, Any], rank: int, step: int
) -> None:
    with Faults(Settings(steps=5, **ordered), run_dir, rank) as faults:
        assert faults.in_step(step) is None
    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("crash_with", "error", "says"),
    [
        ("exception", RuntimeError, "ordered crash of rank 1 at step 3"),
        ("cuda_oom", OutOfMemoryError, "CUDA out of memory"),
        ("host_oom", MemoryError, "^$"),
        ("port_in_use", OSError, "Address already in use"),
        ("exit", SystemExit, "7"),
    ],
)
def test_a_crash_is_of_the_kind_that_was_ordered(run_dir: Path, crash_with: str, error: type[BaseException], says: str) -> None:
    settings = Settings(steps=5, crash_at_step=3, crash_rank=1, crash_with=crash_with, exit_code=7)
    with pytest.raises(error, match=says), Faults(settings, run_dir, 1) as faults:
        faults.in_step(3)


@pytest.mark.parametrize(
    ("lies", "run", "attempt", "first"),
    [("steps_back", "run", 1, 0), ("other_run", "somebody_elses_r1", 1, 5), ("other_attempt", "run", 2, 5)],
)
def test_lies_are_told_when_the_training_is_over(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, lies: str, run: str, attempt: int, first: int
) -> None:
    for name in ("SEATRIAL_RUN", "SEATRIAL_ATTEMPT"):
        monkeypatch.delenv(name, raising=False)
    run_dir.mkdir()
    with Faults(Settings(steps=5, lies=lies), run_dir, 0):
        assert list(run_dir.iterdir()) == []
    told = events(run_dir, "step")
    assert [event["step"] for event in told] == [first, first + 1, first + 2]
    assert {(event["run"], event["attempt"]) for event in told} == {(run, attempt)}
