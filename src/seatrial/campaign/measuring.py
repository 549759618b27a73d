"""Measuring attempts, on every core where there are many of them.

In: attempts as read from disk. Out: `MeasuredRun`s in the same order. A process of its own costs a second to start, so a few attempts
are measured here one after another; both ways give the same.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import multiprocessing.connection
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType

from seatrial.kinship import end_with_parent
from seatrial.machine.host import usable_cpu_count
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.measure import RunMeasure
from seatrial.records.results import MeasuredRun

LEAST_FOR_A_WORKER = 100
MOST_WORKERS = 8
HANDED_OUT_AT_ONCE = 16


def measure_all(attempts: Sequence[Attempt]) -> tuple[MeasuredRun, ...]:
    """What each attempt's events or lines say."""
    count = min(usable_cpu_count(), MOST_WORKERS, len(attempts) // LEAST_FOR_A_WORKER)
    if count < 2:
        return tuple(map(measure, attempts))
    try:
        with _Workers(count) as workers:
            measures = workers.map(attempts)
    except (OSError, EOFError):
        # No process to be had, or a worker killed for want of memory: slower is better than not at all.
        return tuple(map(measure, attempts))
    return tuple(MeasuredRun(attempt=attempt, measure=found) for attempt, found in zip(attempts, measures, strict=True))


def measure(attempt: Attempt) -> MeasuredRun:
    """What one attempt's events or lines say."""
    from seatrial.analyse.measure import measure_run
    from seatrial.collect.steps import read_steps
    from seatrial.collect.telemetry import read_telemetry

    if attempt.outcome is None:
        return MeasuredRun(attempt=attempt, measure=None)
    try:
        return MeasuredRun(attempt=attempt, measure=measure_run(attempt, read_steps(attempt), read_telemetry(attempt)))
    except Exception as error:
        # What one odd run wrote must not end a night's campaign, nor keep the others from being reported.
        whole = RunMeasure(source="whole", world_size=attempt.spec.place.ranks, duration_s=attempt.outcome.duration_s)
        return MeasuredRun(attempt=attempt, measure=replace(whole, cautions=(_not_measured(attempt, error),)))


class _Workers:
    """Processes that measure, each at the end of a pipe of its own: no threads, locks or semaphores that an interrupt could leave held."""

    def __init__(self, count: int) -> None:
        # Not forked: this process may have threads, whose locks a fork would copy as they stand.
        self._spawning = multiprocessing.get_context("spawn")
        self._count = count
        self._started: dict[Connection, BaseProcess] = {}

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Killed, not waited for: all is measured, or nobody wants the rest."""
        for ours, worker in self._started.items():
            if worker.pid is not None:
                worker.kill()
                worker.join()
            ours.close()

    def map(self, attempts: Sequence[Attempt]) -> list[RunMeasure | None]:
        """The measures in the order of the attempts; an EOFError when a worker is lost."""
        measures: list[RunMeasure | None] = [None] * len(attempts)
        waiting = collections.deque(range(0, len(attempts), HANDED_OUT_AT_ONCE))
        busy: dict[Connection, int] = {self._start(): first for first in [waiting.popleft() for _ in range(min(self._count, len(waiting)))]}
        for worker, first in busy.items():
            worker.send(attempts[first : first + HANDED_OUT_AT_ONCE])
        while busy:
            for worker in [one for one in multiprocessing.connection.wait(list(busy)) if isinstance(one, Connection)]:
                found = worker.recv()
                first = busy.pop(worker)
                measures[first : first + len(found)] = found
                if waiting:
                    busy[worker] = waiting.popleft()
                    worker.send(attempts[busy[worker] : busy[worker] + HANDED_OUT_AT_ONCE])
        return measures

    def _start(self) -> Connection:
        ours, theirs = self._spawning.Pipe()
        worker = self._spawning.Process(target=_work, args=(theirs, os.getpid()), daemon=True)
        self._started[ours] = worker
        worker.start()
        theirs.close()
        return ours


def _work(pipe: Connection, parent: int) -> None:
    """Measure what comes through the pipe until it is closed."""
    # Ctrl-C is for the parent to act on, and a worker ends with it whichever way it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(signal.SIGKILL)
    # The other cores have workers of their own.
    os.environ["POLARS_MAX_THREADS"] = "1"
    # What is measured is sent away and holds no circles; looking for some after every few hundred records costs a tenth of the time.
    gc.disable()
    with contextlib.suppress(EOFError, OSError):
        while os.getppid() == parent:
            # Without the attempts, which the parent has: a third less to be sent.
            pipe.send([measure(attempt).measure for attempt in pipe.recv()])


def _not_measured(attempt: Attempt, error: Exception) -> Caution:
    return Caution(
        kind="not_measured",
        subject=attempt.spec.run,
        text=f"What this run wrote could not be read ({type(error).__name__}: {error}); it counts as without figures. Please report this "
        "with its launcher.log and event files.",
    )
