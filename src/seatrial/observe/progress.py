"""Progress of a running attempt, and its use of memory and disk.

In: an attempt's folder. Out: `Progress`, from the ranks' heartbeats where the workload has the probe, else from the lines the script
prints, else only from the fact that it prints; memory from host_telemetry.csv; disk from the sizes of the attempt's files. Reading is
incremental and never raises for what it finds in a file.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.core.fallback import fallback_entry
from seatrial.core.files import size_bytes
from seatrial.core.paths import AttemptPaths
from seatrial.observe.heartbeats import Heartbeat, HeartbeatReader, HostClocks, OffsetOf, unknown_offset
from seatrial.observe.log_progress import LogProgressReader
from seatrial.observe.training_health import HealthSample
from seatrial.records.plan import RunSpec
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS

DONE = "done"
PAUSE = "pause:"
BETWEEN_STEPS = "loop"

DISK_USAGE_EVERY_S = 5.0
# The last sample of sixteen GPUs, and of a host many.
TAIL_BYTES = 8192
# torchrun keeps ranks' output three folders deep; other hosts' folders are two deep themselves.
MAX_DEPTH = 8
# No host has more than this, in KiB: an exbibyte.
MAX_RSS_KIB = 2**50
# Launchers, watchdog threads and an idle host stay below these.
BUSY_CPU_PCT = 10.0
BUSY_GPU_PCT = 1.0
BUSY_DISK_KIB_PER_S = 1024.0
BUSY_NET_KIB_PER_S = 256.0
DISK_COLUMNS, NET_COLUMNS = ("disk_read_kib_per_s", "disk_write_kib_per_s"), ("net_rx_kib_per_s", "net_tx_kib_per_s")


@dataclass(frozen=True, kw_only=True)
class LastStep:
    """The last step that one rank ended."""

    rank: int
    step: int
    step_t: float
    """The harness's wall clock when it ended; for a script without the probe, when its line arrived."""
    paused_s: float = 0.0
    """Total time in named pauses until then; always 0 without the probe."""
    iter_ms_p50: float | None = None
    """Median of the latest step times; None where too few are known."""


@dataclass(frozen=True, kw_only=True)
class RankState:
    """One rank with the probe, by its latest heartbeat."""

    rank: int
    step: int | None = None
    """Last step that ended; None before the first."""
    phase: str = ""
    """The probe's name for it: `fwd`, `loop` between two steps, `pause:eval`, `done`."""
    pid: int | None = None
    host: str = ""
    heartbeat_t: float = 0.0
    """When it was written, by the harness's wall clock."""
    heartbeat_bytes: int = 0
    """Size of the heartbeat file: grows with every heartbeat, even if the clock stops or is set back."""

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
class Activity:
    """Activity of a run by the latest samples, on its busiest host; None where telemetry has no value. Disk and network are the whole
    host's, including others' traffic."""

    cpu_pct: float | None = None
    """CPU use of its processes, in percent of one core."""
    gpu_pct: float | None = None
    """Utilisation of its busiest GPU."""
    disk_kib_per_s: float | None = None
    net_kib_per_s: float | None = None

    @property
    def text(self) -> str:
        """What it is busy with; empty if idle."""
        busy = [
            (self.cpu_pct, BUSY_CPU_PCT, "CPU", "%"),
            (self.gpu_pct, BUSY_GPU_PCT, "GPU", "%"),
            (self.disk_kib_per_s, BUSY_DISK_KIB_PER_S, "disk", "KiB/s"),
            (self.net_kib_per_s, BUSY_NET_KIB_PER_S, "network", "KiB/s"),
        ]
        return ", ".join(f"{name} {value:,.0f} {unit}" for value, least, name, unit in busy if value is not None and value >= least)

    @property
    def is_busy(self) -> bool:
        return bool(self.text)


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
    activity: Activity | None = None
    """What its processes do; None without telemetry."""
    health: HealthSample | None = None
    """The first rank's latest figures of the training; None without any."""


class ProgressReader:
    """Polls the progress of one attempt."""

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
        self._clocks = HostClocks(offset_of, wall, estimates=not spec.place.traits.is_this_machine)
        # Arrivals are on node 0's clock, so the time that replaces a missing one must be too.
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
            activity=latest_activity(hosts),
        )

    def _from_heartbeats(self, heartbeats: Sequence[Heartbeat]) -> Progress:
        # Restarted ranks are before their first step again, but the run is alive.
        self._stepped.update(heartbeat.rank for heartbeat in heartbeats if heartbeat.step is not None)
        return progress_from_heartbeats(heartbeats, self._stepped)

    def _from_log(self) -> Progress:
        log = self._log.read()
        self._had_output = self._had_output or log.has_output
        if log.step is None:
            return Progress(alive=self._had_output)
        ended_t = log.step_t - self._clocks.offset_s(0)
        last = LastStep(rank=0, step=log.step, step_t=ended_t, iter_ms_p50=log.iter_ms_p50)
        return Progress(step=log.step, alive=self._had_output, last_steps=(last,))


def progress_from_heartbeats(heartbeats: Sequence[Heartbeat], stepped: Collection[int]) -> Progress:
    """Progress by one heartbeat per rank; `stepped`: ranks that have ended a step, now or before."""
    steps = [heartbeat.step for heartbeat in heartbeats if heartbeat.step is not None]
    return Progress(
        step=min(steps) if len(steps) == len(heartbeats) else None,
        phase=heartbeats[0].phase,
        alive=all(heartbeat.rank in stepped for heartbeat in heartbeats),
        last_steps=tuple(last for heartbeat in heartbeats if (last := _last_step(heartbeat))),
        rank_states=tuple(_rank_state(heartbeat) for heartbeat in heartbeats),
        health=heartbeats[0].health,
    )


def _last_step(heartbeat: Heartbeat) -> LastStep | None:
    """The rank's last step; None before the first. Old probes write no `step_t`; the heartbeat's time is at most one heartbeat later."""
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
    """Size of a file with its part in the fallback folder while its disk fails."""
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
    cells = (_number(row["rss_kib"]) for row in _latest_rows(host_telemetry, HOST_COLUMNS))
    return next((int(kib * 1024) for kib in cells if kib is not None and kib < MAX_RSS_KIB), None)


def latest_activity(hosts: Sequence[AttemptPaths]) -> Activity | None:
    """Activity by the newest samples of all hosts; None without a value."""
    rows = [row for host in hosts for row in _latest_rows(host.host_telemetry, HOST_COLUMNS)[:1]]
    gpus = [row for host in hosts for row in _newest_sample(_latest_rows(host.gpu_telemetry, GPU_COLUMNS))]
    found = Activity(
        cpu_pct=_largest(rows, ("tree_cpu_pct",)),
        gpu_pct=_largest(gpus, ("util_gpu_pct",)),
        disk_kib_per_s=_largest(rows, DISK_COLUMNS),
        net_kib_per_s=_largest(rows, NET_COLUMNS),
    )
    return None if found == Activity() else found


def _latest_rows(telemetry: Path, columns: Sequence[str]) -> list[dict[str, bytes]]:
    """The last whole rows of a telemetry file, the newest first."""
    try:
        with open(telemetry, "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - TAIL_BYTES))
            # What follows the last line end is a row that is still being written.
            lines = source.read(TAIL_BYTES).split(b"\n")[:-1]
    except OSError:
        return []
    rows = (line.split(b",") for line in reversed(lines))
    return [dict(zip(columns, cells, strict=True)) for cells in rows if len(cells) == len(columns)]


def _newest_sample(rows: Sequence[dict[str, bytes]]) -> list[dict[str, bytes]]:
    """Rows of the newest sample: GPUs have one each with the same time."""
    return [row for row in rows if row["epoch_sec"] == rows[0]["epoch_sec"]]


def _largest(rows: Sequence[dict[str, bytes]], columns: Sequence[str]) -> float | None:
    return max((value for row in rows for name in columns if (value := _number(row[name])) is not None), default=None)


def _number(cell: bytes) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


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
