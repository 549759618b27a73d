"""Stacks and signals for the ranks of a watched run, from outside.

In: ranks whose process was verified by pid and start time. Out: stacks/rank<r>.txt, written by the rank itself at its signal, also from
within C++, or stacks/pid<P>.txt, taken by py-spy; the pids that got a signal. A rank is signalled only where its start event names the
signal and it has a handler: the signal would kill any other. A pid in a file proves nothing: only a process that
has the rank's heartbeat or event file in this folder open for writing is touched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from seatrial.agent.stacks import PY_SPY_TIMEOUT_S, QUIET_S, SIGNAL_TIMEOUT_S, catches_signal, find_py_spy, signal_number
from seatrial.core.files import size_bytes, write_text
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import join_names
from seatrial.machine.processes import PROC, read_start_ticks
from seatrial_runbooks.sparse_lm.watched_run import RankProcess

MAX_NAMED = 8


def dump_stacks(paths: AttemptPaths, ranks: Sequence[RankProcess]) -> str:
    """Write the stacks of every rank; returns one line on how each was taken."""
    foreign = [rank for rank in ranks if not writes_here(paths, rank)]
    ranks = [rank for rank in ranks if rank not in foreign]
    # Read before any signal: a rank may answer at once.
    sizes = {rank: size_bytes(paths.rank_stack(rank.rank)) for rank in ranks}
    signalled = [rank for rank in ranks if request_stack(rank)]
    deadline = time.monotonic() + SIGNAL_TIMEOUT_S
    while signalled and time.monotonic() < deadline and not all(_grew(paths, rank, sizes[rank]) for rank in signalled):
        time.sleep(QUIET_S)
    answered = [rank for rank in signalled if _grew(paths, rank, sizes[rank])]
    parts = [f"by signal: {_names(answered)}"] if answered else []
    parts += [_dump_by_py_spy(paths, rank) for rank in ranks if rank not in answered]
    parts += [f"not {_names(foreign)} (such a process does not write to {paths.folder})"] if foreign else []
    return "; ".join(parts) or "no rank is left"


def signal_ranks(paths: AttemptPaths, ranks: Sequence[RankProcess], name: str) -> list[int]:
    """Send TERM or KILL; returns the pids that got it."""
    return [rank.pid for rank in ranks if writes_here(paths, rank) and _send(rank, int(signal.Signals[f"SIG{name}"]))]


def writes_here(paths: AttemptPaths, rank: RankProcess) -> bool:
    own = [path.resolve() for path in (paths.heartbeat(rank.rank), paths.events(rank.rank))]
    process = PROC / str(rank.pid)
    with contextlib.suppress(OSError):
        return any(_is_written(process, handle.name) for handle in (process / "fd").iterdir() if _target(handle) in own)
    return False


def _target(handle: Path) -> Path | None:
    with contextlib.suppress(OSError):
        return handle.readlink()
    return None


def _is_written(process: Path, handle: str) -> bool:
    """Whether the file is open for writing, by its flags in octal."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (process / "fdinfo" / handle).read_text().splitlines()
        return bool(int(next(line.split()[1] for line in lines if line.startswith("flags:")), 8) & os.O_ACCMODE)
    return False


def request_stack(rank: RankProcess) -> bool:
    number = signal_number(rank.signal)
    return number is not None and catches_signal(rank.pid, number) and _send(rank, number)


def _send(rank: RankProcess, number: int) -> bool:
    """Send it if the pid still belongs to this process."""
    if read_start_ticks(rank.pid) != rank.start_ticks:
        return False
    try:
        os.kill(rank.pid, number)
    except OSError:
        return False
    return True


def _grew(paths: AttemptPaths, rank: RankProcess, size: int) -> bool:
    return size_bytes(paths.rank_stack(rank.rank)) > size


def _dump_by_py_spy(paths: AttemptPaths, rank: RankProcess) -> str:
    program = find_py_spy()
    if program is None:
        return f"not {_names([rank])} (py-spy is not installed)"
    argv = [program, "dump", "--full-filenames", "--pid", str(rank.pid)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=PY_SPY_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not {_names([rank])} (py-spy: {error})"
    if done.returncode:
        return f"not {_names([rank])} (py-spy: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else done.returncode})"
    paths.stacks.mkdir(parents=True, exist_ok=True)
    write_text(paths.process_stack(rank.pid), f"# rank {rank.rank} pid {rank.pid}\n{done.stdout}")
    return f"by py-spy: {_names([rank])}"


def _names(ranks: Sequence[RankProcess]) -> str:
    return join_names([f"rank {rank.rank} (pid {rank.pid})" for rank in ranks], MAX_NAMED)
