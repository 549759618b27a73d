"""Measuring attempts, on every core where there are many of them.

In: attempts as read from disk. Out: `MeasuredRun`s in the same order. A process of its own costs a second to start, so a few attempts
are measured here one after another; both ways give the same.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

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
    workers = min(usable_cpu_count(), MOST_WORKERS, len(attempts) // LEAST_FOR_A_WORKER)
    if workers < 2:
        return tuple(map(measure, attempts))
    try:
        # Not forked: this process may have threads, whose locks a fork would copy as they stand.
        spawning = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=spawning, initializer=_begin_worker) as pool:
            measures = pool.map(_measure_alone, attempts, chunksize=HANDED_OUT_AT_ONCE)
            return tuple(MeasuredRun(attempt=attempt, measure=found) for attempt, found in zip(attempts, measures, strict=True))
    except (OSError, BrokenProcessPool):
        # No semaphores in this container, or a worker killed for want of memory: slower is better than not at all.
        return tuple(map(measure, attempts))


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


def _measure_alone(attempt: Attempt) -> RunMeasure | None:
    """Without the attempt, which the parent has: a third less to be sent."""
    return measure(attempt).measure


def _begin_worker() -> None:
    """Ctrl-C is for the parent to act on; and the other cores have workers of their own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["POLARS_MAX_THREADS"] = "1"


def _not_measured(attempt: Attempt, error: Exception) -> Caution:
    return Caution(
        kind="not_measured",
        subject=attempt.spec.run,
        text=f"What this run wrote could not be read ({type(error).__name__}: {error}); it counts as without figures. Please report this "
        "with its launcher.log and event files.",
    )
