"""The harness's end of the agent: starting it, hearing its reports, telling it to stop.

    with AgentProcess.start(attempt) as agent:
        while agent.alive:
            for report in agent.wait(1.0): …

The agent runs in a session of its own, so Ctrl-C in the terminal reaches the harness alone, which decides. Closing the control
pipe, or the death of the harness however it comes, makes the agent kill everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from types import TracebackType

from seatrial.errors import LaunchError
from seatrial.files import tail_lines
from seatrial.kinship import adopt_orphans, children
from seatrial.launch.own_programs import AGENT_ENDS_WITHIN_S, LAST_WORDS_LINES, agent_words
from seatrial.machine.orphans import kill_orphans
from seatrial.machine.proc_files import start_ticks
from seatrial.paths import AttemptPaths
from seatrial.records.codec import from_json
from seatrial.records.command import AgentReport
from seatrial.records.nodes import NodeRecord
from seatrial.shell import PIPE_BYTES, end_within

# After its last report the agent has nothing left to do.
LEAVE_PATIENCE_S = 5.0
# Far longer than a process takes from giving its children away to its end.
OUTLIVED_S = 0.5
_LAST_KINDS = ("gone", "lost")


class AgentProcess:
    """One agent, from its start to its last report."""

    def __init__(self, attempt: AttemptPaths, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._attempt, self._process = attempt, process
        self._control, self._reports = process.stdin, process.stdout
        self._pending = b""
        self._known: dict[int, int] = {}
        self._own_children = self._seen_children = children()
        self._seen_m = time.monotonic()
        self._ended = False
        os.set_blocking(self._reports.fileno(), False)

    @classmethod
    def start(cls, attempt: AttemptPaths) -> AgentProcess:
        """Start the agent on the order that `prepare` wrote."""
        argv = [*agent_words(), str(attempt.agent_order)]
        # Should the agent be killed, all that it watched over comes to us.
        adopt_orphans(True)
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
        """Whether more reports may come."""
        return not self._ended

    def poll(self) -> list[AgentReport]:
        """Reports that have come, without waiting; the last one is `gone` or `lost`."""
        reports: list[AgentReport] = []
        self._remember_children()
        while not self._ended and (data := self._read()) is not None:
            if data == b"":
                reports.append(self._lost())
            reports.extend(self._parsed(data))
        return reports

    def wait(self, timeout_s: float) -> list[AgentReport]:
        """Reports as soon as there are any; [] when the time is over, or at once when no more can come."""
        until_m = time.monotonic() + timeout_s
        while not self._ended:
            reports = self.poll()
            left_s = until_m - time.monotonic()
            if reports or left_s <= 0:
                return reports
            select.select([self._reports], [], [], left_s)
        return []

    def stacks(self) -> None:
        """Ask for the stacks of every Python process of the run; a `stacks` report says when they lie in attempt-N/stacks."""
        self._tell(b"stacks\n")

    def stop(self) -> None:
        """Ask for TERM now and KILL when the order's `term_s` are over."""
        self._tell(b"stop\n")

    def kill(self) -> None:
        """Ask for KILL at once."""
        self._tell(b"kill\n")

    def close(self) -> list[AgentReport]:
        """Let go of the agent: what still runs is killed. The reports that came meanwhile."""
        with contextlib.suppress(OSError):
            self._control.close()
        until_m = time.monotonic() + AGENT_ENDS_WITHIN_S
        reports: list[AgentReport] = []
        while not self._ended and time.monotonic() < until_m:
            reports += self.wait(until_m - time.monotonic())
        if not self._ended:
            self._process.kill()
            reports.append(self._lost())
        self._reports.close()
        self._collect()
        adopt_orphans(False)
        return reports

    def nodes(self) -> tuple[NodeRecord, ...]:
        """None: this is a run on one machine."""
        return ()

    def _collect(self) -> None:
        """Wait for the process itself, but not for ever: one with a thread in a call the kernel cannot interrupt cannot end."""
        end_within(self._process, LEAVE_PATIENCE_S, LEAVE_PATIENCE_S)

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _tell(self, line: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._control.write(line)
            # An agent that somebody suspended would hear it only when it is let go on.
            self._process.send_signal(signal.SIGCONT)

    def _read(self) -> bytes | None:
        """Bytes of reports, b"" at the end of the agent, None when there is nothing now."""
        try:
            return os.read(self._reports.fileno(), PIPE_BYTES)
        except BlockingIOError:
            return None

    def _remember_children(self) -> None:
        """Processes that the harness itself started: its children while the agent lives, and adopts what there is to adopt.

        A dying agent's come to us a moment before it counts as dead: those seen count once it has outlived the look.
        """
        now_m = time.monotonic()
        if now_m - self._seen_m < OUTLIVED_S or self._process.poll() is not None:
            return
        self._own_children |= self._seen_children
        self._seen_children, self._seen_m = children(), now_m

    def _parsed(self, data: bytes) -> list[AgentReport]:
        *lines, self._pending = (self._pending + data).split(b"\n")
        reports = [report for line in lines if (report := _report(line)) is not None]
        for report in reports:
            self._ended = self._ended or report.kind in _LAST_KINDS
            ticks = start_ticks(report.pid) if report.kind == "started" and report.pid else None
            if report.pid and ticks is not None:
                self._known[report.pid] = ticks
        return reports

    def _lost(self) -> AgentReport:
        """The agent died: do its work, and say so."""
        self._ended = True
        self._collect()
        killed = kill_orphans(self._attempt.folder, self._known, lambda: children() - self._own_children)
        last_words = " / ".join(tail_lines(self._attempt.agent_log, LAST_WORDS_LINES))
        detail = f"the agent ended with {self._process.returncode} before the run was over"
        return AgentReport(kind="lost", t=time.time(), killed=len(killed), detail=f"{detail}: {last_words}" if last_words else detail)


def _report(line: bytes) -> AgentReport | None:
    """None for a line that is no report: something an extension printed into the agent's standard output."""
    try:
        return from_json(AgentReport, json.loads(line))
    except ValueError:
        return None
