"""The processes the agent starts itself: the launcher, or one for each rank of plain python, and their output on its way to the log.

In: an order and the environment beneath. Out: `Started` processes, whose output is taken without waiting; for one that cannot be started,
a shell's exit code and a sentence.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seatrial.agent.merge import Lines, LogFile, Verbatim
from seatrial.agent.tree import bind_to_parent
from seatrial.paths import AttemptPaths
from seatrial.records.command import AgentOrder
from seatrial.shell import PIPE_BYTES


@dataclass
class Started:
    """One started process and its pipe; `returncode` is None while it lives, `pipe` None after its end."""

    pid: int
    pipe: int | None
    lines: Lines | Verbatim
    own_log: LogFile | None
    process: subprocess.Popen[bytes]
    returncode: int | None = None

    def take(self) -> bytes:
        """What the process printed, as it goes into the merged log; at the end of its output the pipe is closed."""
        if self.pipe is None:
            return b""
        try:
            data = os.read(self.pipe, PIPE_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            return self.close()
        if self.own_log:
            self.own_log.append(data)
        return self.lines.feed(data)

    def drain(self, sink: Callable[[bytes], None], longest_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Take what is there now, without waiting for more; a grandchild that never stops printing is cut off."""
        until_m = monotonic() + longest_s
        while self.pipe is not None and _readable(self.pipe) and monotonic() < until_m:
            sink(self.take())

    def ended(self, returncode: int) -> None:
        # Popen must not wait for what waitpid(-1) has already collected.
        self.returncode = self.process.returncode = returncode

    def close(self) -> bytes:
        """Close the pipe; the unfinished line, if there is one."""
        if self.pipe is None:
            return b""
        os.close(self.pipe)
        self.pipe = None
        if self.own_log:
            self.own_log.close()
        return self.lines.finish()


def start_all(order: AgentOrder, caller: Mapping[str, str]) -> Iterator[Started]:
    """Start each process of the command; OSError when one cannot be started (those already started are the caller's to end)."""
    # A rank alone on its host is one of several all the same, and has its number in its variables where no launcher stands between.
    several = len(order.command.ranks) > 1 or (order.call is not None and "RANK" in order.command.ranks[0])
    for position, overlay in enumerate(order.command.ranks):
        rank = int(overlay.get("RANK", order.first_rank + position))
        lines: Lines | Verbatim = Lines(rank) if several else Lines() if order.rank_logs else Verbatim()
        own_log = LogFile(AttemptPaths(Path(order.writes_to)).rank_logs / f"rank{rank}.log") if several else None
        yield _start(order, {**caller, **order.command.env, **overlay}, lines, own_log)


def start_failure(order: AgentOrder, error: OSError) -> tuple[int, str]:
    """The exit code a shell would give, and a sentence for people."""
    code = 127 if error.errno == errno.ENOENT else 126
    what = order.command.cwd if error.filename == order.command.cwd else order.command.argv[0]
    where, there = (f" on {order.call.node}", ", and that it is there on every host") if order.call else ("", "")
    return code, f"'{what}' could not be started{where}: {error.strerror}; check workload, launcher and cwd in spec.json{there}"


def _start(order: AgentOrder, env: Mapping[str, str], lines: Lines | Verbatim, own_log: LogFile | None) -> Started:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    try:
        process = subprocess.Popen(
            order.command.argv,
            cwd=order.command.cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
            preexec_fn=bind_to_parent,
        )
    except OSError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return Started(pid=process.pid, pipe=read_end, lines=lines, own_log=own_log, process=process)


def _readable(handle: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return bool(select.select([handle], [], [], 0)[0])
    return False
