"""One attempt from start to nothing left: the loop that reads output, obeys the harness and ends what must end.

    start ──► running ──► launcher over: `exited` ──► what is left gets TERM, then KILL ──► no descendant: `gone`

Two times drive every end: `term_at` and `kill_at`. Stopping, a failed rank, a finished launcher and a lost harness differ only in how
they set them. All times are of a clock that stands still while the agent is suspended.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from types import FrameType

import psutil

from seatrial.agent.harness import Harness
from seatrial.agent.harness_pipe import HarnessPipe
from seatrial.agent.output import Output
from seatrial.agent.processes import Started, start_all, start_failure
from seatrial.agent.reports import flush_reports, note, report, report_to
from seatrial.agent.sampling import Sampling
from seatrial.agent.shared_memory import remove_left_behind
from seatrial.agent.stacks import Stacks
from seatrial.agent.tree import adopt_all_orphans, descendants, end_all, kill_children, reap, resume, send
from seatrial.line.awake_clock import AwakeClock
from seatrial.machine.oom_kills import OomKills
from seatrial.records.command import AFTER_EFFECT_CODES, AGENT_GOT_TERM, AgentOrder

# How soon the loop looks again: while something is due by the clock, and while nothing is.
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

# Rank files before pipes, so that a rank's last words stand before the launcher's summary of them; orders last.
_FILES, _PIPES, _ORDERS = 0, 1, 2


class Supervisor:
    """Carries out one order."""

    def __init__(
        self,
        order: AgentOrder,
        caller: Mapping[str, str] = os.environ,
        oom_kills: OomKills | None = None,
        harness: Harness | None = None,
        clock: AwakeClock | None = None,
    ) -> None:
        self._harness = harness or HarnessPipe()
        report_to(self._harness)
        self._oom_kills = oom_kills or OomKills()
        self._order, self._caller = order, caller
        self._output = Output(order)
        self._selector = selectors.DefaultSelector()
        self._orders: int | None = None
        self._alone = False
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
        self._sampling = Sampling()
        self._stacks = Stacks(order)
        self._clock = clock or AwakeClock()

    @property
    def stuck(self) -> bool:
        """Whether a thread hangs in a call that may never return."""
        return self._sampling.stuck

    def run(self) -> None:
        """Everything, until no descendant is left."""
        adopt_all_orphans()
        self._listen()
        try:
            detail = self._start()
            # Threads from here on and not before: a child forked while another thread holds a lock may wait for it for ever.
            self._harness.started(self._clock.now())
            if not detail:
                self._sampling.start(self._order, self._caller)
            # What came right behind the order is read already: nothing would wake the loop for it.
            self._obey(self._clock.now())
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
        # What cannot be waited for (a file, /dev/null) is taken from each turn all the same, and says itself that it is no harness.
        with contextlib.suppress(OSError, ValueError):
            handle = self._harness.fileno()
            self._register(handle, _ORDERS, _nothing)
            self._orders = handle

    def _start(self) -> str:
        """Start every process; the reason when one could not be."""
        if (events := self._output.events) is not None:
            self._register(events, _FILES, self._output.on_events)
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
            note(f"was suspended for {slept_s:.0f} s, or waited as long for a disk")
        for key, _ in ready:
            key.data[1]()
        self._obey(self._clock.now())
        self._collect()
        now = self._clock.now()
        self._look_round(now)
        self._stacks.look(now)
        self._act(now)
        flush_reports()

    def _look_round(self, now: float) -> None:
        """What is done by the clock."""
        if now >= self._looked_at + (SHORTEST_TURN_S if self._output.by_clock else LONGEST_TURN_S):
            self._looked_at = now
            self._output.look()

    def _turn_s(self) -> float:
        if self._output.by_clock or self._stacks.busy or self._killing_since < math.inf:
            return SHORTEST_TURN_S
        next_act = self._kill_at if self._term_sent else min(self._term_at, self._kill_at)
        return min(LONGEST_TURN_S, max(SHORTEST_TURN_S, next_act - self._clock.now()))

    def _on_output(self, started: Started) -> None:
        pipe = started.pipe
        self._output.take(started)
        if started.pipe is None and pipe is not None:
            self._selector.unregister(pipe)

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._stopped_by = self._stopped_by or AGENT_GOT_TERM
            self._stop()

    def _obey(self, now: float) -> None:
        """What the harness has said since the last turn, and whether it is still there to say more."""
        words = self._harness.take(now)
        gone = self._harness.gone(now)
        if self._orders is not None and self._harness.fileno() < 0:
            self._selector.unregister(self._orders)
            self._orders = None
        for word in words:
            if word == "stop":
                self._stop()
            elif word == "kill":
                self._kill_at = self._clock.now()
            elif word == "stacks":
                self._take_stacks()
            else:
                note(f"control line '{word}' is not known: expected stacks, stop or kill")
        if gone and not self._alone:
            self._alone = True
            note(f"{gone}: killing everything")
            self._kill_at = now

    def _take_stacks(self) -> None:
        if self._over:
            report("stacks", detail="the run was over already")
        else:
            self._stacks.ask(self._clock.now())

    def _stop(self) -> None:
        now = self._clock.now()
        self._term_at = min(self._term_at, now)
        self._kill_at = min(self._kill_at, now + self._order.term_s)

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
            elif code not in (0, *AFTER_EFFECT_CODES) and self._returncode in AFTER_EFFECT_CODES:
                self._returncode = code

    def _on_failed_rank(self) -> None:
        if len(self._started) > 1 and self._term_at == math.inf:
            self._term_at = self._clock.now() + FAILED_RANK_GRACE_S
            self._kill_at = min(self._kill_at, self._term_at + self._order.term_s)

    def _act(self, now: float) -> None:
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
        self._output.drain(self._started, LONGEST_DRAIN_S)
        if self._returncode is None and all(started.returncode == 0 for started in self._started):
            self._returncode = 0
        report("exited", returncode=self._returncode, detail=detail or self._stopped_by, oom_kills=self._oom_kills.words())
        self._sampling.stop()
        now, self._over, self._term_sent = self._clock.now(), True, False
        stopping = self._term_at <= now
        if not stopping:
            self._term_at = min(self._term_at, now + LEFTOVER_GRACE_S)
            self._kill_at = min(self._kill_at, self._term_at + min(LEFTOVER_TERM_S, self._order.term_s))

    def _finish(self) -> None:
        self._output.drain(self._started, LONGEST_LAST_DRAIN_S)
        self._output.finish(self._started)
        self._sampling.finish()
        if not self._children_left:
            remove_left_behind(self._order)
        report("gone", killed=len(self._killed), detail=self._closing_words())
        flush_reports(REPORT_PATIENCE_S)

    def _closing_words(self) -> str:
        words = self._output.lacks()
        if self._children_left:
            pids = ", ".join(str(process.pid) for process in descendants())
            words.insert(0, f"processes that do not die: {pids} (in a call the kernel cannot interrupt, or another user's)")
        return "; ".join(words)

    def _register(self, handle: int, order: int, act: Callable[[], None]) -> None:
        self._selector.register(handle, selectors.EVENT_READ, (order, act))


def _wake(number: int, frame: FrameType | None) -> None:
    """The wake-up pipe has the signal's number; nothing is done here."""


def _nothing() -> None:
    """What the harness says is taken once a turn, whatever woke the loop."""
