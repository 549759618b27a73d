"""Two threads that read the campaign's folder, one its state and one its data; requests are answered from memory.

In: a `Source`: how to read the state, whether anything changed, and what the page shows. Out: the newest of each. A disk that hangs blocks
only these threads. An error while reading becomes a sentence beside the last good version: the folder is being written, and the next read
may succeed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from seatrial.core.errors import SeatrialError
from seatrial.core.paths import AttemptPaths, CampaignPaths

if TYPE_CHECKING:
    from seatrial.web.compressed_text import CompressedText
    from seatrial.web.state import CampaignState

EVERY_S = 3.0
LARGEST_SHARE = 0.2
# An open page polls every two seconds, in a hidden tab every minute.
UNWATCHED_AFTER_S = 90.0


class RefreshPace:
    """When to refresh; times are of one monotonic clock, which the caller reads."""

    def __init__(self, *, every_s: float = EVERY_S, largest_share: float = LARGEST_SHARE) -> None:
        self._every_s, self._largest_share = every_s, largest_share
        self._requested_m = -math.inf
        self._next_m = -math.inf

    def requested(self, now_m: float) -> None:
        """Note that the page was requested."""
        self._requested_m = now_m

    def is_watched(self, now_m: float) -> bool:
        return now_m - self._requested_m < UNWATCHED_AFTER_S

    def is_due(self, now_m: float) -> bool:
        return self.is_watched(now_m) and now_m >= self._next_m

    def refreshed(self, begin_m: float, end_m: float) -> None:
        """Note that the page was built, or failed to build, between these two times."""
        self._next_m = max(begin_m + self._every_s, begin_m + (end_m - begin_m) / self._largest_share)


log = logging.getLogger(__name__)

REFRESH_EVERY_S = 1.0
# The kernel's lowest priority: the harness and the training come first.
NICENESS = 19
JOIN_TIMEOUT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class PageVersion:
    """One version of the page."""

    page: Callable[[], str]
    """The whole page; built on request."""
    parts: CompressedText
    """What an open page needs to become this version."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """How a campaign is read."""

    now: Callable[[], CampaignState]
    mark: Callable[[], object]
    """Changes when there is something new to show."""
    shown: Callable[[str], PageVersion]
    """What to show now, as the version of that name."""


@dataclass(frozen=True, kw_only=True)
class Latest:
    """The newest of everything."""

    now: CampaignState | None = None
    shown: PageVersion | None = None
    version: int = 0
    """The version shown; 0 while there is none."""
    problem: str = ""
    """Why the newest version could not be read."""
    state_problem: str = ""
    """Why `now` is an older one."""


class Refresher:
    """Refreshes while the block runs and there are requests."""

    def __init__(self, source: Source, pace: RefreshPace | None = None) -> None:
        self._source, self._pace = source, pace or RefreshPace()
        self._latest, self._lock = Latest(), threading.Lock()
        self._mark: object = None
        self._began_m: float | None = None
        self._stopping, self._requested = threading.Event(), threading.Event()
        refreshes = {"state": self.refresh_state, "data": self.refresh_data}
        self._threads = [
            threading.Thread(target=self._run, args=(refresh,), name=f"seatrial-{name}", daemon=True) for name, refresh in refreshes.items()
        ]

    def __enter__(self) -> Refresher:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        self._requested.set()
        # A thread that reads a large campaign, or waits for a hung disk, ends with the process.
        deadline_m = time.monotonic() + JOIN_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_m - time.monotonic()))

    def latest(self) -> Latest:
        """The newest of everything; without such requests refreshing stops."""
        self._pace.requested(time.monotonic())
        self._requested.set()
        return self._latest

    @property
    def silent_s(self) -> float:
        """How long the read of the state has been waiting for the folder."""
        began_m = self._began_m
        return 0.0 if began_m is None else time.monotonic() - began_m

    def refresh_state(self) -> None:
        self._began_m = time.monotonic()
        try:
            self._set(now=self._source.now(), state_problem="")
        except BaseException as error:
            self._set(state_problem=_sentence(error))
        finally:
            self._began_m = None

    def refresh_data(self) -> None:
        """Read the data where they are due and have changed."""
        begin_m = time.monotonic()
        if not self._pace.is_due(begin_m):
            return
        try:
            # Taken before reading: what is written meanwhile is found changed the next time.
            mark = self._source.mark()
            if mark != self._mark:
                version = self._latest.version + 1
                self._set(shown=self._source.shown(str(version)), version=version, problem="")
                self._mark = mark
        except BaseException as error:
            # Anything, also a panic of polars, which is not an Exception: without this thread readers would wait for ever. The next read is
            # forced, so that the message disappears when the folder is readable again.
            self._mark = None
            self._set(problem=_sentence(error))
        finally:
            self._pace.refreshed(begin_m, time.monotonic())

    def _run(self, refresh: Callable[[], None]) -> None:
        if refresh == self.refresh_data:
            # On Linux threads have their own priority; requests answered from memory are not delayed by this one's.
            with contextlib.suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while not self._stopping.is_set():
            if self._pace.is_watched(time.monotonic()):
                refresh()
                self._stopping.wait(REFRESH_EVERY_S)
            else:
                self._requested.wait()
            self._requested.clear()

    def _set(self, **changes: object) -> None:
        with self._lock:
            self._latest = replace(self._latest, **changes)  # type: ignore[arg-type]


def _sentence(error: BaseException) -> str:
    if isinstance(error, SeatrialError):
        return str(error)
    log.debug("the campaign could not be read", exc_info=error)
    return f"The campaign could not be read just now ({type(error).__name__}: {error}); retrying."


Mark = tuple[str, int, int]


def folder_marks(paths: CampaignPaths) -> frozenset[Mark]:
    """Names, sizes and times of the files that results depend on. Of a finished attempt only the outcome is examined, so that a thousand
    finished runs take a few milliseconds."""
    return frozenset(_marks(paths))


def _marks(paths: CampaignPaths) -> Iterator[Mark]:
    for plan in (paths.plan, *paths.plans.glob("*.json")):
        yield from _file_mark(plan)
    for attempt in (attempt for run in paths.runs() for attempt in run.attempts()):
        outcome = [*_file_mark(attempt.outcome)]
        yield from outcome or _running_attempt_marks(attempt)


def _running_attempt_marks(attempt: AttemptPaths) -> Iterator[Mark]:
    """Every file in the attempt's own folder: events, samples, logs."""
    try:
        with os.scandir(attempt.folder) as found:
            names = [entry.path for entry in found]
    except OSError:
        return
    for name in names:
        yield from _file_mark(Path(name))


def _file_mark(path: Path) -> Iterator[Mark]:
    try:
        found = os.lstat(path)
    except OSError:
        return
    yield (str(path), found.st_size, found.st_mtime_ns)
