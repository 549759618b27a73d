"""The run in a trainer's output folder, as a watchdog sees it: its ranks, their processes, the figures it reports.

In: the folder (heartbeat_rank*.jsonl, events_rank*.jsonl; training.csv and k_stats.csv where the run writes them) and /proc. Out:
`WatchedRun`, read repeatedly. Files of an earlier run may lie there: a rank belongs to the run only where its heartbeat names a
process of this host that is alive and began before the heartbeat was written. No other process is ever touched.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial.core.files import read_json_lines
from seatrial.core.paths import AttemptPaths
from seatrial.machine.processes import PROC, read_start_ticks
from seatrial.observe.heartbeats import Heartbeat, HeartbeatReader, is_progress
from seatrial.observe.progress import DONE, Progress, progress_from_heartbeats
from seatrial.observe.training_health import HealthSample, read_sample
from seatrial.probe.identity import process_t
from seatrial_runbooks.sparse_lm.training_csv import RUN_ID, read_table

# /proc counts in 10 ms, heartbeats in 1 ms, and the wall clock may be corrected in between.
CLOCK_TOLERANCE_S = 2.0
TAIL_BYTES = 64 * 1024
TRAINING_CSV, STATISTICS_CSV = "training.csv", "k_stats.csv"


@dataclass(frozen=True, kw_only=True)
class RankProcess:
    """The process of one rank: pid and start identify it."""

    rank: int
    pid: int
    start_ticks: int
    signal: str | None = None
    """The signal at which it writes its stacks, by its start event; None where it registered none."""


class WatchedRun:
    """The run in a folder, from its files and processes."""

    def __init__(self, folder: Path, proc: Path = PROC, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.paths = AttemptPaths(folder)
        self._proc, self._here = proc, socket.gethostname()
        self._heartbeats = HeartbeatReader(self.paths, monotonic)
        self._latest: dict[int, Heartbeat] = {}
        self.ranks: dict[int, RankProcess] = {}
        """Every rank seen alive so far."""
        self._stepped: set[int] = set()

    def read(self) -> Progress:
        """Progress of the ranks found so far; an empty one before the first."""
        for heartbeat in self._heartbeats.read():
            known = self.ranks.get(heartbeat.rank)
            if known is None or known.pid != heartbeat.pid:
                found = self._find_process(heartbeat)
                if found is None:
                    continue
                self.ranks[heartbeat.rank] = found
            self._latest[heartbeat.rank] = heartbeat
            if heartbeat.step is not None:
                self._stepped.add(heartbeat.rank)
        latest = [self._latest[rank] for rank in sorted(self._latest)]
        return progress_from_heartbeats(latest, self._stepped) if latest else Progress()

    def alive(self) -> list[RankProcess]:
        """The ranks whose process still exists."""
        return [rank for rank in self.ranks.values() if read_start_ticks(rank.pid, self._proc) == rank.start_ticks]

    def lost(self) -> list[int]:
        """Ranks that ended without being done."""
        alive = {rank.rank for rank in self.alive()}
        return sorted(rank for rank in self.ranks if rank not in alive and self._latest[rank].phase != DONE)

    def identity(self) -> tuple[str, int]:
        """Run id and attempt, by the newest heartbeat, else env.json; ("", 1) where neither has them."""
        lines = list(self._own_lines(0))
        line: Mapping[str, Any] = lines[-1] if lines else {}
        run = line.get("run_id") or _read_json(self.paths.folder / "env.json").get("run_id") or ""
        attempt = line.get("attempt")
        return str(run), attempt if isinstance(attempt, int) else 1

    def samples(self) -> list[HealthSample]:
        """Rank 0's latest figures, in the order of steps, which count from 1: from the tables, else from its heartbeats."""
        found: dict[int, dict[str, Any]] = {}
        for name in (TRAINING_CSV, STATISTICS_CSV):
            for row in self._rows(name):
                found.setdefault(int(row["step"]), {}).update(row)
        return [read_sample(step, found[step]) for step in sorted(found)] or self._samples_of_heartbeats()

    def _samples_of_heartbeats(self) -> list[HealthSample]:
        samples = [
            read_sample(line["step"], line) for line in self._own_lines(0) if isinstance(line.get("step"), int) and is_progress(line)
        ]
        # Heartbeats count steps from 0.
        return [replace(one, step=one.step + 1, gates_step=None if one.gates_step is None else one.gates_step + 1) for one in samples]

    def _rows(self, name: str) -> tuple[Mapping[str, str], ...]:
        """Rows of a table; none while it is an earlier run's."""
        table = read_table(self.paths.folder / name, last_bytes=TAIL_BYTES)
        run, _ = self.identity()
        if run and RUN_ID in table.columns:
            return tuple(row for row in table.rows if row.get(RUN_ID) == run)
        rank0 = self.ranks.get(0)
        began_t = None if rank0 is None else process_t(self._proc / str(rank0.pid) / "stat")
        try:
            is_own = began_t is not None and table.path.stat().st_mtime >= began_t
        except OSError:
            is_own = False
        return table.rows if is_own else ()

    def _own_lines(self, rank: int) -> Iterator[Mapping[str, Any]]:
        """The last heartbeat lines of a rank's process."""
        process = self.ranks.get(rank)
        for line in _tail(self.paths.heartbeat(rank)):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict) and process is not None and value.get("pid") == process.pid:
                yield value

    def _find_process(self, heartbeat: Heartbeat) -> RankProcess | None:
        pid = heartbeat.pid
        if pid is None or heartbeat.host not in ("", self._here) or heartbeat.phase == DONE:
            return None
        ticks = read_start_ticks(pid, self._proc)
        began_t = process_t(self._proc / str(pid) / "stat")
        if ticks is None or began_t is None or heartbeat.ts is None or began_t > heartbeat.ts + CLOCK_TOLERANCE_S:
            return None
        event = self._start_event(heartbeat.rank, pid)
        noted_t = event.get("process_t")
        if isinstance(noted_t, float) and abs(noted_t - began_t) > CLOCK_TOLERANCE_S:
            return None
        name = event.get("signal")
        return RankProcess(rank=heartbeat.rank, pid=pid, start_ticks=ticks, signal=name if isinstance(name, str) else None)

    def _start_event(self, rank: int, pid: int) -> Mapping[str, Any]:
        """The newest start event of that process; empty where there is none."""
        found: Mapping[str, Any] = {}
        try:
            for event in read_json_lines(self.paths.events(rank)):
                if event.get("kind") == "start" and event.get("pid") == pid:
                    found = event
        except OSError:
            pass
        return found


def _tail(path: Path) -> list[bytes]:
    try:
        with open(path, "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - TAIL_BYTES))
            return source.read().splitlines()
    except OSError:
        return []


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
