"""The agents of a run as the campaign sees them: one on this machine (AgentProcess), or one on every host (agent_group.AgentGroup).

    with AgentProcess.start(attempt) as agent:
        while agent.alive:
            for report in agent.wait(1.0): …

The agent runs in a session of its own, so Ctrl-C in the terminal reaches the harness alone, which decides. Closing the control pipe, or
the death of the harness by any cause, makes the agent kill everything.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from types import TracebackType
from typing import Protocol

from seatrial.core.errors import LaunchError
from seatrial.core.files import json_object, tail_lines
from seatrial.core.linux import child_pids, set_subreaper
from seatrial.core.paths import AttemptPaths
from seatrial.core.shell import PIPE_BYTES, module_argv, wait_or_kill
from seatrial.launch.transports import AGENT_EXIT_TIMEOUT_S
from seatrial.machine.orphans import kill_orphans
from seatrial.machine.processes import AGENT_MODULE, read_start_ticks
from seatrial.records.codec import from_json_or_none
from seatrial.records.launch import AgentReport, NodeRecord

QUERY_HANDLER_MODULE = f"{AGENT_MODULE}.query_handler"
LOG_TAIL_LINES = 3
"""Lines of a lost agent's log that errors quote."""
# After its last report the agent has nothing left to do.
EXIT_TIMEOUT_S = 5.0
# Much longer than a dying process takes from losing its children to its end.
ADOPTION_S = 0.5
_LAST_KINDS = ("gone", "lost")


def agent_argv(python: str = "") -> tuple[str, ...]:
    """`seatrial.agent`, which runs beside the ranks; `python` is the interpreter, by default this one."""
    return module_argv(AGENT_MODULE, python)


def query_handler_argv(python: str = "") -> tuple[str, ...]:
    """`seatrial.agent.query_handler`, which answers the doctor's queries about its host."""
    return module_argv(QUERY_HANDLER_MODULE, python)


class Agents(Protocol):
    """The agents of one run, from the start to the last report, `gone` or `lost`."""

    @property
    def alive(self) -> bool:
        """Whether more reports may come."""

    def poll(self) -> list[AgentReport]:
        """Reports that have come, without waiting."""

    def wait(self, timeout_s: float) -> list[AgentReport]:
        """Reports as soon as there are any; [] after the timeout, or at once when no more can come."""

    def stacks(self) -> None:
        """Request the stacks of every Python process of the run; a `stacks` report follows once they are in attempt-N/stacks."""

    def stop(self) -> None:
        """Request TERM now and KILL after the order's `term_s`."""

    def kill(self) -> None:
        """Request KILL at once."""

    def close(self) -> list[AgentReport]:
        """Kill what still runs; returns the reports that came meanwhile."""

    def nodes(self) -> tuple[NodeRecord, ...]:
        """The record of every host; () for a run on this machine alone."""


class AgentProcess:
    """One agent that is our child, from its start to its last report."""

    def __init__(self, attempt: AttemptPaths, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._attempt, self._process = attempt, process
        self._control, self._reports = process.stdin, process.stdout
        self._pending = b""
        self._known: dict[int, int] = {}
        self._own_children = self._seen_children = child_pids()
        self._seen_m = time.monotonic()
        self._ended = False
        os.set_blocking(self._reports.fileno(), False)

    @classmethod
    def start(cls, attempt: AttemptPaths) -> AgentProcess:
        argv = [*agent_argv(), str(attempt.agent_order)]
        # Should the agent be killed, its descendants become our children.
        set_subreaper(True)
        try:
            with open(attempt.agent_log, "ab") as log:
                process = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0, start_new_session=True
                )
        except OSError as error:
            raise LaunchError(f"the agent of {attempt.run} could not be started: {error}; check memory, process limits and disk") from error
        return cls(attempt, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._ended

    def poll(self) -> list[AgentReport]:
        reports: list[AgentReport] = []
        self._update_own_children()
        while not self._ended and (data := self._read()) is not None:
            if data == b"":
                reports.append(self._lost())
            reports.extend(self._parse(data))
        return reports

    def wait(self, timeout_s: float) -> list[AgentReport]:
        until_m = time.monotonic() + timeout_s
        while not self._ended:
            reports = self.poll()
            left_s = until_m - time.monotonic()
            if reports or left_s <= 0:
                return reports
            select.select([self._reports], [], [], left_s)
        return []

    def stacks(self) -> None:
        self._send(b"stacks\n")

    def stop(self) -> None:
        self._send(b"stop\n")

    def kill(self) -> None:
        self._send(b"kill\n")

    def close(self) -> list[AgentReport]:
        with contextlib.suppress(OSError):
            self._control.close()
        until_m = time.monotonic() + AGENT_EXIT_TIMEOUT_S
        reports: list[AgentReport] = []
        while not self._ended and time.monotonic() < until_m:
            reports += self.wait(until_m - time.monotonic())
        if not self._ended:
            self._process.kill()
            reports.append(self._lost())
        self._reports.close()
        self._wait_for_exit()
        set_subreaper(False)
        return reports

    def nodes(self) -> tuple[NodeRecord, ...]:
        return ()

    def _wait_for_exit(self) -> None:
        """Wait with a timeout, since a process in an uninterruptible call cannot end."""
        wait_or_kill(self._process, EXIT_TIMEOUT_S, EXIT_TIMEOUT_S)

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, line: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._control.write(line)
            # A suspended agent must be continued to read it.
            self._process.send_signal(signal.SIGCONT)

    def _read(self) -> bytes | None:
        """Bytes of reports, b"" at the end of the agent, None where there is nothing yet."""
        try:
            return os.read(self._reports.fileno(), PIPE_BYTES)
        except BlockingIOError:
            return None

    def _update_own_children(self) -> None:
        """Update the harness's own children: those seen while the agent lives.

        The children of a dying agent become ours a moment before it is seen to be dead. So children count as our own only once the agent
        has outlived the scan that found them.
        """
        now_m = time.monotonic()
        if now_m - self._seen_m < ADOPTION_S or self._process.poll() is not None:
            return
        self._own_children |= self._seen_children
        self._seen_children, self._seen_m = child_pids(), now_m

    def _parse(self, data: bytes) -> list[AgentReport]:
        *lines, self._pending = (self._pending + data).split(b"\n")
        # Other lines were printed by an extension to the agent's standard output.
        reports = [report for line in lines if (report := from_json_or_none(AgentReport, json_object(line))) is not None]
        for report in reports:
            self._ended = self._ended or report.kind in _LAST_KINDS
            ticks = read_start_ticks(report.pid) if report.kind == "started" and report.pid else None
            if report.pid and ticks is not None:
                self._known[report.pid] = ticks
        return reports

    def _lost(self) -> AgentReport:
        """The agent died: kill and report what it left."""
        self._ended = True
        self._wait_for_exit()
        killed = kill_orphans(self._attempt.folder, self._known, lambda: child_pids() - self._own_children)
        log_tail = " / ".join(tail_lines(self._attempt.agent_log, LOG_TAIL_LINES))
        detail = f"the agent ended with {self._process.returncode} before the run was over"
        return AgentReport(kind="lost", t=time.time(), killed=len(killed), detail=f"{detail}: {log_tail}" if log_tail else detail)
