"""Taking stacks by signal, by py-spy and by ABRT."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from seatrial.agent.stacks import (
    MAX_CONCURRENT_PY_SPY,
    PY_SPY_TIMEOUT_S,
    SIGNAL_TIMEOUT_S,
    STACKS_TIMEOUT_S,
    StackCollector,
    find_python_processes,
)
from seatrial.collect.stacks import main_frame, read_stacks
from seatrial.core.paths import AttemptPaths
from tests.facts import states
from tests.unit.agent.running import agent_on, attempt_of, hear, order_for
from tests.waiting import wait_until

# What the probe does, without it: a handler, a file and a start event that names the signal.
RANK = """\
import faulthandler, json, os, pathlib, signal, socket, time
folder, rank = pathlib.Path(os.environ["SEATRIAL_RUN_DIR"]), int(os.environ["RANK"])
def write_start(**more):
    event = {"v": 1, "attempt": 1, "rank": rank, "kind": "start", "pid": os.getpid(), "host": socket.gethostname(), **more}
    (folder / f"events_rank{rank}.jsonl").write_text(json.dumps(event) + "\\n")
def register():
    (folder / "stacks").mkdir(exist_ok=True)
    faulthandler.register(signal.SIGUSR2, file=open(folder / "stacks" / f"rank{rank}.txt", "a"))
def hang():
    (folder / f"up{rank}").touch()
    time.sleep(600)
"""


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ranks of an attempt in `tmp_path`, as children of this process."""
    started = []
    folder = attempt_of(order_for(tmp_path, "")).folder

    def one(text: str, rank: int = 0, **env: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "RANK": str(rank), "SEATRIAL_RUN_DIR": str(folder), **env}
        process = subprocess.Popen([sys.executable, "-c", RANK + text], env=environment, stderr=subprocess.PIPE)
        started.append(process)
        wait_until((folder / f"up{rank}").exists, "the rank is up")
        return process

    yield one
    for process in started:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def _stacks(folder: Path, pids: list[int], program: str | None = None) -> StackCollector:
    return StackCollector(order_for(folder, "", stack_signal="USR2"), pids=lambda: pids, program=program)


def _all_collected(stacks: StackCollector) -> bool:
    """Take the exit codes that are there; whether no py-spy runs."""
    for pid in stacks.helper_pids:
        with contextlib.suppress(ChildProcessError):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                stacks.on_exit(pid, os.waitstatus_to_exitcode(status))
    return not stacks.helper_pids


def _is_done(stacks: StackCollector, now: float) -> bool:
    """One turn of the agent's loop."""
    _all_collected(stacks)
    stacks.advance(now)
    return not stacks.busy


def _collect(stacks: StackCollector, capfd: pytest.CaptureFixture[str]) -> str:
    """Drive to the end as the agent's loop does; the detail of the report."""
    stacks.request(time.monotonic())
    wait_until(lambda: _is_done(stacks, time.monotonic()), "the stacks are taken")
    return _reported(capfd)


def _reported(capfd: pytest.CaptureFixture[str]) -> str:
    (line,) = capfd.readouterr().out.splitlines()
    report = json.loads(line)
    assert report["kind"] == "stacks"
    return str(report["detail"])


def _fake_spy(folder: Path, text: str) -> str:
    program = folder / "fake-spy"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_every_process_of_a_run_is_dumped_in_its_own_way(tmp_path: Path) -> None:
    text = RANK + (
        "if rank == 0: register(); write_start(signal='USR2')\n"
        "if rank == 1 and os.fork() == 0: time.sleep(600)\n"
        "if rank == 2: (folder / 'up2').touch(); os.kill(os.getpid(), signal.SIGSTOP)\n"
        "hang()\n"
    )
    order = order_for(tmp_path, text, ranks=3, stack_signal="USR2")
    attempt = attempt_of(order)
    with agent_on(order) as agent:
        wait_until(lambda: all((attempt.folder / f"up{rank}").exists() for rank in range(3)), "all ranks are up")
        agent.stacks()
        detail = hear(agent, "stacks").detail
        agent.stop()
        assert hear(agent, "gone").killed == 1, "the worker alone: TERM reaches the stopped rank too, and py-spy is nothing the run left"
    stacks = read_stacks(attempt)
    assert [(stack.rank, stack.of_rank, stack.source, stack.state) for stack in stacks] == [
        (0, None, "signal", ""),
        (1, None, "py-spy", ""),
        (2, None, "py-spy", "T"),
        (None, 1, "py-spy", ""),
    ]
    hang_line = next(number for number, line in enumerate(text.splitlines(), 1) if "time.sleep(600)" in line)
    assert [main_frame(stack) for stack in stacks[:2]] == [f"<string>:{hang_line} in hang"] * 2
    assert re.fullmatch(
        r"by signal: rank 0 \(pid \d+\); by py-spy: .*rank 2 \(pid \d+\).*; rank 2 \(pid \d+\) was stopped \(SIGSTOP\)", detail
    )
    assert "RANK" not in attempt.process_stack(stacks[1].pid or 0).read_text(), "the command may contain secrets"


def test_a_signal_goes_only_to_a_process_that_has_a_handler_for_it(tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    liar = start("write_start(signal='USR2'); hang()")
    assert _collect(_stacks(tmp_path, [liar.pid]), capfd) == f"by py-spy: rank 0 (pid {liar.pid})"
    assert liar.poll() is None


@pytest.mark.parametrize("event", ["signal='USR1'", "signal='USR2', attempt=2", "signal='USR2', host='elsewhere'", "signal='USR2', pid=1"])
def test_a_start_event_of_another_process_does_not_count(
    tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str], event: str
) -> None:
    rank = start(f"register(); write_start(**dict({event})); hang()")
    assert _collect(_stacks(tmp_path, [rank.pid]), capfd) == f"by py-spy: rank 0 (pid {rank.pid})"


def test_a_rank_that_does_not_answer_is_dumped_by_py_spy(tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    silent = start("signal.signal(signal.SIGUSR2, lambda *_: None); write_start(signal='USR2')\nwhile True: hang()")
    stacks = _stacks(tmp_path, [silent.pid])
    stacks.request(0.0)
    stacks.advance(SIGNAL_TIMEOUT_S - 0.1)
    assert stacks.busy and not stacks.helper_pids
    stacks.advance(SIGNAL_TIMEOUT_S + 0.1)
    wait_until(lambda: _is_done(stacks, SIGNAL_TIMEOUT_S + 0.2), "py-spy is done")
    assert _reported(capfd) == f"by py-spy: rank 0 (pid {silent.pid})"


def test_native_frames_that_fail_are_left_out(tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    rank = start("hang()")
    program = _fake_spy(tmp_path, 'case "$*" in *--native*) exit 1;; esac\nprintf "Thread 1 (idle): \\"MainThread\\"\\n    f (x.py:3)\\n"')
    assert _collect(_stacks(tmp_path, [rank.pid], program), capfd) == f"by py-spy: rank 0 (pid {rank.pid})"
    (stack,) = read_stacks(attempt_of(order_for(tmp_path, "")))
    assert main_frame(stack) == "x.py:3 in f"


def test_abrt_is_the_last_resort_and_only_where_it_prints_a_trace(tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    plain, tracing = start("hang()", 0, PYTHONFAULTHANDLER=""), start("hang()", 1, PYTHONFAULTHANDLER="1")
    program = _fake_spy(tmp_path, "echo 'Error: Permission denied' >&2\nexit 1")
    detail = _collect(_stacks(tmp_path, [plain.pid, tracing.pid], program), capfd)
    both = f"rank 0 (pid {plain.pid}), rank 1 (pid {tracing.pid})"
    failed, aborted = detail.split("; ")
    assert states(failed, "not", both, "py-spy", "Permission denied")
    assert states(aborted, "ABRT", f"rank 1 (pid {tracing.pid})", "launcher.log") and "rank 0" not in aborted
    assert plain.poll() is None
    assert b"in hang" in tracing.communicate()[1] and tracing.returncode == -signal.SIGABRT


def test_a_hung_py_spy_is_killed_and_its_target_resumed(tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    rank = start("hang()", PYTHONFAULTHANDLER="")
    # It halts the process as the real one does, and is killed before it lets go.
    program = _fake_spy(tmp_path, f"kill -STOP {rank.pid}\nexec sleep 600")
    stacks = _stacks(tmp_path, [rank.pid], program)
    stacks.request(0.0)
    for way in range(3):
        stacks.advance(way * PY_SPY_TIMEOUT_S + 0.1)
        wait_until(lambda: psutil.Process(rank.pid).status() == psutil.STATUS_STOPPED, "the process is halted")
        stacks.advance((way + 1) * PY_SPY_TIMEOUT_S + 0.1)
        wait_until(lambda: _all_collected(stacks), "py-spy is ended")
        wait_until(lambda: psutil.Process(rank.pid).status() == psutil.STATUS_SLEEPING, "the process goes on")
    stacks.advance(3 * PY_SPY_TIMEOUT_S + 0.2)
    assert _reported(capfd) == f"not rank 0 (pid {rank.pid}) (py-spy took too long)"


def test_few_at_once_and_all_within_the_timeout(tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    ranks = [start("hang()", rank, PYTHONFAULTHANDLER="") for rank in range(MAX_CONCURRENT_PY_SPY + 1)]
    stacks = _stacks(tmp_path, [rank.pid for rank in ranks], _fake_spy(tmp_path, "exec sleep 600"))
    stacks.request(0.0)
    stacks.advance(0.1)
    assert len(stacks.helper_pids) == MAX_CONCURRENT_PY_SPY
    stacks.advance(STACKS_TIMEOUT_S)
    wait_until(lambda: _all_collected(stacks), "all are ended")
    stacks.advance(STACKS_TIMEOUT_S + 0.1)
    assert f"not rank {MAX_CONCURRENT_PY_SPY} (pid {ranks[-1].pid}) (skipped: out of time)" in _reported(capfd)


def test_an_end_meanwhile_is_reported(tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    rank = start("hang()")
    stacks = _stacks(tmp_path, [rank.pid], _fake_spy(tmp_path, "exec sleep 600"))
    stacks.request(0.0)
    stacks.advance(0.1)
    stacks.cancel("the run ended by itself")
    wait_until(lambda: _all_collected(stacks), "py-spy is ended")
    assert _reported(capfd).endswith("the run ended by itself")


def test_without_python_processes_there_is_a_report_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        assert _collect(_stacks(tmp_path, [sleeper.pid, 2**22]), capfd) == "no Python process was running"
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize(("by_variable", "signal"), [(False, "USR2"), (True, None)])
def test_the_start_event_of_a_host_of_the_same_name_does_not_count(tmp_path: Path, by_variable: bool, signal: str | None) -> None:
    """The signal that another rank has named might end this one."""
    attempt = AttemptPaths(tmp_path / "run" / "attempt-1")
    attempt.folder.mkdir(parents=True)
    code = "import time; print(flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "RANK": "3"}, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        event = {"kind": "start", "attempt": 1, "rank": 0, "pid": process.pid, "host": socket.gethostname(), "signal": "USR2"}
        attempt.events(0).write_text(json.dumps(event) + "\n")
        (found,) = find_python_processes([process.pid], attempt, by_variable=by_variable)
        assert (found.rank, found.signal) == (3, signal)
    finally:
        process.kill()
        process.communicate()
