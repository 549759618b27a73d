"""Signs of life from a thread. In: where the loop stands. Out: heartbeat_rank{r}.jsonl, and the events' buffer emptied on the way.

A line at the start, one as soon as the first step has ended, one when a halt is asked for, one every `every_s`, one at the end.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from seatrial.probe.event_lines import StepRecord
from seatrial.probe.identity import Identity
from seatrial.probe.line_file import LineFile
from seatrial.records.events import HEARTBEAT_FIELDS

TICK_S = 0.5
LONGEST_JOIN_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where the loop is at one moment."""

    phase: str
    newest: Sequence[StepRecord] = ()
    """The steps that ended last, in order."""
    remark: str = ""

    @property
    def last(self) -> StepRecord | None:
        """The last ended step; None before the first has ended."""
        return self.newest[-1] if self.newest else None


class Heart:
    """The thread and its file."""

    def __init__(
        self,
        file: LineFile,
        identity: Identity,
        *,
        standing: Callable[[], Standing],
        on_tick: Callable[[], None],
        every_s: float | None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._identity = identity
        self._standing = standing
        self._on_tick = on_tick
        self._every_s = every_s
        self._monotonic = monotonic
        self._wall = wall
        self._next_s = 0.0
        self._told_first_step = False
        self._ending = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seatrial-heartbeat", daemon=True)

    def start(self) -> None:
        self.beat("boot")
        if self._every_s is not None:
            self._thread.start()

    def wake(self) -> None:
        """Ask for a tick now."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; the last line is the caller's to write."""
        self._ending = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(LONGEST_JOIN_S)

    def tick(self) -> None:
        """One turn of the thread."""
        self._on_tick()
        standing = self._standing()
        if standing.newest and not self._told_first_step:
            self.beat("step_end")
        elif self._monotonic() >= self._next_s:
            self.beat("beat")

    def beat(self, msg: str) -> None:
        """Write one line now."""
        standing = self._standing()
        self._told_first_step = bool(standing.newest)
        self._next_s = self._monotonic() + (self._every_s or 0.0)
        self._file.write([heartbeat_line(self._identity, standing, msg, self._wall())])

    def _run(self) -> None:
        pause_s = min(TICK_S, self._every_s or TICK_S)
        while not self._ending:
            self._wake.wait(pause_s)
            self._wake.clear()
            if not self._ending:
                self.tick()


def heartbeat_line(identity: Identity, standing: Standing, msg: str, ts: float) -> str:
    """One line in the schema of records.events.HEARTBEAT_FIELDS."""
    iso = datetime.fromtimestamp(ts, UTC).isoformat(timespec="milliseconds")
    told = f"{msg}; {standing.remark}" if standing.remark else msg
    last = standing.last
    values = (
        round(ts, 3),
        iso,
        identity.pid,
        identity.rank,
        last.step if last else None,
        told,
        standing.phase,
        identity.attempt,
        identity.host,
        round(last.t, 3) if last else None,
        round(median(record.iter_ms for record in standing.newest), 3) if last else None,
        round(last.paused_s, 3) if last else None,
    )
    return json.dumps(dict(zip(HEARTBEAT_FIELDS, values, strict=True)), separators=(",", ":"))
