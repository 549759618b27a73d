"""Two threads read the campaign's folder, one its state and one its data; whoever asks for the page is answered from memory.

In: three ways to read (the state, whether anything changed, what the page shows). Out: the newest of each. A disk that does not answer
holds up these threads and nobody else. What goes wrong while reading is a sentence beside the last that could be read: the folder is being
written to by others, and the next look may find it whole.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

from seatrial.errors import SeatrialError
from seatrial.web.now import Now
from seatrial.web.pace import Pace
from seatrial.web.packed import Packed

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
# The kernel's lowest: what is left over by those who measure and train.
NICENESS = 19
END_PATIENCE_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One version of the page."""

    page: Callable[[], str]
    """Whole; made when somebody comes."""
    parts: Packed
    """What a page that is open needs to become this one."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """How a campaign is read."""

    now: Callable[[], Now]
    mark: Callable[[], object]
    """Another one when there is something new to be shown."""
    shown: Callable[[str], Shown]
    """What there is to be shown now, as the version of that name."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The newest of everything."""

    now: Now | None = None
    shown: Shown | None = None
    version: int = 0
    """Of what is shown: 0 while there is nothing."""
    problem: str = ""
    """Why the newest could not be had."""
    state_problem: str = ""
    """Why `now` is an older one."""


class Looker:
    """Looks for as long as the block runs, and only while somebody asks."""

    def __init__(self, source: Source, pace: Pace | None = None) -> None:
        self._source, self._pace = source, pace or Pace()
        self._seen, self._lock = Seen(), threading.Lock()
        self._mark: object = None
        self._began_m: float | None = None
        self._stopping, self._asked = threading.Event(), threading.Event()
        looks = {"state": self.look_at_state, "data": self.look_at_data}
        self._threads = [
            threading.Thread(target=self._run, args=(look,), name=f"seatrial-{name}", daemon=True) for name, look in looks.items()
        ]

    def __enter__(self) -> Looker:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        self._asked.set()
        # One that is in the middle of a large campaign, or waits for a dead disk, ends with the process.
        until_m = time.monotonic() + END_PATIENCE_S
        for thread in self._threads:
            thread.join(max(0.0, until_m - time.monotonic()))

    def asked(self) -> Seen:
        """The newest of everything, for somebody who looks: that is what keeps the looking going."""
        self._pace.asked(time.monotonic())
        self._asked.set()
        return self._seen

    @property
    def silent_s(self) -> float:
        """For how long the folder has kept the state's reader waiting."""
        began_m = self._began_m
        return 0.0 if began_m is None else time.monotonic() - began_m

    def look_at_state(self) -> None:
        self._began_m = time.monotonic()
        try:
            self._set(now=self._source.now(), state_problem="")
        except BaseException as error:
            self._set(state_problem=_sentence(error))
        finally:
            self._began_m = None

    def look_at_data(self) -> None:
        """Read the data, where they are due and have changed."""
        begin_m = time.monotonic()
        if not self._pace.is_due(begin_m):
            return
        try:
            # Taken before reading: what is written meanwhile is found changed the next time.
            mark = self._source.mark()
            if mark != self._mark:
                version = self._seen.version + 1
                self._set(shown=self._source.shown(str(version)), version=version, problem="")
                self._mark = mark
        except BaseException as error:
            # Whatever it was, a panic inside polars too, which is no Exception: a thread that ended here would leave readers waiting for
            # ever. What was read last is read anew, so that the sentence goes when the folder is as it was.
            self._mark = None
            self._set(problem=_sentence(error))
        finally:
            self._pace.made(begin_m, time.monotonic())

    def _run(self, look: Callable[[], None]) -> None:
        if look == self.look_at_data:
            # On Linux the priority is the thread's own; those who are answered from memory do not wait longer for it.
            with contextlib.suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while not self._stopping.is_set():
            if self._pace.is_looked_at(time.monotonic()):
                look()
                self._stopping.wait(LOOK_EVERY_S)
            else:
                self._asked.wait()
            self._asked.clear()

    def _set(self, **changes: object) -> None:
        with self._lock:
            self._seen = replace(self._seen, **changes)  # type: ignore[arg-type]


def _sentence(error: BaseException) -> str:
    if isinstance(error, SeatrialError):
        return str(error)
    log.debug("the campaign could not be read", exc_info=error)
    return f"The campaign could not be read just now ({type(error).__name__}: {error}); it is tried again."
