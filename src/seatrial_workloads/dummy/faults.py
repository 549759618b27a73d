"""Injected faults. In: settings, run folder and rank. Out: `Faults`, which the training calls in every step.

Faults are real where possible: a hang in C is a deadlock, a port in use is bound twice, an impossible allocation is requested. Only the
CUDA OOM message is simulated.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

from seatrial.core.text import MIB
from seatrial.records.events import ENV_ATTEMPT, ENV_RUN
from seatrial_workloads.dummy.settings import Settings

SHARED_MEMORY = Path("/dev/shm")
ORPHAN_S = 3600
# A zeroed mutex is unlocked; no pthread_mutex_t is larger than this.
MUTEX_BYTES = 64
ENDLESS_LINES = b"".join(b"chatter %04d: nothing of use to anyone\n" % line for line in range(1000))
# Half a UTF-8 character, NUL, a carriage return, ANSI colour, a terminal title.
RUBBISH = b"\xe2\x82\x00\xff\xfe\r\x1b[31m\x1b]0;title\x07"
NUM_FALSE_STEPS = 3


class OutOfMemoryError(RuntimeError):
    """Prints like torch's, which needs a GPU."""

    __module__ = "torch"


class Faults:
    """The faults of one rank. Use as the outermost context manager."""

    def __init__(self, settings: Settings, run_dir: Path, rank: int) -> None:
        self._settings = settings
        self._run_dir = run_dir
        self._rank = rank

    def __enter__(self) -> Faults:
        if self._settings.orphan:
            leave_orphan()
        if self._settings.shared_memory:
            leave_shared_memory()
        if self._settings.output == "none":
            silence_output()
        if self._settings.output == "endless":
            threading.Thread(target=print_endlessly, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._settings.lies != "none":
            write_false_steps(self._settings.lies, self._run_dir, self._rank, self._settings.steps)

    def in_step(self, step: int) -> None:
        """Called in the middle of every step."""
        settings = self._settings
        if settings.output == "rubbish":
            os.write(sys.stdout.fileno(), random.Random(step).randbytes(40) + RUBBISH)
        if step == settings.crash_at_step and self._rank == settings.crash_rank:
            crash(settings, self._rank, step)
        if step == settings.hang_at_step and self._rank == settings.hang_rank:
            hang(settings.hang_in)


def crash(settings: Settings, rank: int, step: int) -> None:
    match settings.crash_with:
        case "exit":
            sys.exit(settings.exit_code)
        case "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "cuda_oom":
            raise OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.50 GiB is free."
            )
        case "host_oom":
            bytearray(1 << 62)
        case "port_in_use":
            bind_twice()
        case _:
            raise RuntimeError(f"ordered crash of rank {rank} at step {step}")


def bind_twice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        socket.create_server(taken.getsockname())


def hang(where: str) -> NoReturn:
    if where == "python":
        hang_in_python()
    hang_in_c(ctypes.PyDLL(None) if where == "c" else ctypes.CDLL(None))


def hang_in_python() -> NoReturn:
    while True:
        time.sleep(0.1)


def hang_in_c(library: ctypes.CDLL) -> NoReturn:
    """Deadlock on a mutex that this thread holds; a sleep would be interrupted by a handled signal."""
    mutex = ctypes.create_string_buffer(MUTEX_BYTES)
    while True:
        library.pthread_mutex_lock(mutex)


def leave_orphan() -> None:
    argv = [sys.executable, "-c", f"import time; time.sleep({ORPHAN_S})"]
    # Signals are ignored before exec, so that there is no race.
    left = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=ignore_signals)
    print(f"left behind: process {left.pid}", flush=True)


def ignore_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def leave_shared_memory() -> None:
    segment = SHARED_MEMORY / f"torch_{os.getpid()}_{secrets.randbelow(1 << 32)}_0"
    segment.write_bytes(bytes(MIB))
    print(f"left behind: {segment}", flush=True)


def silence_output() -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.dup2(devnull, sys.stderr.fileno())


def print_endlessly() -> None:
    try:
        while True:
            os.write(sys.stdout.fileno(), ENDLESS_LINES)
    except OSError:
        # The reader is gone.
        return


def write_false_steps(kind: str, run_dir: Path, rank: int, steps: int) -> None:
    """Append steps that never happened, with a speed that stands out if they are counted."""
    run, attempt = os.environ.get(ENV_RUN) or run_dir.name, int(os.environ.get(ENV_ATTEMPT) or 1)
    run, attempt = "somebody_elses_r1" if kind == "other_run" else run, attempt + (kind == "other_attempt")
    first = 0 if kind == "steps_back" else steps
    with open(run_dir / f"events_rank{rank}.jsonl", "a", encoding="utf-8") as events:
        for step in range(first, first + NUM_FALSE_STEPS):
            now = {"v": 1, "run": run, "attempt": attempt, "rank": rank, "t": time.time(), "m": time.monotonic()}
            events.write(json.dumps({**now, "kind": "step", "step": step, "iter_ms": 0.001, "samples": 1_000_000, "loss": 0.0}) + "\n")
