"""Stacks of every Python process of a run, on request, while the loop goes on.

    stacks = Stacks(order); stacks.ask(now) … stacks.look(now) each turn … report `stacks`

Three ways, from the gentlest on: ranks that named the signal write their own stacks (stacks/rank<r>.txt); py-spy looks at all others,
and at ranks that wrote none (stacks/pid<P>.txt); ranks of which neither gave anything get ABRT where they have Python's fault handler,
which ends them with a trace in launcher.log. Every request is answered by one report within LONGEST_S.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from seatrial.agent.python_processes import PythonProcess, catches, python_processes, signal_number
from seatrial.agent.reports import note, report
from seatrial.agent.spies import Spies, find_py_spy, hold_words
from seatrial.agent.tree import descendants
from seatrial.disk.sizes import size_bytes
from seatrial.paths import AttemptPaths
from seatrial.records.command import AgentOrder
from seatrial.wording import named

# Somebody waits for the report before he ends the run.
LONGEST_S = 20.0
# From here on py-spy leaves out native frames, so that all processes get their turn.
HURRY_AFTER_S = 10.0
# A rank writes its stacks in milliseconds, if its main thread can take the signal at all.
SIGNAL_PATIENCE_S = 3.0
# A file that has not grown for so long is whole.
QUIET_S = 0.3
# For a trace to be written, read from the pipe and put into the log.
ABORT_PATIENCE_S = 1.0
# A signal waits at a process in such a state until somebody lets it go on.
HELD = "Tt"
# A job of a thousand processes must not make a report of a thousand names.
MOST_NAMED = 8


@dataclass
class Asked:
    """A rank that got the signal, and its file as it was last seen."""

    process: PythonProcess
    path: Path
    size_before: int
    size: int
    changed_at: float
    until: float

    def answered(self, now: float) -> bool | None:
        """Whether its stacks are there; None while that is open."""
        size = size_bytes(self.path)
        if size != self.size:
            self.size, self.changed_at = size, now
        if size > self.size_before and now - self.changed_at >= QUIET_S:
            return True
        return None if now < self.until else size > self.size_before


class Stacks:
    """At most one request at a time; one made meanwhile is answered by the same report."""

    def __init__(self, order: AgentOrder, pids: Callable[[], Iterable[int]] | None = None, program: str | None = None) -> None:
        self._attempt, self._own = AttemptPaths(Path(order.attempt_folder)), AttemptPaths(Path(order.writes_to))
        # Hosts of one name have processes of one number; what a rank was given as its number then tells them apart.
        self._by_variable = order.call is not None
        self._signal = order.stack_signal
        self._pids = pids or (lambda: [process.pid for process in descendants()])
        self._program = program or find_py_spy()
        self._spies = Spies(self._attempt, self._program, self._own)
        self._processes: list[PythonProcess] = []
        self._asked: list[Asked] = []
        self._signalled: list[PythonProcess] = []
        self._aborted: list[PythonProcess] = []
        self._began = 0.0
        self._abort_until: float | None = None
        self._cut_short = ""
        self.busy = False

    @property
    def helper_pids(self) -> set[int]:
        """Children of the agent that are no part of the run."""
        return self._spies.pids

    def ask(self, now: float) -> None:
        """Begin; the report comes when all is done."""
        if self.busy or self._spies.busy:
            return
        self._spies = Spies(self._attempt, self._program, self._own)
        self._signalled, self._aborted, self._abort_until = [], [], None
        self._began, self._cut_short, self.busy = now, "", True
        self._processes = python_processes(self._pids(), self._attempt, by_variable=self._by_variable)
        self._asked = [asked for process in self._processes if (asked := self._signal_to(process, now)) is not None]
        by_signal = {asked.process.pid for asked in self._asked}
        for process in self._processes:
            if process.pid not in by_signal:
                self._spies.ask(process)

    def look(self, now: float) -> None:
        """Go on as far as one can without waiting."""
        if not self.busy:
            return
        for asked in list(self._asked):
            self._hear(asked, now)
        if now - self._began >= LONGEST_S:
            self._spies.give_up("there was no time left for it")
        elif now - self._began >= HURRY_AFTER_S:
            self._spies.hurry()
        self._spies.look(now)
        if not self._asked and not self._spies.busy and not self._aborting(now):
            self._finish()

    def ended(self, pid: int, code: int) -> bool:
        """Whether a child that ended was one of ours."""
        return self._spies.ended(pid, code)

    def cancel(self, why: str) -> None:
        """The processes are about to go: say what there is."""
        self._spies.give_up(why)
        if self.busy:
            self._asked, self._cut_short = [], why
            self._finish()

    def _signal_to(self, process: PythonProcess, now: float) -> Asked | None:
        """Only to a rank that named the signal and has a handler for it: any other would die of it."""
        number = signal_number(self._signal)
        if number is None or process.rank is None or process.signal != self._signal or process.state in HELD:
            return None
        path = self._attempt.rank_stack(process.rank)
        before = size_bytes(path)
        if not catches(process.pid, number) or not _sent(process.pid, number):
            return None
        return Asked(process, path, before, before, now, now + SIGNAL_PATIENCE_S)

    def _hear(self, asked: Asked, now: float) -> None:
        answered = asked.answered(now)
        if answered is None:
            return
        self._asked.remove(asked)
        if answered:
            self._signalled.append(asked.process)
        else:
            self._spies.ask(asked.process)

    def _aborting(self, now: float) -> bool:
        """The last way, and the wait for its traces."""
        if self._abort_until is None:
            given = {process.pid for process in (*self._signalled, *self._spies.taken)}
            ranks = [process for process in self._processes if process.rank is not None] or self._processes
            silent = [process for process in ranks if process.pid not in given]
            self._aborted = [process for process in silent if catches(process.pid, signal.SIGABRT) and _sent(process.pid, signal.SIGABRT)]
            self._abort_until = now + (ABORT_PATIENCE_S if self._aborted else 0.0)
        return now < self._abort_until

    def _finish(self) -> None:
        self.busy = False
        detail = self._words()
        note(f"stacks: {detail}")
        report("stacks", detail=detail)

    def _words(self) -> str:
        """How the stacks were taken, and what could not be."""
        words = []
        if self._signalled:
            words.append(f"by signal: {_named(self._signalled)}")
        if self._spies.taken:
            words.append(f"by py-spy: {_named(self._spies.taken)}")
        words += [f"{process.name} was {hold_words(process.state)}" for process in self._processes if hold_words(process.state)]
        for reason in dict.fromkeys(self._spies.refused.values()):
            refused = [process for process, why in self._spies.refused.items() if why == reason]
            words.append(f"not {_named(refused)} ({reason})")
        if self._aborted:
            words.append(f"ABRT sent to {_named(self._aborted)}, whose traces stand in launcher.log")
        if self._cut_short:
            words.append(self._cut_short)
        return "; ".join(words) or "no Python process was running"


def _named(processes: list[PythonProcess]) -> str:
    ordered = sorted(processes, key=lambda process: (process.rank is None, process.rank or 0, process.pid))
    return named([process.name for process in ordered], MOST_NAMED)


def _sent(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
