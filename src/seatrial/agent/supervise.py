"""One attempt from its start until none of its processes is left: the loop that reads output, runs the harness's commands and ends
processes.

    start ──► running ──► launcher over: `exited` ──► what is left gets TERM, then KILL ──► no descendant: `gone`

In: an order and the harness that gave it. Out: reports, and the exit code of the agent. Two times, `term_at` and `kill_at`, control every
end: a stop, a failed rank, a finished launcher and a lost harness only set them differently. The clock stops while the agent is suspended.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING

import psutil

from seatrial.agent.harness import Harness, HarnessPipe, flush_reports, note, send_report, set_report_target
from seatrial.agent.output import Output, StartedProcess
from seatrial.agent.processes import (
    RankObserver,
    become_subreaper,
    describe_start_failure,
    kill_all,
    kill_children,
    list_descendants,
    reap,
    resume_stopped,
    send_signal,
    start_processes,
)
from seatrial.agent.stacks import StackCollector
from seatrial.core.timeouts import SuspendAwareClock
from seatrial.machine.orphans import find_abandoned_segments
from seatrial.machine.processes import OomKillCounter
from seatrial.records.launch import AFTER_EFFECT_CODES, AGENT_GOT_TERM, FAILED_GRACE_S, AgentOrder

if TYPE_CHECKING:
    from seatrial.machine.run_telemetry import Telemetry

# The shortest and longest turn of the loop.
MIN_TURN_S = 0.2
MAX_TURN_S = 1.0
# Resource trackers and loader workers end by themselves a moment after their parent.
LEFTOVER_GRACE_S = 0.5
LEFTOVER_TERM_S = 3.0
# A process in an uninterruptible call (a dead network disk, a hung driver) ignores signals; the campaign must go on.
GIVE_UP_S = 30.0
# How long a turn may kill processes that keep forking, before output and commands get their turn.
KILL_TURN_S = 0.1
# For reading output after the end of the launcher, and of all processes: an endless stream must not delay the end.
DRAIN_TIMEOUT_S = 1.0
LAST_DRAIN_TIMEOUT_S = 5.0
# For a suspended harness; what fits into the pipe reaches it in any case.
REPORT_TIMEOUT_S = 30.0

# Rank files before pipes, so that a rank's last lines come before the launcher's summary of them; commands last.
_FILES, _PIPES, _COMMANDS = 0, 1, 2


class Supervisor:
    """Carries out one order."""

    def __init__(
        self,
        order: AgentOrder,
        base_env: Mapping[str, str] = os.environ,
        oom_kills: OomKillCounter | None = None,
        harness: Harness | None = None,
        clock: SuspendAwareClock | None = None,
    ) -> None:
        self._harness = harness or HarnessPipe()
        set_report_target(self._harness)
        self._oom_kills = oom_kills or OomKillCounter()
        self._order, self._base_env = order, base_env
        self._output = Output(order)
        self._selector = selectors.DefaultSelector()
        self._commands_fd: int | None = None
        self._harness_gone = False
        self._started: list[StartedProcess] = []
        self._returncode: int | None = None
        self._stopped_by = ""
        self._over = False
        self._children_left = True
        self._term_at = self._kill_at = math.inf
        self._term_sent = False
        self._killing_since = math.inf
        self._polled_at = -math.inf
        self._killed: set[int] = set()
        self._telemetry: Telemetry | None = None
        self._stacks = StackCollector(order)
        self._ranks = RankObserver(order, base_env)
        self._clock = clock or SuspendAwareClock()

    @property
    def stuck(self) -> bool:
        """Whether a thread hangs in a call that may never return."""
        return self._telemetry is not None and self._telemetry.stuck

    def run(self) -> None:
        """Everything, until no descendant is left."""
        become_subreaper()
        self._listen()
        try:
            detail = self._start()
            # Threads only from here on: a child forked while another thread holds a lock may deadlock.
            self._harness.started(self._clock.now())
            if not detail:
                self._start_telemetry()
            # Commands that arrived with the order are read already, so they would not wake the loop.
            self._obey(self._clock.now())
            while any(started.returncode is None for started in self._started) and not self._given_up():
                self._turn()
            self._launcher_over(detail)
            while self._children_left and not self._given_up():
                self._turn()
            self._finish()
        finally:
            if self._children_left and not self._given_up():
                kill_all()

    def _listen(self) -> None:
        """Signals and commands wake the loop. Handlers, not SIG_IGN: ignored signals would stay ignored in the ranks."""
        read_end, write_end = os.pipe()
        for end in (read_end, write_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _wake)
        self._register(read_end, _COMMANDS, lambda: self._on_signals(os.read(read_end, 4096)))
        # A file or /dev/null cannot be waited for; it is read each turn anyway, and found not to be a harness.
        with contextlib.suppress(OSError, ValueError):
            fd = self._harness.fileno()
            # Commands are read once a turn, whatever woke the loop.
            self._register(fd, _COMMANDS, lambda: None)
            self._commands_fd = fd

    def _start(self) -> str:
        """Start every process; returns the reason if one could not be started."""
        if (events := self._output.events_fd) is not None:
            self._register(events, _FILES, self._output.on_events)
        try:
            for started in start_processes(self._order, self._base_env):
                self._started.append(started)
                if started.pipe is not None:
                    self._register(started.pipe, _PIPES, functools.partial(self._on_output, started))
                send_report("started", pid=started.pid)
        except OSError as error:
            self._returncode, detail = describe_start_failure(self._order, error)
            note(detail)
            self._kill_at = self._clock.now()
            return detail
        return ""

    def _start_telemetry(self) -> None:
        """Start the samplers; the run continues without them if that fails."""
        try:
            # Imported here, so that the start of the processes does not wait for it.
            from seatrial.machine.run_telemetry import start_telemetry

            self._telemetry = start_telemetry(self._order, self._base_env)
        except Exception as error:
            note(f"telemetry did not start ({type(error).__name__}: {error}); the run continues without it")

    def _turn(self) -> None:
        """Wait for an event, handle it, then do what is due."""
        turn_s = self._turn_s()
        ready = sorted(self._selector.select(turn_s), key=lambda pair: int(pair[0].data[0]))
        if slept_s := self._clock.tick(turn_s):
            note(f"did not run for {slept_s:.0f} s: suspended, or blocked on a disk")
        for key, _ in ready:
            key.data[1]()
        self._obey(self._clock.now())
        self._reap()
        now = self._clock.now()
        if now >= self._polled_at + (MIN_TURN_S if self._output.needs_polling else MAX_TURN_S):
            self._polled_at = now
            self._output.poll()
        self._stacks.advance(now)
        if not self._over:
            self._ranks.look(now)
        self._act(now)
        flush_reports()

    def _turn_s(self) -> float:
        if self._output.needs_polling or self._stacks.busy or self._killing_since < math.inf:
            return MIN_TURN_S
        next_act = self._kill_at if self._term_sent else min(self._term_at, self._kill_at)
        next_act = next_act if self._over else min(next_act, self._ranks.look_at)
        return min(MAX_TURN_S, max(MIN_TURN_S, next_act - self._clock.now()))

    def _on_output(self, started: StartedProcess) -> None:
        pipe = started.pipe
        self._output.read(started)
        if started.pipe is None and pipe is not None:
            self._selector.unregister(pipe)

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._stopped_by = self._stopped_by or AGENT_GOT_TERM
            self._stop()

    def _obey(self, now: float) -> None:
        """Run the commands that the harness has sent since the last turn; kill everything if it is gone."""
        commands = self._harness.receive(now)
        gone = self._harness.why_gone(now)
        if self._commands_fd is not None and self._harness.fileno() < 0:
            self._selector.unregister(self._commands_fd)
            self._commands_fd = None
        for command in commands:
            if command == "stop":
                self._stop()
            elif command == "kill":
                self._kill_at = self._clock.now()
            elif command == "stacks" and self._over:
                send_report("stacks", detail="the run had already ended")
            elif command == "stacks":
                self._stacks.request(self._clock.now())
            else:
                note(f"unknown command '{command}': expected stacks, stop or kill")
        if gone and not self._harness_gone:
            self._harness_gone = True
            note(f"{gone}: killing everything")
            self._kill_at = now

    def _stop(self) -> None:
        now = self._clock.now()
        self._term_at = min(self._term_at, now)
        self._kill_at = min(self._kill_at, now + self._order.term_s)

    def _reap(self) -> None:
        """Record exit codes; the first nonzero one is the run's, unless a later one is better evidence."""
        ended, self._children_left = reap()
        for pid, status in ended.items():
            self._stacks.on_exit(pid, status)
        for started in self._started:
            code = ended.get(started.pid)
            if code is None:
                continue
            started.ended(code)
            if code != 0 and not self._returncode:
                self._returncode = code
                self._on_failure()
            elif code not in (0, *AFTER_EFFECT_CODES) and self._returncode in AFTER_EFFECT_CODES:
                self._returncode = code

    def _on_failure(self) -> None:
        """One of several ranks failed: the others are ended after a grace period."""
        if len(self._started) > 1 and self._term_at == math.inf:
            self._term_at = self._clock.now() + FAILED_GRACE_S
            self._kill_at = min(self._kill_at, self._term_at + self._order.term_s)

    def _act(self, now: float) -> None:
        if now >= self._kill_at:
            self._killing_since = min(self._killing_since, now)
            self._kill()
        elif now >= self._term_at and not self._term_sent:
            self._term_sent = True
            reached = send_signal(self._term_targets(), signal.SIGTERM)
            resume_stopped(list_descendants())
            self._killed |= reached if self._over else set()

    def _kill(self) -> None:
        """KILL all, and processes forked meanwhile, which become our children when their parents die."""
        self._stacks.cancel("the run was killed")
        until_m = time.monotonic() + KILL_TURN_S
        new = send_signal(list_descendants(), signal.SIGKILL)
        while new and time.monotonic() < until_m:
            self._killed |= new - self._stacks.helper_pids
            self._reap()
            new = kill_children() - self._killed - self._stacks.helper_pids

    def _term_targets(self) -> list[psutil.Process]:
        """The launcher alone while it lives (it ends its ranks in order), then all processes."""
        if self._over:
            return list_descendants()
        own = {started.pid for started in self._started if started.returncode is None}
        return [process for process in list_descendants() if process.pid in own]

    def _given_up(self) -> bool:
        return self._clock.now() - self._killing_since > GIVE_UP_S

    def _launcher_over(self, detail: str) -> None:
        """Report the launcher's end, and set when remaining processes get TERM and KILL."""
        self._reap()
        self._stacks.cancel("the run ended by itself")
        self._ranks.write()
        self._output.drain(self._started, DRAIN_TIMEOUT_S)
        if self._returncode is None and all(started.returncode == 0 for started in self._started):
            self._returncode = 0
        send_report("exited", returncode=self._returncode, detail=detail or self._stopped_by, oom_kills=self._oom_kills.describe_increase())
        if self._telemetry is not None:
            self._telemetry.stop()
        now, self._over, self._term_sent = self._clock.now(), True, False
        if now < self._term_at:
            self._term_at = min(self._term_at, now + LEFTOVER_GRACE_S)
            self._kill_at = min(self._kill_at, self._term_at + min(LEFTOVER_TERM_S, self._order.term_s))

    def _finish(self) -> None:
        self._output.drain(self._started, LAST_DRAIN_TIMEOUT_S)
        self._output.finish(self._started)
        try:
            if self._telemetry is not None:
                self._telemetry.finish()
        except Exception as error:
            note(f"telemetry.json was not written ({type(error).__name__}: {error}); the run's figures are not affected")
        if not self._children_left:
            remove_abandoned_segments(self._order)
        send_report("gone", killed=len(self._killed), detail=self._describe_end())
        flush_reports(REPORT_TIMEOUT_S)

    def _describe_end(self) -> str:
        parts = self._output.describe_losses()
        if self._children_left:
            pids = ", ".join(str(process.pid) for process in list_descendants())
            parts.insert(0, f"processes that survived SIGKILL: {pids} (in a call the kernel cannot interrupt, or another user's)")
        return "; ".join(parts)

    def _register(self, fd: int, order: int, act: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, (order, act))


def _wake(number: int, frame: FrameType | None) -> None:
    """The wake-up pipe gets the signal's number; nothing is done here."""


def run_order(order: AgentOrder, base_env: Mapping[str, str], harness: Harness, clock: SuspendAwareClock | None = None) -> int:
    """Carry out one order to its end; the exit code of the agent. `clock` is the one by which the harness was last heard."""
    supervisor: Supervisor | None = None
    code = 0
    try:
        supervisor = Supervisor(order, base_env, harness=harness, clock=clock)
        supervisor.run()
    except Exception as error:
        # Printed here, since os._exit may follow.
        traceback.print_exc()
        harness.failed(f"{type(error).__name__}: {error}")
        code = 1
    harness.close()
    if supervisor is not None and supervisor.stuck:
        # A normal exit would wait for locks that the hung call holds; everything is written already.
        os._exit(code)
    return code


def remove_abandoned_segments(order: AgentOrder) -> None:
    """Remove the shared memory that the run left, once none of its processes lives; nothing where it is unknown what was there before."""
    for path in () if order.shared_memory is None else find_abandoned_segments(order.shared_memory):
        try:
            path.unlink()
            note(f"removed {path}, shared memory that the run left behind")
        except OSError as error:
            note(f"{path}, shared memory that the run left behind, could not be removed ({error.strerror}); remove it by hand")
