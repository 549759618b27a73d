"""Stacks at a signal, taken from real processes; and the signals that can be named for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from seatrial.probe.stacks import STACK_SIGNALS, is_signal_unused, stack_signal_number
from seatrial.records.plan import StackSignal

SETUP = """
import ctypes, os, signal, sys, time
from seatrial.probe import Probe

def ready(*values):
    print(*values, flush=True)
"""
TIMEOUT_S = 60.0


class Ranks:
    """Processes with a probe, ended with the test."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.stack = run_dir / "stacks" / "rank0.txt"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, body: str, **env: str) -> subprocess.Popen[str]:
        """A process that prints a line once its probe exists."""
        argv = [sys.executable, "-W", "ignore", "-c", SETUP + textwrap.dedent(body)]
        process = subprocess.Popen(
            argv, env={**os.environ, "SEATRIAL_RUN_DIR": str(self.run_dir), **env}, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )
        self._started.append(process)
        return process

    def named_signal(self) -> str | None:
        first = (self.run_dir / "events_rank0.jsonl").read_text().splitlines()[0]
        return json.loads(first)["signal"]

    def dump(self) -> str:
        """The stack file once it no longer grows."""
        text, deadline_s = "", time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            time.sleep(0.05)
            before, text = text, self.stack.read_text() if self.stack.exists() else ""
            if text and text == before:
                return text
        raise AssertionError(f"no stacks came: {text!r}")

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def ranks(tmp_path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path / "run")
    yield ranks
    ranks.end()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


STUCK = {
    "in Python": "while True: pass",
    "in C with the GIL": "ctypes.PyDLL(None).sleep(1000)",
}


@pytest.mark.parametrize("where", STUCK)
def test_a_stuck_rank_dumps_every_thread(ranks, where):
    process = ranks.start(f"""
        def stuck_here():
            ready()
            while True:
                {STUCK[where]}
        with Probe() as probe, probe.step():
            stuck_here()
    """)
    line_of(process)
    assert ranks.named_signal() == "USR2"
    process.send_signal(signal.SIGUSR2)
    text = ranks.dump()
    assert "in stuck_here" in text
    assert "writer.py" in text, "the probe's own thread is one of them"
    assert process.poll() is None, "the signal did not kill it"


def test_another_signal_can_be_named(ranks):
    process = ranks.start("probe = Probe(); ready(); time.sleep(1000)", SEATRIAL_STACK_SIGNAL="SIGWINCH")
    line_of(process)
    assert ranks.named_signal() == "WINCH"
    process.send_signal(signal.SIGWINCH)
    assert "most recent call first" in ranks.dump()
    process.send_signal(signal.SIGUSR2)
    assert process.wait(TIMEOUT_S) == -signal.SIGUSR2


@pytest.mark.parametrize(
    "own",
    [
        "signal.signal(signal.SIGUSR2, lambda *_: ready('mine'))",
        # As a library does it, past Python: getsignal still returns the default. `setlogmask` is harmless.
        "ctypes.CDLL(None).signal(12, ctypes.cast(ctypes.CDLL(None).setlogmask, ctypes.c_void_p))",
    ],
    ids=["python", "c"],
)
def test_a_signal_that_the_workload_uses_is_left_to_it(ranks, own):
    process = ranks.start(f"""
        {own}
        probe = Probe()
        ready()
        sys.stdin.readline()
        probe.close()
        ready("end")
    """)
    line_of(process)
    assert ranks.named_signal() is None
    process.send_signal(signal.SIGUSR2)
    go_on(process)
    assert process.stdout.read().split() == (["mine", "end"] if "mine" in own else ["end"])
    assert process.wait(TIMEOUT_S) == 0
    assert not ranks.stack.exists()


def test_a_handler_that_the_workload_sets_later_is_kept(ranks):
    process = ranks.start("""
        probe = Probe()
        signal.signal(signal.SIGUSR2, lambda *_: ready("mine"))
        probe.close()
        ready()
        sys.stdin.readline()
    """)
    line_of(process)
    process.send_signal(signal.SIGUSR2)
    assert line_of(process) == "mine"
    go_on(process)
    assert process.wait(TIMEOUT_S) == 0
    assert not ranks.stack.exists()


def test_stacks_can_be_taken_between_close_and_exit(ranks):
    process = ranks.start("""
        import atexit
        def last_words():
            ready("ending")
            sys.stdin.readline()
        atexit.register(last_words)
        def clean_up():
            ready("closed")
            sys.stdin.readline()
        with Probe():
            pass
        clean_up()
    """)
    assert line_of(process) == "closed"
    process.send_signal(signal.SIGUSR2)
    assert "in clean_up" in ranks.dump()
    go_on(process)
    assert line_of(process) == "ending"
    process.send_signal(signal.SIGUSR2)
    go_on(process)
    assert process.wait(TIMEOUT_S) == 0, "too late for stacks, but not deadly"


def test_without_a_signal_there_is_no_file(ranks):
    process = ranks.start("with Probe(): ready()")
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert not ranks.stack.parent.exists()


def test_the_next_probe_of_a_process_takes_the_signal_over(ranks, tmp_path):
    process = ranks.start(
        """
        Probe().close()
        probe = Probe(os.environ["SECOND"], rank=7)
        ready()
        time.sleep(1000)
    """,
        SECOND=str(tmp_path / "second"),
    )
    line_of(process)
    process.send_signal(signal.SIGUSR2)
    first, ranks.stack = ranks.stack, tmp_path / "second" / "stacks" / "rank7.txt"
    assert "most recent call first" in ranks.dump()
    assert not first.exists()


@pytest.mark.parametrize("meanwhile", ["pass", "path.unlink()", "path.unlink(); path.touch()"], ids=["kept", "removed", "replaced"])
def test_a_signal_registered_twice_for_one_path_still_dumps_there(ranks, meanwhile):
    process = ranks.start(f"""
        from pathlib import Path
        from seatrial.probe.stacks import register_stack_signal
        probe = Probe()
        path = Path(os.environ["SEATRIAL_RUN_DIR"]) / "stacks" / "rank0.txt"
        {meanwhile}
        ready(register_stack_signal("USR2", path))
        time.sleep(1000)
    """)
    assert line_of(process) == "USR2"
    process.send_signal(signal.SIGUSR2)
    assert "most recent call first" in ranks.dump()


def test_two_signals_share_a_file_that_is_removed_with_the_last_of_them(ranks, tmp_path):
    body = """
        from seatrial.probe.stacks import register_stack_signal
        from pathlib import Path
        register_stack_signal("USR1", Path(os.environ["SEATRIAL_RUN_DIR"]) / "stacks" / "rank0.txt")
        Probe().close()
        Probe(os.environ["SECOND"])
        ready()
        sys.stdin.readline()
    """
    process = ranks.start(body, SECOND=str(tmp_path / "second"))
    line_of(process)
    process.send_signal(signal.SIGUSR1)
    assert "most recent call first" in ranks.dump(), "the other signal has gone to another folder"
    ranks.stack.unlink()
    process = ranks.start(body, SECOND=str(tmp_path / "second"))
    line_of(process)
    go_on(process)
    assert process.wait(TIMEOUT_S) == 0
    assert not ranks.stack.parent.exists()


def test_a_forked_worker_survives_the_signal_and_writes_nothing(ranks):
    process = ranks.start("""
        probe = Probe()
        read, write = os.pipe()
        def work():
            ready(os.getpid())
            os.read(read, 1)
            sys.exit(0)
        child = os.fork()
        if child == 0:
            work()
        def wait():
            ready(os.waitpid(child, 0)[1])
            time.sleep(1000)
        sys.stdin.readline()
        os.write(write, b".")
        wait()
    """)
    worker = int(line_of(process))
    os.kill(worker, signal.SIGUSR2)
    go_on(process)
    assert line_of(process) == "0", "the worker outlived the signal and ended by itself"
    assert ranks.stack.read_text() == "", "nor did it write among the rank's stacks, nor remove their file at its end"
    process.send_signal(signal.SIGUSR2)
    assert "in wait" in ranks.dump()


def test_no_signal_is_registered_for_none(ranks):
    ranks.start("with Probe(): ready()", SEATRIAL_STACK_SIGNAL="none").communicate(timeout=TIMEOUT_S)
    assert ranks.named_signal() is None
    assert not ranks.stack.parent.exists()


@pytest.mark.parametrize("failure", ["a bad name", "no folder"])
def test_a_failure_is_a_warning_and_the_training_goes_on(make_probe, lines, monkeypatch, caplog, failure):
    if failure == "a bad name":
        monkeypatch.setenv("SEATRIAL_STACK_SIGNAL", "TERM")
    else:
        lines.run_dir.mkdir()
        (lines.run_dir / "stacks").write_text("in its place")
    with make_probe() as probe, probe.step():
        pass
    assert lines.events()[0]["signal"] is None
    assert [event["kind"] for event in lines.events()] == ["start", "step", "stop"]
    assert "no stacks by signal" in caplog.text


@pytest.mark.parametrize("name", ["USR3", "TERM", "12", "SIG", "USR2 USR1"])
def test_an_invalid_signal_is_refused_with_the_valid_ones(name):
    with pytest.raises(ValueError, match=rf"the stack signal is '{name}'; expected one of USR1, USR2, WINCH, URG, IO, PWR, or none"):
        stack_signal_number(name)


def test_a_plan_may_name_the_same_signals():
    assert get_args(StackSignal) == STACK_SIGNALS


@pytest.mark.parametrize("name", STACK_SIGNALS)
def test_signals_may_be_written_in_several_ways(name):
    expected = signal.Signals[f"SIG{name}"]
    assert {stack_signal_number(way) for way in (name, f"SIG{name}", name.lower(), f" {name} ")} == {expected}
    assert stack_signal_number("") is stack_signal_number("NONE") is None


@pytest.mark.parametrize(
    ("status", "unused"),
    [
        ("SigBlk:\t0000000000000000\nSigIgn:\t0000000001001000\nSigCgt:\t0000000000000002\n", True),
        ("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000800\n", False),
        ("SigBlk:\t0000000000000800\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n", False),
        ("SigIgn:\t0000000000000000\n", None),
        ("SigBlk:\tx\nSigIgn:\ty\nSigCgt:\tz\n", None),
        (None, None),
    ],
)
def test_signal_use_by_the_kernels_masks_else_by_python(tmp_path, status, unused):
    path = tmp_path / "status"
    if status is not None:
        path.write_text(status)
    by_python = signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
    assert is_signal_unused(signal.SIGUSR2, path) is (by_python if unused is None else unused)
