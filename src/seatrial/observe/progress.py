"""How far a run is while it runs, and how much memory and disk it uses.

In: an attempt's folder. Out: `Progress`, from the ranks' heartbeats where the workload has the probe, else from the lines the script
prints, else only from the fact that it prints; memory from host_telemetry.csv; disk from the sizes of the attempt's files. Reading is
incremental and never raises for what it finds in a file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.core.fallback import fallback_entry
from seatrial.core.files import size_bytes
from seatrial.core.paths import AttemptPaths
from seatrial.observe.heartbeats import Heartbeat, HeartbeatReader, HostClocks, OffsetOf, unknown_offset
from seatrial.observe.log_progress import LogProgressReader
from seatrial.records.plan import LOCAL, RunSpec
from seatrial.records.telemetry import HOST_COLUMNS

DONE = "done"
PAUSE = "pause:"
BETWEEN_STEPS = "loop"

DISK_USAGE_EVERY_S = 5.0
TAIL_BYTES = 4096
# torchrun keeps the ranks' output three folders deep, on other hosts two folders below theirs.
MAX_DEPTH = 8
RSS_COLUMN = HOST_COLUMNS.index("rss_kib")
# No host has more than this, in KiB: an exbibyte.
MAX_RSS_KIB = 2**50


@dataclass(frozen=True, kw_only=True)
class LastStep:
    """The last step that one rank ended."""

    rank: int
    step: int
    step_t: float
    """The harness's wall clock when it ended; for a script without the probe, when its line arrived."""
    paused_s: float = 0.0
    """All time in named pauses up to then; always 0 for a script without the probe."""
    iter_ms_p50: float | None = None
    """Median of the latest step times; None where too few are known."""


@dataclass(frozen=True, kw_only=True)
class RankState:
    """One rank with the probe, by its latest heartbeat."""

    rank: int
    step: int | None = None
    """The last one that ended; None before the first."""
    phase: str = ""
    """The probe's name for it: `fwd`, `loop` between two steps, `pause:eval`, `done`."""
    pid: int | None = None
    host: str = ""
    heartbeat_t: float = 0.0
    """When it was written, by the harness's wall clock."""
    heartbeat_bytes: int = 0
    """Size of the heartbeat file: grows with every heartbeat, even where the clock stops or is set back."""

    @property
    def is_done(self) -> bool:
        return self.phase == DONE

    @property
    def is_paused(self) -> bool:
        return self.phase.startswith(PAUSE)


@dataclass(frozen=True, kw_only=True)
class DiskUsage:
    """What an attempt has written."""

    bytes: int = 0
    largest_file: str = ""
    """Its path within the attempt's folder."""
    largest_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A run at one moment."""

    step: int | None = None
    """Highest step that every rank has reached; None before the first."""
    total: int | None = None
    phase: str = ""
    """Phase of rank 0."""
    alive: bool = False
    """Every rank has ended a step, now or before; for scripts without the probe: there was any output."""
    last_steps: tuple[LastStep, ...] = ()
    """One for each rank that has ended a step, by rank; for a script without the probe one at most, as rank 0."""
    num_ranks: int = 0
    """Ranks of the place; 0 where unknown."""
    rank_states: tuple[RankState, ...] = ()
    """One for each rank with the probe, by rank; none for a script without it."""
    output_bytes: int = 0
    """Size of launcher.log, on all hosts."""
    memory_bytes: int | None = None
    """Resident memory of the run's process tree by the latest sample, on many hosts that of the host with most; None without a sample."""
    disk: DiskUsage = DiskUsage()
    """Logs, events and stacks of the attempt; updated every few seconds."""


class ProgressReader:
    """Reads the progress of one attempt again and again."""

    def __init__(
        self,
        spec: RunSpec,
        attempt: AttemptPaths,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        offset_of: OffsetOf = unknown_offset,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`offset_of` gives how far the clock of a rank's host is ahead of ours, where the connection to it has measured that."""
        self._spec, self._attempt = spec, attempt
        self._clocks = HostClocks(offset_of, wall, estimates=spec.place.kind != LOCAL)
        # Arrivals are by the clock of node 0, and so must be the time that replaces a missing one.
        self._log = LogProgressReader(spec, attempt, lambda: wall() + self._clocks.offset_s(0))
        self._heartbeats = HeartbeatReader(attempt, monotonic)
        self._disk = DiskUsageReader(attempt, monotonic)
        self._had_output = False
        self._stepped: set[int] = set()

    def read(self) -> Progress:
        heartbeats = self._clocks.convert(self._heartbeats.read())
        progress = self._from_heartbeats(heartbeats) if heartbeats else self._from_log()
        hosts = [self._attempt, *other_nodes(self._attempt)]
        memory = (latest_rss_bytes(host.host_telemetry) for host in hosts)
        return replace(
            progress,
            total=self._spec.steps,
            num_ranks=self._spec.place.ranks,
            output_bytes=sum(_size_with_fallback(host.launcher_log) for host in hosts),
            memory_bytes=max((rss for rss in memory if rss is not None), default=None),
            disk=self._disk.read(),
        )

    def _from_heartbeats(self, heartbeats: Sequence[Heartbeat]) -> Progress:
        steps = [heartbeat.step for heartbeat in heartbeats if heartbeat.step is not None]
        # Ranks that torchrun restarted are before their first step again, and the run is alive all the same.
        self._stepped.update(heartbeat.rank for heartbeat in heartbeats if heartbeat.step is not None)
        return Progress(
            step=min(steps) if len(steps) == len(heartbeats) else None,
            phase=heartbeats[0].phase,
            alive=all(heartbeat.rank in self._stepped for heartbeat in heartbeats),
            last_steps=tuple(last for heartbeat in heartbeats if (last := _last_step(heartbeat))),
            rank_states=tuple(_rank_state(heartbeat) for heartbeat in heartbeats),
        )

    def _from_log(self) -> Progress:
        log = self._log.read()
        self._had_output = self._had_output or log.has_output
        if log.step is None:
            return Progress(alive=self._had_output)
        ended_t = log.step_t - self._clocks.offset_s(0)
        last = LastStep(rank=0, step=log.step, step_t=ended_t, iter_ms_p50=log.iter_ms_p50)
        return Progress(step=log.step, alive=self._had_output, last_steps=(last,))


def _last_step(heartbeat: Heartbeat) -> LastStep | None:
    """None before the first step. Old probes write no `step_t`; the heartbeat's own time is at most one heartbeat later."""
    step_t = heartbeat.step_t if heartbeat.step_t is not None else heartbeat.ts
    if heartbeat.step is None or step_t is None:
        return None
    return LastStep(rank=heartbeat.rank, step=heartbeat.step, step_t=step_t, paused_s=heartbeat.paused_s, iter_ms_p50=heartbeat.iter_ms_p50)


def _rank_state(heartbeat: Heartbeat) -> RankState:
    return RankState(
        rank=heartbeat.rank,
        step=heartbeat.step,
        phase=heartbeat.phase,
        pid=heartbeat.pid,
        host=heartbeat.host,
        heartbeat_t=heartbeat.ts or 0.0,
        heartbeat_bytes=heartbeat.file_bytes,
    )


def _size_with_fallback(path: Path) -> int:
    """Including its part in the fallback folder while its disk fails."""
    fallback = fallback_entry(path)
    return size_bytes(path) + (size_bytes(fallback) if fallback else 0)


def other_nodes(attempt: AttemptPaths) -> list[AttemptPaths]:
    """The folders of the hosts beside node 0, whose agent writes to the attempt's own; none for a run on one host."""
    try:
        with os.scandir(attempt.nodes) as entries:
            return [attempt.node(name) for name in sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))]
    except OSError:
        return []


def latest_rss_bytes(host_telemetry: Path) -> int | None:
    """Memory of the whole process tree by the latest sample that has it; None without one."""
    try:
        with open(host_telemetry, "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - TAIL_BYTES))
            # What follows the last line end is a row that is still being written.
            rows = source.read(TAIL_BYTES).split(b"\n")[:-1]
    except OSError:
        return None
    return next((rss for row in reversed(rows) if (rss := _rss_bytes(row)) is not None), None)


def _rss_bytes(row: bytes) -> int | None:
    cells = row.split(b",")
    if len(cells) != len(HOST_COLUMNS):
        return None
    try:
        kib = float(cells[RSS_COLUMN])
    except ValueError:
        return None
    return int(kib * 1024) if 0 <= kib < MAX_RSS_KIB else None


class DiskUsageReader:
    """Sizes of the files of one attempt: those in its folder, the ranks' output, the stacks, and the same of other hosts.

    Counted at most once every DISK_USAGE_EVERY_S.
    """

    def __init__(self, attempt: AttemptPaths, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._attempt, self._monotonic = attempt, monotonic
        self._latest = DiskUsage()
        self._read_m: float | None = None

    def read(self) -> DiskUsage:
        now_m = self._monotonic()
        if self._read_m is None or now_m - self._read_m >= DISK_USAGE_EVERY_S:
            self._read_m, self._latest = now_m, self._count()
        return self._latest

    def _count(self) -> DiskUsage:
        total = largest_bytes = 0
        largest = ""
        for path, size in self._files():
            total += size
            if size > largest_bytes:
                largest, largest_bytes = path, size
        name = os.path.relpath(largest, self._attempt.folder) if largest else ""
        return DiskUsage(bytes=total, largest_file=name, largest_bytes=largest_bytes)

    def _files(self) -> Iterator[tuple[str, int]]:
        yield from _files_in(str(self._attempt.folder), max_depth=0)
        for folder in (self._attempt.rank_logs, self._attempt.stacks, self._attempt.nodes):
            yield from _files_in(str(folder), max_depth=MAX_DEPTH)


def _files_in(folder: str, max_depth: int) -> Iterator[tuple[str, int]]:
    """(path, bytes); a folder or file that is gone or cannot be read is skipped."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield from _sizes(entry, max_depth)
    except OSError:
        return


def _sizes(entry: os.DirEntry[str], max_depth: int) -> Iterator[tuple[str, int]]:
    try:
        if entry.is_file(follow_symlinks=False):
            yield entry.path, entry.stat(follow_symlinks=False).st_size
        elif max_depth and entry.is_dir(follow_symlinks=False):
            yield from _files_in(entry.path, max_depth - 1)
    except OSError:
        return
