"""One attempt from start to nothing left: the loop that reads output, obeys the harness and ends what must end.

    start ──► running ──► launcher over: `exited` ──► what is left gets TERM, then KILL ──► no descendant: `gone`

Two times drive every end: `term_at` and `kill_at`. Stopping, a failed rank, a finished launcher and a lost harness differ only in how
they set them. All times are of a clock that stands still while the agent is suspended.
"""

from __future__ import annotations

import functools
import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import psutil

from seatrial.agent.clock import AwakeClock
from seatrial.agent.merge import MergedLog
from seatrial.agent.processes import Started, start_all, start_failure
from seatrial.agent.rank_files import RankFiles
from seatrial.agent.reports import flush_reports, note, report
from seatrial.agent.shared_memory import remove_left_behind
from seatrial.agent.stacks import Stacks
from seatrial.agent.tree import adopt_orphans, descendants, end_all, kill_children, reap, resume, send
from seatrial.machine.oom_kills import OomKills
from seatrial.paths import AttemptPaths
from seatrial.records.command import AGENT_GOT_TERM, AgentOrder

if TYPE_CHECKING:
    from seatrial.observe.telemetry import Telemetry

SHORTEST_TURN_S = 0.2
LONGEST_TURN_S = 1.0
# Other ranks often end by themselves, with a better message than ours, when one has failed.
FAILED_RANK_GRACE_S = 5.0
# Resource trackers and loader workers end a moment after their parent, by themselves.
LEFTOVER_GRACE_S = 0.5
LEFTOVER_TERM_S = 3.0
# A process in an uninterruptible call (a dead network disk, a hung driver) takes no signal; the campaign must go on.
GIVE_UP_S = 30.0
# How long a turn may chase processes that fork anew as they are killed, before output and orders get theirs.
CHASE_S = 0.1
# What a stream may add to the log after the launcher's end, and after everybody's: an endless one must not hold up the end.
LONGEST_DRAIN_S = 1.0
LONGEST_LAST_DRAIN_S = 5.0
# For a harness that is suspended; what fits into the pipe reaches it in any case.
REPORT_PATIENCE_S = 30.0

# How ranks end that only lost another one, and may be collected before it: a code of another kind tells more.
COMPLAINTS = (1, -15)

_STDIN = 0
# Rank files before pipes, so that a rank's last words stand before the launcher's summary of them; orders last.
_FILES, _PIPES, _ORDERS = 0, 1, 2


class Supervisor:
    """Carries out one order."""

    def __init__(self, order: AgentOrder, caller: Mapping[str, str] = os.environ, oom_kills: OomKills | None = None) -> None:
        attempt = AttemptPaths(Path(order.attempt_folder))
        self._oom_kills = oom_kills or OomKills()
        self._order, self._caller = order, caller
        self._log = MergedLog(attempt.launcher_log, attempt.arrivals)
        self._rank_files = RankFiles(Path(order.rank_logs), self._log.append) if order.rank_logs else None
        self._selector = selectors.DefaultSelector()
        self._harness_pid = os.getppid()
        self._started: list[Started] = []
        self._returncode: int | None = None
        self._stopped_by = ""
        self._over = False
        self._children_left = True
        self._term_at = self._kill_at = math.inf
        self._term_sent = False
        self._killing_since = math.inf
        self._looked_at = -math.inf
        self._killed: set[int] = set()
        self._telemetry: Telemetry | None = None
        self._unmerged_bytes = 0
        self._stacks = Stacks(order)
        self._clock = AwakeClock()

    @property
    def stuck(self) -> bool:
        """Whether a thread hangs in a call that may never return."""
        return self._telemetry is not None and self._telemetry.stuck

    def run(self) -> None:
        """Everything, until no descendant is left."""
        adopt_orphans()
        self._listen()
        try:
            detail = self._start()
            if not detail:
                # Not before: a child forked while another thread holds a lock may wait for it for ever.
                self._start_telemetry()
            while self._running():
                self._turn()
            self._launcher_over(detail)
            while self._children_left and not self._given_up():
                self._turn()
            self._finish()
        finally:
            if self._children_left and not self._given_up():
                end_all()

    def _listen(self) -> None:
        """Signals and control lines wake the loop. Handlers, not SIG_IGN: ignored signals would stay ignored in the ranks."""
        read_end, write_end = os.pipe()
        for handle in (read_end, write_end):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _wake)
        self._register(read_end, _ORDERS, lambda: self._on_signals(os.read(read_end, 4096)))
        try:
            os.set_blocking(_STDIN, False)
            self._register(_STDIN, _ORDERS, self._on_control)
        except OSError:
            self._harness_gone("standard input is no pipe")

    def _start(self) -> str:
        """Start every process; the reason when one could not be."""
        if self._rank_files and self._rank_files.inotify:
            self._register(self._rank_files.inotify.fileno(), _FILES, self._rank_files.on_change)
        try:
            for started in start_all(self._order, self._caller):
                self._started.append(started)
                if started.pipe is not None:
                    self._register(started.pipe, _PIPES, functools.partial(self._on_output, started))
                report("started", pid=started.pid)
        except OSError as error:
            self._returncode, detail = start_failure(self._order, error)
            note(detail)
            self._kill_at = self._clock.now()
            return detail
        return ""

    def _running(self) -> bool:
        return any(started.returncode is None for started in self._started) and not self._given_up()

    def _turn(self) -> None:
        """Wait for something to happen, take it in, act on the time."""
        turn_s = self._turn_s()
        ready = sorted(self._selector.select(turn_s), key=lambda pair: int(pair[0].data[0]))
        if slept_s := self._clock.tick(turn_s):
            note(f"was suspended for {slept_s:.0f} s")
        for key, _ in ready:
            key.data[1]()
        self._collect()
        now = self._clock.now()
        self._look_round(now)
        self._stacks.look(now)
        self._act(now)
        flush_reports()

    def _look_round(self, now: float) -> None:
        """What is done by the clock: the stamp of the last bytes, and rank files that no event spoke of."""
        by_clock = self._rank_files is not None and self._rank_files.by_clock
        if now < self._looked_at + (SHORTEST_TURN_S if by_clock else LONGEST_TURN_S):
            return
        self._looked_at = now
        self._log.stamp()
        if self._rank_files:
            self._rank_files.look()

    def _turn_s(self) -> float:
        by_clock = self._rank_files is not None and self._rank_files.by_clock
        if by_clock or self._stacks.busy or self._killing_since < math.inf:
            return SHORTEST_TURN_S
        next_act = self._kill_at if self._term_sent else min(self._term_at, self._kill_at)
        return min(LONGEST_TURN_S, max(SHORTEST_TURN_S, next_act - self._clock.now()))

    def _on_output(self, started: Started) -> None:
        pipe = started.pipe
        self._log.append(started.take())
        if started.pipe is None and pipe is not None:
            self._selector.unregister(pipe)

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._stopped_by = self._stopped_by or AGENT_GOT_TERM
            self._stop()

    def _on_control(self) -> None:
        data = os.read(_STDIN, 4096)
        if not data:
            self._selector.unregister(_STDIN)
            self._harness_gone("the control pipe was closed")
        for word in data.decode(errors="replace").split():
            if word == "stop":
                self._stop()
            elif word == "kill":
                self._kill_at = self._clock.now()
            elif word == "stacks":
                self._take_stacks()
            else:
                note(f"control line '{word}' is not known: expected stacks, stop or kill")

    def _take_stacks(self) -> None:
        if self._over:
            report("stacks", detail="the run was over already")
        else:
            self._stacks.ask(self._clock.now())

    def _stop(self) -> None:
        now = self._clock.now()
        self._term_at = min(self._term_at, now)
        self._kill_at = min(self._kill_at, now + self._order.term_s)

    def _harness_gone(self, how: str) -> None:
        note(f"{how}: killing everything")
        self._kill_at = self._clock.now()

    def _collect(self) -> None:
        """Exit codes of what ended; the first that is not zero is the run's, unless a later one tells more."""
        ended, self._children_left = reap()
        for pid, status in ended.items():
            self._stacks.ended(pid, status)
        for started in self._started:
            code = ended.get(started.pid)
            if code is None:
                continue
            started.ended(code)
            if code != 0 and not self._returncode:
                self._returncode = code
                self._on_failed_rank()
            elif code not in (0, *COMPLAINTS) and self._returncode in COMPLAINTS:
                self._returncode = code

    def _on_failed_rank(self) -> None:
        if len(self._started) > 1 and self._term_at == math.inf:
            self._term_at = self._clock.now() + FAILED_RANK_GRACE_S
            self._kill_at = min(self._kill_at, self._term_at + self._order.term_s)

    def _act(self, now: float) -> None:
        if self._kill_at == math.inf and os.getppid() != self._harness_pid:
            self._harness_gone("the harness ended")
        if now >= self._kill_at:
            self._killing_since = min(self._killing_since, now)
            self._kill()
        elif now >= self._term_at and not self._term_sent:
            self._term_sent = True
            reached = send(self._to_end(), signal.SIGTERM)
            resume(descendants())
            self._killed |= reached if self._over else set()

    def _kill(self) -> None:
        """KILL all, and chase what was forked meanwhile: new processes become our own children when their parents die."""
        self._stacks.cancel("the run was killed")
        until_m = time.monotonic() + CHASE_S
        new = send(descendants(), signal.SIGKILL)
        while new and time.monotonic() < until_m:
            self._killed |= new - self._stacks.helper_pids
            self._collect()
            new = kill_children() - self._killed - self._stacks.helper_pids

    def _to_end(self) -> list[psutil.Process]:
        """Who gets TERM: the launcher alone while it lives (it ends its ranks in order), everyone once it is over."""
        if self._over:
            return descendants()
        own = {started.pid for started in self._started if started.returncode is None}
        return [process for process in descendants() if process.pid in own]

    def _given_up(self) -> bool:
        return self._clock.now() - self._killing_since > GIVE_UP_S

    def _launcher_over(self, detail: str) -> None:
        """Say so, and give what is left its notice."""
        self._collect()
        self._stacks.cancel("the run ended by itself")
        self._drain(LONGEST_DRAIN_S)
        if self._returncode is None and all(started.returncode == 0 for started in self._started):
            self._returncode = 0
        report("exited", returncode=self._returncode, detail=detail or self._stopped_by, oom_kills=self._oom_kills.words())
        if self._telemetry:
            self._telemetry.stop()
        now, self._over, self._term_sent = self._clock.now(), True, False
        stopping = self._term_at <= now
        if not stopping:
            self._term_at = min(self._term_at, now + LEFTOVER_GRACE_S)
            self._kill_at = min(self._kill_at, self._term_at + min(LEFTOVER_TERM_S, self._order.term_s))

    def _drain(self, longest_s: float) -> None:
        """Take in what is there, for a while at most."""
        if self._rank_files:
            self._rank_files.drain(longest_s)
        for started in self._started:
            started.drain(self._log.append, longest_s)

    def _finish(self) -> None:
        self._drain(LONGEST_LAST_DRAIN_S)
        if self._rank_files:
            self._unmerged_bytes = self._rank_files.finish()
        for started in self._started:
            self._log.append(started.close())
        self._log.close()
        self._finish_telemetry()
        if not self._children_left:
            remove_left_behind(self._order)
        report("gone", killed=len(self._killed), detail=self._closing_words())
        flush_reports(REPORT_PATIENCE_S)

    def _start_telemetry(self) -> None:
        try:
            # Imported here, so that the processes do not wait for what they do not need.
            from seatrial.observe.telemetry import start_telemetry

            self._telemetry = start_telemetry(self._order, self._caller)
        except Exception as error:
            note(f"telemetry did not start ({type(error).__name__}: {error}); the run goes on without it")

    def _finish_telemetry(self) -> None:
        """Whatever goes wrong here must not cost the last report."""
        if self._telemetry is None:
            return
        try:
            self._telemetry.finish()
        except Exception as error:
            note(f"telemetry.json was not written ({type(error).__name__}: {error}); the run's figures stand without it")

    def _closing_words(self) -> str:
        words = []
        if self._children_left:
            pids = ", ".join(str(process.pid) for process in descendants())
            words.append(f"processes that do not die: {pids} (in a call the kernel cannot interrupt, or another user's)")
        if self._log.lost_bytes:
            words.append(f"launcher.log lacks {self._log.lost_bytes} bytes that could not be written")
        if self._unmerged_bytes:
            words.append(f"launcher.log lacks the last {self._unmerged_bytes} bytes of the ranks' own files, which have them")
        return "; ".join(words)

    def _register(self, handle: int, order: int, act: Callable[[], None]) -> None:
        self._selector.register(handle, selectors.EVENT_READ, (order, act))


def _wake(number: int, frame: FrameType | None) -> None:
    """The wake-up pipe has the signal's number; nothing is done here."""
