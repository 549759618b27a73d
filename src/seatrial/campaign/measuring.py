"""Measuring attempts, on every core where there are many of them.

In: attempts as read from disk, and how much of each is to be drawn, where anything is. Out: `MeasuredRun`s in the same order. A process of
its own costs half a second to start, so a few attempts are measured here one after another; both ways give the same. `Workers` may be
started before the attempts are known, and begin meanwhile. What can be drawn of a run is made here too, while its tables are in memory;
only the attempts that count are drawn.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING

from seatrial.launch.own_programs import program_words
from seatrial.machine.host import usable_cpu_count
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.charts import Detail, RunCharts
from seatrial.records.measure import RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.records.steps import StepTables
from seatrial.records.telemetry import TelemetryTables
from seatrial.shell import KILLED_S, is_over_within

if TYPE_CHECKING:
    from seatrial.collect.ahead import Ahead

LEAST_FOR_A_WORKER = 100
MOST_WORKERS = 8
HANDED_OUT_AT_ONCE = 16
Measuring = Callable[[Sequence[Attempt], Detail | None], tuple[MeasuredRun, ...]]
"""`measure_all`, or what takes its place."""
Found = tuple[RunMeasure | None, RunCharts | None]
"""What a worker sends back: a MeasuredRun without its attempt, which the parent has."""


def measure_all(attempts: Sequence[Attempt], detail: Detail | None = None) -> tuple[MeasuredRun, ...]:
    """What each attempt's events or lines say, and what can be drawn of it in that detail."""
    with Workers(len(attempts)) as workers:
        return workers.measure_all(attempts, detail)


def measure_some(attempts: Sequence[Attempt], detail: Detail | None) -> list[Found]:
    """Of some attempts whose files are read together."""
    from seatrial.collect.ahead import NOTHING, read_ahead

    try:
        ahead = read_ahead(attempts)
    except Exception:
        # Then each is read by itself, and what is odd about one is said of that one.
        ahead = NOTHING
    return [(run.measure, run.charts) for run in (measure(attempt, detail, ahead) for attempt in attempts)]


def measure(attempt: Attempt, detail: Detail | None = None, ahead: Ahead | None = None) -> MeasuredRun:
    """What one attempt's events or lines say; with something to draw where `detail` is given and the attempt counts. `ahead` is what has
    been read of it already."""
    from seatrial.analyse.measure import measure_run
    from seatrial.collect.steps import read_steps
    from seatrial.collect.telemetry import read_telemetry

    if attempt.outcome is None:
        return MeasuredRun(attempt=attempt, measure=None)
    try:
        tables = read_steps(attempt, ahead.events if ahead else None)
        samples = read_telemetry(attempt, ahead.samples if ahead else None)
        found = measure_run(attempt, tables, samples)
    except Exception as error:
        # What one odd run wrote must not end a night's campaign, nor keep the others from being reported.
        whole = RunMeasure(source="whole", world_size=attempt.spec.place.ranks, duration_s=attempt.outcome.duration_s)
        return MeasuredRun(attempt=attempt, measure=replace(whole, cautions=(_not_measured(attempt, error),)))
    if detail is None or not attempt.current:
        return MeasuredRun(attempt=attempt, measure=found)
    return _drawn(MeasuredRun(attempt=attempt, measure=found), found, tables, samples, detail)


def _drawn(run: MeasuredRun, found: RunMeasure, tables: StepTables, samples: TelemetryTables, detail: Detail) -> MeasuredRun:
    """The run with what can be drawn of it; where that fails, with a caution, and its figures stay."""
    from seatrial.analyse.charts.run import run_charts

    try:
        return replace(run, charts=run_charts(run.attempt, tables, samples, found, detail))
    except Exception as error:
        return replace(run, measure=replace(found, cautions=(*found.cautions, _not_drawn(run.attempt, error))))


class Workers:
    """Processes that measure, each at the end of a pipe of its own: no threads, locks or semaphores that an interrupt could leave held."""

    def __init__(self, attempts: int) -> None:
        """As many as serve for about so many attempts; none where they are few."""
        count = min(usable_cpu_count(), MOST_WORKERS, attempts // LEAST_FOR_A_WORKER)
        self._count = count if count > 1 else 0
        self._started: dict[Connection, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Workers:
        # No process to be had: slower is better than not at all.
        with contextlib.suppress(OSError):
            for _ in range(self._count):
                self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Killed, whatever they do: all is measured, or nobody wants the rest."""
        for worker in self._started.values():
            worker.kill()
        until_m = time.monotonic() + KILLED_S
        for ours, worker in self._started.items():
            is_over_within(worker, until_m - time.monotonic())
            ours.close()

    def measure_all(self, attempts: Sequence[Attempt], detail: Detail | None = None) -> tuple[MeasuredRun, ...]:
        """As `measure_all`."""
        try:
            found = self._map(attempts, detail) if self._started else _one_by_one(attempts, detail)
        except (OSError, EOFError):
            # A worker killed for want of memory: slower is better than not at all.
            found = _one_by_one(attempts, detail)
        return tuple(
            MeasuredRun(attempt=attempt, measure=of_it, charts=drawn) for attempt, (of_it, drawn) in zip(attempts, found, strict=True)
        )

    def _map(self, attempts: Sequence[Attempt], detail: Detail | None) -> list[Found]:
        """What was found, in the order of the attempts; an EOFError when a worker is lost."""
        measures: list[Found] = [(None, None)] * len(attempts)
        waiting = collections.deque(range(0, len(attempts), HANDED_OUT_AT_ONCE))
        busy: dict[Connection, int] = {worker: waiting.popleft() for worker in list(self._started)[: len(waiting)]}
        for worker, first in busy.items():
            worker.send((attempts[first : first + HANDED_OUT_AT_ONCE], detail))
        while busy:
            for worker in [one for one in multiprocessing.connection.wait(list(busy)) if isinstance(one, Connection)]:
                found = worker.recv()
                first = busy.pop(worker)
                measures[first : first + len(found)] = found
                if waiting:
                    busy[worker] = waiting.popleft()
                    worker.send((attempts[busy[worker] : busy[worker] + HANDED_OUT_AT_ONCE], detail))
        return measures

    def _start(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            argv = (*program_words("seatrial.campaign.measuring_process"), str(theirs.fileno()), str(os.getpid()))
            # The other cores have workers of their own. In its own process group: Ctrl-C is for this process to act on.
            env = {**os.environ, "POLARS_MAX_THREADS": "1"}
            self._started[ours] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env, pass_fds=(theirs.fileno(),), process_group=0)


def _one_by_one(attempts: Sequence[Attempt], detail: Detail | None) -> list[Found]:
    starts = range(0, len(attempts), HANDED_OUT_AT_ONCE)
    return [found for start in starts for found in measure_some(attempts[start : start + HANDED_OUT_AT_ONCE], detail)]


def _not_measured(attempt: Attempt, error: Exception) -> Caution:
    return Caution(
        kind="not_measured",
        subject=attempt.spec.run,
        text=f"What this run wrote could not be read ({type(error).__name__}: {error}); it counts as without figures. Please report this "
        "with its launcher.log and event files.",
    )


def _not_drawn(attempt: Attempt, error: Exception) -> Caution:
    return Caution(
        kind="not_drawn",
        subject=attempt.spec.run,
        text=f"No chart could be made of what this run wrote ({type(error).__name__}: {error}); its figures are not touched. Please report "
        "this with its event files and telemetry.",
    )
