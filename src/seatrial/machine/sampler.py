"""One sampler: a thread that samples at its interval, its CSV, and an account of the sampling.

In: how to open the source, the file, the interval. Out: rows with time stamps, cost and gaps, and a `SamplerAccount`. The account can be
taken while the thread hangs in a call that never returns. Impossible values are dropped: nonsense from a driver must not affect
means.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from seatrial.core.durable_writes import AppendFile
from seatrial.core.tables import format_cell
from seatrial.records.telemetry import MAX_VALUES, MAY_BE_NEGATIVE, SamplerAccount

# More than so many intervals between two samples is a gap: one late sample is not.
GAP_INTERVALS = 2
# Percent of one core, of as many as there are.
UNBOUNDED_SHARES = frozenset({"tree_cpu_pct"})
TOTAL_OF = {
    "mem_used_mib": "mem_total_mib",
    "mem_free_mib": "mem_total_mib",
    "mem_available_kib": "mem_total_kib",
    "swap_free_kib": "swap_total_kib",
}

Row = dict[str, Any]


def impossible_column(row: Mapping[str, Any]) -> str | None:
    """The first column that holds an impossible value; None for a row without one."""
    for column, value in row.items():
        if isinstance(value, (int, float)) and not _is_possible(column, value, row):
            return column
    return None


def _is_possible(column: str, value: float, row: Mapping[str, Any]) -> bool:
    if value < 0 and column not in MAY_BE_NEGATIVE:
        return False
    if column.endswith("_pct") and column not in UNBOUNDED_SHARES and value > 100:
        return False
    total = row.get(TOTAL_OF.get(column, ""))
    return value <= MAX_VALUES.get(column, value) and (total is None or value <= total)


class CsvWriter:
    """A CSV that grows by whole rows, each write flushed; one writer.

    The file is created with its first row, so that none is left with a header alone. Rows that its disk rejects go to the fallback
    folder; rows that could be written nowhere are counted.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._columns = columns
        self._file = AppendFile(path)
        self.lost_rows = 0
        self.problem = ""

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Write the rows in one go; how many were written, which is all or none of them."""
        header = "" if self._file.offset_bytes else ",".join(self._columns) + "\n"
        text = header + "".join(self._line(row) for row in rows)
        if self._file.append(text.encode()):
            return len(rows)
        self.lost_rows += len(rows)
        self.problem = self.problem or self._file.last_error
        return 0

    def close(self) -> None:
        """Close the file; OSError if the disk reports only now that it lost data."""
        if not self._file.close():
            raise OSError(self._file.last_error)

    def _line(self, row: Mapping[str, Any]) -> str:
        # A driver's name for a card may hold a comma; without quotes the simplest reader works for every row.
        return ",".join(format_cell(row.get(column)).replace(",", " ").replace('"', " ") for column in self._columns) + "\n"


class Source(Protocol):
    """A source of samples."""

    def sample(self, *, last: bool) -> Iterator[Row]:
        """A row for each device now; None in cells that could not be read."""

    def notes(self) -> list[str]:
        """Problems so far."""


@dataclass(frozen=True)
class Unavailable:
    """There is nothing to sample."""

    note: str
    expected: bool


@dataclass(frozen=True)
class SamplerClock:
    """The clocks of a sampler, so that tests can pass their own."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    cpu: Callable[[], float] = time.thread_time


Activity = Literal["opening", "sampling", "writing"]


@dataclass(frozen=True)
class PendingCall:
    """A call that has not returned yet."""

    activity: Activity
    since_t: float


@dataclass
class SamplerCounters:
    """What a sampler has counted so far; written by its thread, readable by any. telemetry.json has it as a SamplerAccount at the end."""

    rows: int = 0
    samples: int = 0
    invalid: int = 0
    first_invalid: str = ""
    gaps: int = 0
    longest_gap_s: float = 0.0
    cpu_s: float = 0.0
    started_m: float | None = None
    ended_m: float | None = None
    call: PendingCall | None = None
    """The call under way, which may never return; None between two samples."""
    filled: set[str] = field(default_factory=set)
    unavailable: Unavailable | None = None
    failure: str = ""


class Sampler:
    """Runs in a daemon thread of its own from `start` to `stop`; `account` closes it."""

    def __init__(
        self,
        open_source: Callable[[], Source | Unavailable],
        path: Path,
        columns: tuple[str, ...],
        interval_s: float,
        *,
        source_name: str,
        clock: SamplerClock | None = None,
    ) -> None:
        self._open, self._columns, self._interval_s, self._source_name = open_source, columns, interval_s, source_name
        self._clock = clock or SamplerClock()
        self._file, self._file_name = CsvWriter(path, columns), path.name
        self._counters = SamplerCounters()
        self._source: Source | None = None
        self._seen_m: dict[Any, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_in_thread, name=f"seatrial-{path.stem}", daemon=True)

    @property
    def stuck(self) -> bool:
        """Whether the thread is still in a call."""
        return self._thread.is_alive()

    def start(self) -> None:
        self._counters.started_m = self._clock.monotonic()
        try:
            self._thread.start()
        except RuntimeError as error:
            # A limit on processes counts threads too; the run it would watch has its own already.
            self._counters.failure = f"the sampler did not start: {error}"

    def stop(self) -> None:
        """Ask for one last sample and the end; returns at once."""
        self._counters.ended_m = self._clock.monotonic()
        self._stopping.set()

    def account(self, wait_s: float) -> SamplerAccount:
        """How it went, after at most `wait_s` for the thread to end."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, wait_s))
        return self.summary(stuck=self.stuck)

    def _run_in_thread(self) -> None:
        # Signals are for the main thread: one that came here could interrupt a call to the driver.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.run()

    def run(self) -> None:
        if self._counters.started_m is None:
            self._counters.started_m = self._clock.monotonic()
        try:
            self._sample_until_stopped()
        except Exception as error:
            # A sampler that fails is recorded in the account; the run it watches goes on.
            self._counters.failure = f"the sampler failed: {type(error).__name__}: {error}"
        self._close()
        self._counters.cpu_s = self._clock.cpu()

    def _sample_until_stopped(self) -> None:
        with self._calling("opening"):
            source = self._open()
        if isinstance(source, Unavailable):
            self._counters.unavailable = source
            return
        self._source = source
        next_m = self._clock.monotonic()
        while not self._stopping.is_set():
            self._sample(source, last=False)
            next_m = max(next_m + self._interval_s, self._clock.monotonic())
            self._stopping.wait(next_m - self._clock.monotonic())
        self._sample(source, last=True)

    def _close(self) -> None:
        try:
            with self._calling("writing"):
                self._file.close()
        except OSError as error:
            # A network disk that accepted data and could not keep it reports that here, if at all.
            failure = f"{self._file_name} could not be closed ({error.strerror or error}): rows of it may be lost"
            self._counters.failure = self._counters.failure or failure

    def _sample(self, source: Source, *, last: bool) -> None:
        self._counters.samples += 1
        with self._calling("sampling"):
            rows = [row for row in self._with_times(source.sample(last=last)) if self._is_valid(row)]
        if rows:
            with self._calling("writing"):
                self._counters.rows += self._file.append(rows)
            self._counters.filled.update(*([column for column, value in row.items() if value is not None] for row in rows))
        self._counters.cpu_s = self._clock.cpu()

    @contextmanager
    def _calling(self, activity: Activity) -> Iterator[None]:
        self._counters.call = PendingCall(activity, self._clock.wall())
        try:
            yield
        finally:
            self._counters.call = None

    def _with_times(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Each row with its time stamps, what it cost, and the gap since the last row of the same device."""
        begun_m = self._clock.monotonic()
        for row in rows:
            now_m, now_t = self._clock.monotonic(), self._clock.wall()
            stamps = {"timestamp": datetime.fromtimestamp(now_t).astimezone().isoformat(timespec="seconds"), "epoch_sec": round(now_t, 3)}
            yield {**stamps, **row, "sample_ms": round((now_m - begun_m) * 1000, 3), "gap_s": self._gap_s(row.get("gpu_index"), now_m)}
            begun_m = self._clock.monotonic()

    def _gap_s(self, device: Any, now_m: float) -> float | None:
        before_m, self._seen_m[device] = self._seen_m.get(device, now_m), now_m
        gap_s = round(now_m - before_m, 3)
        if gap_s <= GAP_INTERVALS * self._interval_s:
            return None
        self._counters.gaps += 1
        self._counters.longest_gap_s = max(self._counters.longest_gap_s, gap_s)
        return gap_s

    def _is_valid(self, row: Row) -> bool:
        column = impossible_column(row)
        if column is not None:
            self._counters.invalid += 1
            self._counters.first_invalid = self._counters.first_invalid or f"{column} {row[column]}"
        return column is None

    def summary(self, *, stuck: bool) -> SamplerAccount:
        counters, unavailable = self._counters, self._counters.unavailable
        call = counters.call if stuck else None
        wall_s = max(0.0, (counters.ended_m or self._clock.monotonic()) - (counters.started_m or 0.0))
        short = wall_s < GAP_INTERVALS * self._interval_s
        # NVML's own start may take longer than such a run.
        still_opening = short and call is not None and call.activity == "opening"
        problems = [*self._problems(None if still_opening else call), *(self._source.notes() if self._source else [])]
        benign_reasons = []
        if short and not unavailable and not problems:
            opening = [f"{self._source_name} was still being opened when the run was over"] if still_opening else []
            benign_reasons = [*opening, f"the run was shorter than two intervals of {self._interval_s:g} s"]
        missing = tuple(column for column in self._columns if column not in counters.filled and column != "gap_s")
        return SamplerAccount(
            interval_s=self._interval_s,
            rows=counters.rows,
            samples=counters.samples,
            invalid=counters.invalid,
            gaps=counters.gaps,
            longest_gap_s=round(counters.longest_gap_s, 3),
            cpu_s=round(counters.cpu_s, 6),
            wall_s=round(wall_s, 3),
            empty=counters.rows == 0,
            expected=unavailable.expected if unavailable else bool(benign_reasons),
            stopped_t=round(call.since_t, 3) if call and not still_opening else None,
            missing=missing if counters.rows else (),
            note="; ".join([unavailable.note] if unavailable else [*problems, *benign_reasons]),
        )

    def _problems(self, call: PendingCall | None) -> Iterator[str]:
        counters = self._counters
        if call:
            yield self._unreturned(call)
        if counters.failure:
            yield counters.failure
        if counters.invalid:
            yield f"{counters.invalid} samples were dropped as impossible (first: {counters.first_invalid})"
        if self._file.lost_rows:
            yield f"{self._file.lost_rows} rows could not be written ({self._file.problem})"

    def _unreturned(self, call: PendingCall) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(call.since_t))
        before = f"{self._counters.rows} {'row' if self._counters.rows == 1 else 'rows'} before"
        if call.activity == "writing":
            return f"{self._file_name} could not be written since {since}: its disk does not answer, {before}"
        if call.activity == "opening":
            return f"{self._source_name} was asked to open at {since} and had not answered when the run was over, {before}"
        return f"{self._source_name} stopped answering at {since}, {before}"
