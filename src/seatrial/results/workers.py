"""Attempts measured, many of them by worker processes on every core.

In: attempts as read from disk, and the detail of their charts, if any. Out: `MeasuredRun`s in the same order. Charts of a run are computed
here too, while its tables are in memory: only those of current attempts, and for the live page those of running ones.
`python -m seatrial.results.workers PIPE PARENT` is one worker.

Workers are programs of their own and not concurrent.futures: children of `multiprocessing` read their task before any line of ours runs and
hold both ends of their queue, so that they print a traceback on the user's terminal, or stay behind, when the parent is killed meanwhile.
Each worker here is at the end of its own pipe, without threads, locks or semaphores that an interrupt could leave held. A worker takes half
a second to start, so a few attempts are measured in this process; both ways give the same. `seatrial_workloads.librispeech.pool` is another
such pool: the harness imports no workload, and a workload runs without the harness.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from seatrial.core.linux import set_parent_death_signal
from seatrial.core.paths import AttemptPaths
from seatrial.core.shell import KILL_TIMEOUT_S, module_argv, wait_for_exit
from seatrial.machine.host import usable_cpu_count
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import Caution
from seatrial.records.columns import Detail, RunCharts
from seatrial.records.measure import RunMeasure
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.telemetry import TelemetryTables

if TYPE_CHECKING:
    from seatrial.collect.steps import ReadAhead

# Below this many attempts a worker costs more than it saves.
MIN_ATTEMPTS_PER_WORKER = 100
MAX_WORKERS = 8
BATCH_SIZE = 16
MEASURING = ("seatrial.analyse.measure", "seatrial.analyse.charts.run_charts", "seatrial.collect.steps", "seatrial.collect.telemetry")
"""Loaded before there is anything to measure."""

Found = tuple[RunMeasure | None, RunCharts | None]
"""A MeasuredRun without its attempt, which the parent has already."""


def load_measuring() -> None:
    """Import polars and what measures with it."""
    for name in MEASURING:
        importlib.import_module(name)


def measure_all(attempts: Sequence[Attempt], detail: Detail | None = None) -> tuple[MeasuredRun, ...]:
    """Measure every attempt; chart the current ones in that detail."""
    with Workers(len(attempts)) as workers:
        return workers.measure_all(attempts, detail)


def measure_batch(attempts: Sequence[Attempt], detail: Detail | None) -> list[Found]:
    """Measure attempts whose files are read together."""
    from seatrial.collect.steps import NOTHING, read_ahead

    try:
        ahead = read_ahead(attempts)
    except Exception:
        # Each is then read by itself, and the error is reported for the attempt that causes it.
        ahead = NOTHING
    return [(run.measure, run.charts) for run in (measure(attempt, detail, ahead) for attempt in attempts)]


def measure(attempt: Attempt, detail: Detail | None = None, ahead: ReadAhead | None = None) -> MeasuredRun:
    """Measure one attempt; `ahead` is the part of its files that has been read already."""
    from seatrial.analyse.measure import measure_run
    from seatrial.collect.steps import NOTHING, read_steps
    from seatrial.collect.telemetry import read_telemetry

    if attempt.outcome is None:
        return MeasuredRun(attempt=attempt, measure=None)
    try:
        tables = read_steps(attempt, ahead or NOTHING)
        samples = read_telemetry(attempt, ahead.samples if ahead else None)
        earlier = [read_steps(one) for one in _earlier(attempt)]
        while earlier and tables.steps.is_empty():
            # It took no step of its own: the steps are those of the attempt before.
            tables = earlier.pop()
        found = measure_run(attempt, tables, samples, earlier)
    except Exception as error:
        # One damaged run must not end a night's campaign, nor keep the others from being reported.
        whole = RunMeasure(source="whole", world_size=attempt.spec.place.ranks, duration_s=attempt.outcome.duration_s)
        caution = Caution(
            kind="not_measured",
            subject=attempt.spec.run,
            text=f"The files of this run could not be read ({type(error).__name__}: {error}); it has no figures. Please report this with "
            "its launcher.log and event files.",
        )
        return MeasuredRun(attempt=attempt, measure=replace(whole, cautions=(caution,)))
    if detail is None or not attempt.current:
        return MeasuredRun(attempt=attempt, measure=found)
    return _draw(MeasuredRun(attempt=attempt, measure=found), found, tables, samples, detail)


def _earlier(attempt: Attempt) -> list[Attempt]:
    """The attempts whose checkpoints it resumed from, oldest first."""
    from seatrial.collect.attempts import read_attempt
    from seatrial.records.stored import earlier_attempts

    if attempt.outcome is None or attempt.outcome.resumed_from is None:
        return []
    found = (read_attempt(paths) for paths in earlier_attempts(AttemptPaths(Path(attempt.folder))))
    return [one for one in found if one is not None and one.outcome is not None]


def _draw(run: MeasuredRun, found: RunMeasure, tables: StepTables, samples: TelemetryTables, detail: Detail) -> MeasuredRun:
    """The run with its charts; where that fails, with a caution and its figures."""
    from seatrial.analyse.charts.run_charts import run_charts

    try:
        return replace(run, charts=run_charts(run.attempt, tables, samples, found, detail))
    except Exception as error:
        caution = Caution(
            kind="not_drawn",
            subject=run.attempt.spec.run,
            text=f"No chart of this run could be drawn ({type(error).__name__}: {error}); its figures are not affected. Please report this "
            "with its event files and telemetry.",
        )
        return replace(run, measure=replace(found, cautions=(*found.cautions, caution)))


def add_live_charts(results: CampaignResults) -> CampaignResults:
    """The results with charts of the running attempts as well."""
    from seatrial.analyse.charts.run_charts import detail_for

    if not any(run.attempt.current and run.outcome is None for run in results.runs):
        return results
    detail = detail_for(sum(run.attempt.current for run in results.runs))
    runs = [
        replace(run, charts=draw_running(run.attempt, detail)) if run.attempt.current and run.outcome is None else run
        for run in results.runs
    ]
    return replace(results, runs=tuple(runs))


def draw_running(attempt: Attempt, detail: Detail) -> RunCharts:
    """Charts of what a running attempt has written so far, with the window it would have if it ended now; empty where its files cannot be
    read: the page is refreshed soon."""
    from seatrial.analyse.charts.run_charts import run_charts
    from seatrial.analyse.measure import measure_run
    from seatrial.collect.steps import read_steps
    from seatrial.collect.telemetry import read_telemetry

    try:
        tables, samples = read_steps(attempt), read_telemetry(attempt)
        found = measure_run(attempt, tables, samples)
        return run_charts(attempt, tables, samples, found, detail, launched_t=launched_t(attempt))
    except Exception:
        # Files that are being written may hold anything.
        return RunCharts()


def launched_t(attempt: Attempt) -> float | None:
    """Wall clock of the launch, from the file that is written last before it."""
    paths = AttemptPaths(Path(attempt.folder))
    for path in (paths.provenance, paths.agent_order, paths.environment):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return None


class Workers:
    """Processes that measure attempts. They may start before the attempts are known, and import what they need meanwhile."""

    def __init__(self, attempts: int) -> None:
        """Choose how many workers pay off for about `attempts`; none for a few."""
        count = min(usable_cpu_count(), MAX_WORKERS, attempts // MIN_ATTEMPTS_PER_WORKER)
        self._count = count if count > 1 else 0
        self._started: dict[Connection, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Workers:
        # Without new processes it is slower, and still done.
        with contextlib.suppress(OSError):
            for _ in range(self._count):
                self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Kill the workers: all is measured, or the rest is not needed."""
        for worker in self._started.values():
            worker.kill()
        until_m = time.monotonic() + KILL_TIMEOUT_S
        for ours, worker in self._started.items():
            wait_for_exit(worker, until_m - time.monotonic())
            ours.close()

    def measure_all(self, attempts: Sequence[Attempt], detail: Detail | None = None) -> tuple[MeasuredRun, ...]:
        """Measure every attempt; chart the current ones in that detail."""
        try:
            found = self._map(attempts, detail) if self._started else _one_by_one(attempts, detail)
        except (OSError, EOFError):
            # A worker was killed, for example for its memory: measure in this process.
            found = _one_by_one(attempts, detail)
        return tuple(
            MeasuredRun(attempt=attempt, measure=one, charts=charts) for attempt, (one, charts) in zip(attempts, found, strict=True)
        )

    def _map(self, attempts: Sequence[Attempt], detail: Detail | None) -> list[Found]:
        """Measured in the order of the attempts; an EOFError where a worker is lost."""
        measures: list[Found] = [(None, None)] * len(attempts)
        waiting = collections.deque(range(0, len(attempts), BATCH_SIZE))
        busy: dict[Connection, int] = {worker: waiting.popleft() for worker in list(self._started)[: len(waiting)]}
        for worker, first in busy.items():
            worker.send((attempts[first : first + BATCH_SIZE], detail))
        while busy:
            for worker in [one for one in wait(list(busy)) if isinstance(one, Connection)]:
                found = worker.recv()
                first = busy.pop(worker)
                measures[first : first + len(found)] = found
                if waiting:
                    busy[worker] = waiting.popleft()
                    worker.send((attempts[busy[worker] : busy[worker] + BATCH_SIZE], detail))
        return measures

    def _start(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            argv = (*module_argv("seatrial.results.workers"), str(theirs.fileno()), str(os.getpid()))
            # The other cores have workers of their own. In its own process group: Ctrl-C is handled by this process.
            env = {**os.environ, "POLARS_MAX_THREADS": "1"}
            self._started[ours] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env, pass_fds=(theirs.fileno(),), process_group=0)


def _one_by_one(attempts: Sequence[Attempt], detail: Detail | None) -> list[Found]:
    starts = range(0, len(attempts), BATCH_SIZE)
    return [found for start in starts for found in measure_batch(attempts[start : start + BATCH_SIZE], detail)]


def serve(pipe: Connection, parent: int) -> None:
    """Run a worker: measure what comes through the pipe until it is closed or the parent is gone, and print nothing."""
    set_parent_death_signal(signal.SIGKILL)
    # What is measured is sent away and has no reference cycles; searching for them takes a tenth of the time.
    gc.disable()
    with contextlib.suppress(EOFError, OSError):
        load_measuring()
        while os.getppid() == parent:
            pipe.send(measure_batch(*pipe.recv()))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
