"""One sampler: a thread that looks at its interval, the rows it writes, and its own account.

In: how to open what is looked at, the file, the interval. Out: rows with time stamps, cost and gaps, and a `SamplerAccount`. The
account can be had while the thread hangs in a call that never returns: whoever asks does not wait for it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from seatrial.observe.plausible import impossible_column
from seatrial.observe.row_file import RowFile
from seatrial.records.telemetry import SamplerAccount

# More than so many intervals between two samples is a gap: one late sample is not.
GAP_INTERVALS = 2

Row = dict[str, Any]


class Source(Protocol):
    """What a sampler looks at."""

    def look(self, *, last: bool) -> Iterator[Row]:
        """A row for each thing it sees now; None in cells that could not be told."""

    def notes(self) -> list[str]:
        """What was amiss so far."""


@dataclass(frozen=True)
class Nothing:
    """There is nothing to look at."""

    note: str
    expected: bool


@dataclass(frozen=True)
class SamplerClock:
    """The times a sampler goes by, so that tests can pass their own."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    cpu: Callable[[], float] = time.thread_time


@dataclass(frozen=True)
class Waiting:
    """Something a sampler waits for."""

    what: Literal["opening", "looking", "writing"]
    since_t: float


@dataclass
class Tally:
    """What a sampler has counted so far; its thread writes it, anybody may read it."""

    rows: int = 0
    samples: int = 0
    invalid: int = 0
    first_invalid: str = ""
    gaps: int = 0
    longest_gap_s: float = 0.0
    cpu_s: float = 0.0
    started_m: float | None = None
    ended_m: float | None = None
    call: Waiting | None = None
    """What is under way and may never return; None between two looks."""
    filled: set[str] = field(default_factory=set)
    nothing: Nothing | None = None
    failure: str = ""


class Sampler:
    """Runs in a daemon thread of its own from `start` to `stop`; `account` closes it."""

    def __init__(
        self,
        open_source: Callable[[], Source | Nothing],
        path: Path,
        columns: tuple[str, ...],
        interval_s: float,
        *,
        asked: str,
        clock: SamplerClock | None = None,
    ) -> None:
        self._open, self._columns, self._interval_s, self._asked = open_source, columns, interval_s, asked
        self._clock = clock or SamplerClock()
        self._file, self._file_name = RowFile(path, columns), path.name
        self._tally = Tally()
        self._source: Source | None = None
        self._seen_m: dict[Any, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_in_thread, name=f"seatrial-{path.stem}", daemon=True)

    @property
    def stuck(self) -> bool:
        """Whether the thread is still in a call."""
        return self._thread.is_alive()

    def start(self) -> None:
        self._tally.started_m = self._clock.monotonic()
        try:
            self._thread.start()
        except RuntimeError as error:
            # A limit on processes counts threads too; the run it would watch has its own already.
            self._tally.failure = f"the sampler did not start: {error}"

    def stop(self) -> None:
        """Ask for one last sample and the end; returns at once."""
        self._tally.ended_m = self._clock.monotonic()
        self._stopping.set()

    def account(self, wait_s: float) -> SamplerAccount:
        """How it went, after at most `wait_s` for the thread to end."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, wait_s))
        return self.summary(stuck=self.stuck)

    def _run_in_thread(self) -> None:
        # Signals are for the main thread: one that came here could break off a question to the driver.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.run()

    def run(self) -> None:
        """The thread's work."""
        try:
            self._work()
        except Exception as error:
            # A sampler that breaks is told of in the account; the run it watches goes on.
            self._tally.failure = f"the sampler broke: {type(error).__name__}: {error}"
        self._close()
        self._tally.cpu_s = self._clock.cpu()

    def _work(self) -> None:
        with self._calling("opening"):
            source = self._open()
        if isinstance(source, Nothing):
            self._tally.nothing = source
            return
        self._source = source
        next_m = self._clock.monotonic()
        while not self._stopping.is_set():
            self._look(source, last=False)
            next_m = max(next_m + self._interval_s, self._clock.monotonic())
            self._stopping.wait(next_m - self._clock.monotonic())
        self._look(source, last=True)

    def _close(self) -> None:
        try:
            with self._calling("writing"):
                self._file.close()
        except OSError as error:
            # What a network disk took in and could not keep is told here, if at all.
            told = f"{self._file_name} could not be closed ({error.strerror or error}): rows of it may be lost"
            self._tally.failure = self._tally.failure or told

    def _look(self, source: Source, *, last: bool) -> None:
        self._tally.samples += 1
        with self._calling("looking"):
            rows = [row for row in self._timed(source.look(last=last)) if self._is_possible(row)]
        if rows:
            with self._calling("writing"):
                self._tally.rows += self._file.append(rows)
            self._tally.filled.update(*([column for column, value in row.items() if value is not None] for row in rows))
        self._tally.cpu_s = self._clock.cpu()

    @contextmanager
    def _calling(self, what: Literal["opening", "looking", "writing"]) -> Iterator[None]:
        self._tally.call = Waiting(what, self._clock.wall())
        try:
            yield
        finally:
            self._tally.call = None

    def _timed(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Each row with its time stamps, what it cost, and how long nothing was seen of the same thing before it."""
        begun_m = self._clock.monotonic()
        for row in rows:
            now_m, now_t = self._clock.monotonic(), self._clock.wall()
            stamps = {"timestamp": datetime.fromtimestamp(now_t).astimezone().isoformat(timespec="seconds"), "epoch_sec": round(now_t, 3)}
            yield {**stamps, **row, "sample_ms": round((now_m - begun_m) * 1000, 3), "gap_s": self._gap_s(row.get("gpu_index"), now_m)}
            begun_m = self._clock.monotonic()

    def _gap_s(self, what: Any, now_m: float) -> float | None:
        before_m, self._seen_m[what] = self._seen_m.get(what, now_m), now_m
        gap_s = round(now_m - before_m, 3)
        if gap_s <= GAP_INTERVALS * self._interval_s:
            return None
        self._tally.gaps += 1
        self._tally.longest_gap_s = max(self._tally.longest_gap_s, gap_s)
        return gap_s

    def _is_possible(self, row: Row) -> bool:
        column = impossible_column(row)
        if column is not None:
            self._tally.invalid += 1
            self._tally.first_invalid = self._tally.first_invalid or f"{column} {row[column]}"
        return column is None

    def summary(self, *, stuck: bool) -> SamplerAccount:
        """The account as things stand now."""
        tally, nothing, call = self._tally, self._tally.nothing, self._tally.call if stuck else None
        wall_s = max(0.0, (tally.ended_m or self._clock.monotonic()) - (tally.started_m or 0.0))
        short = wall_s < GAP_INTERVALS * self._interval_s
        # NVML's own start may take longer than such a run.
        too_soon = short and call is not None and call.what == "opening"
        amiss = [*self._amiss(None if too_soon else call), *(self._source.notes() if self._source else [])]
        excuse = list(self._excuse(too_soon=too_soon)) if short and not nothing and not amiss else []
        return SamplerAccount(
            interval_s=self._interval_s,
            rows=tally.rows,
            samples=tally.samples,
            invalid=tally.invalid,
            gaps=tally.gaps,
            longest_gap_s=round(tally.longest_gap_s, 3),
            cpu_s=round(tally.cpu_s, 6),
            wall_s=round(wall_s, 3),
            empty=tally.rows == 0,
            expected=nothing.expected if nothing else bool(excuse),
            stopped_t=round(call.since_t, 3) if call and not too_soon else None,
            missing=tuple(column for column in self._columns if column not in tally.filled and column != "gap_s") if tally.rows else (),
            note="; ".join([nothing.note] if nothing else [*amiss, *excuse]),
        )

    def _excuse(self, *, too_soon: bool) -> Iterator[str]:
        if too_soon:
            yield f"{self._asked} was still being opened when the run was over"
        yield f"the run was shorter than two intervals of {self._interval_s:g} s"

    def _amiss(self, call: Waiting | None) -> Iterator[str]:
        tally = self._tally
        if call:
            yield self._unreturned(call)
        if tally.failure:
            yield tally.failure
        if tally.invalid:
            yield f"{tally.invalid} samples were dropped as impossible (first: {tally.first_invalid})"
        if self._file.lost_rows:
            yield f"{self._file.lost_rows} rows could not be written ({self._file.problem})"

    def _unreturned(self, call: Waiting) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(call.since_t))
        before = f"{self._tally.rows} {'row' if self._tally.rows == 1 else 'rows'} before"
        if call.what == "writing":
            return f"{self._file_name} could not be written since {since}: its disk does not answer, {before}"
        if call.what == "opening":
            return f"{self._asked} was asked to open at {since} and had not answered when the run was over, {before}"
        return f"{self._asked} stopped answering at {since}, {before}"
