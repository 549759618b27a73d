"""A process pool that survives killed workers. In: a function and tasks. Out: each task with its result, in order of completion.

Tasks are sent in chunks, to save messages. When a worker dies (OOM killer, crashing decoder), each task of its chunk is retried alone; one
that kills a second worker gets `CrashedTask` as its result. Workers exit after the current task on SIGTERM and when the parent is gone.

Not concurrent.futures: there one dead worker fails every pending task and neither the task nor the signal is known, an interrupt waits for
whole chunks, and workers of a killed parent stay forever. `seatrial.results.workers` is another pool, of the harness: a workload runs
without it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NamedTuple, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

MAX_CHUNK = 16
# Minimum chunks per worker, so that all finish at about the same time.
CHUNKS_PER_WORKER = 8
# The current one and the next: a worker never waits for the parent.
CHUNKS_AHEAD = 2
# A machine short of memory may kill a starting worker; give up if it always does.
MAX_FAILED_STARTS = 4
JOIN_TIMEOUT_S = 10.0
READY = "ready"


class PoolError(Exception):
    """Workers do not start, or the function raised."""


class CrashedTask(NamedTuple):
    """Result of a task that killed two workers."""

    reason: str


@dataclass(frozen=True)
class Chunk(Generic[Task]):
    tasks: list[Task]
    is_second_try: bool = False


@dataclass
class Worker(Generic[Task]):
    process: BaseProcess
    pipe: Connection
    chunks: deque[Chunk[Task]] = field(default_factory=deque)
    is_ready: bool = False


class Pool(Generic[Task, Result]):
    """Workers for the duration of the block. `act` must be picklable, and return errors of a task instead of raising."""

    def __init__(self, act: Callable[[Task], Result], num_workers: int) -> None:
        self._act, self._num_workers = act, num_workers
        self._workers: list[Worker[Task]] = []
        self._waiting: deque[Chunk[Task]] = deque()
        self._failed_starts = 0
        # Forked processes would inherit locks of other threads in any state.
        self._context = multiprocessing.get_context("spawn")

    def __enter__(self) -> Pool[Task, Result]:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(JOIN_TIMEOUT_S)
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Result | CrashedTask]]:
        """Each task with its result, in order of completion."""
        self._waiting.extend(_chunks(tasks, self._num_workers))
        for _ in range(min(self._num_workers, len(self._waiting))):
            self._workers.append(self._start_worker())
        while self._waiting or any(worker.chunks for worker in self._workers):
            for worker in self._workers:
                self._fill(worker)
            pipes = {worker.pipe: worker for worker in self._workers}
            for pipe in wait(list(pipes)):
                yield from self._receive(pipes[pipe])  # type: ignore[index]

    def _start_worker(self) -> Worker[Task]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(self._act, theirs, os.getpid()), daemon=True)
        process.start()
        # Only the worker may hold its end open: its death is noticed by the closed pipe.
        theirs.close()
        return Worker(process, ours)

    def _fill(self, worker: Worker[Task]) -> None:
        while self._waiting and len(worker.chunks) < CHUNKS_AHEAD:
            chunk = self._waiting.popleft()
            worker.chunks.append(chunk)
            # A dead worker is noticed in a moment, and this chunk then goes to another.
            with contextlib.suppress(OSError):
                worker.pipe.send(chunk.tasks)

    def _receive(self, worker: Worker[Task]) -> Iterator[tuple[Task, Result | CrashedTask]]:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._replace_dead(worker)
            return
        if message == READY:
            worker.is_ready = True
            self._failed_starts = 0
        elif isinstance(message, str):
            raise PoolError(f"internal error in a worker process:\n{message}")
        else:
            yield from zip(worker.chunks.popleft().tasks, message, strict=True)

    def _replace_dead(self, worker: Worker[Task]) -> Iterator[tuple[Task, Result | CrashedTask]]:
        worker.process.join()
        worker.pipe.close()
        exit_code = worker.process.exitcode or 0
        how = _describe_exit(exit_code)
        self._failed_starts += not worker.is_ready
        if not worker.is_ready and (exit_code >= 0 or self._failed_starts >= MAX_FAILED_STARTS):
            raise PoolError(f"a worker process {how} before it could start; see its output above")
        # A worker processes chunks in order: it died with the first one left.
        fatal = worker.chunks.popleft() if worker.is_ready and worker.chunks else None
        self._waiting.extendleft(reversed(worker.chunks))
        if fatal and fatal.is_second_try:
            yield fatal.tasks[0], CrashedTask(how)
        elif fatal:
            self._waiting.extendleft(Chunk([task], is_second_try=True) for task in reversed(fatal.tasks))
        self._workers[self._workers.index(worker)] = self._start_worker()


def _chunks(tasks: Sequence[Task], num_workers: int) -> Iterator[Chunk[Task]]:
    size = max(1, min(MAX_CHUNK, len(tasks) // (num_workers * CHUNKS_PER_WORKER)))
    for start in range(0, len(tasks), size):
        yield Chunk(list(tasks[start : start + size]))


def _describe_exit(exit_code: int) -> str:
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    return f"ended with exit code {exit_code}"


def _work(act: Callable[[Any], Any], pipe: Connection, parent: int) -> None:
    """Main loop of a worker."""
    is_stopping = False

    def on_term(number: int, frame: object) -> None:
        nonlocal is_stopping
        # Not an exception: raised inside a decoder's callback it would be swallowed there.
        is_stopping = True

    # Ctrl-C reaches every process of the terminal; the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, on_term)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(READY)
        while True:
            results = []
            for task in pipe.recv():
                if is_stopping or os.getppid() != parent:
                    return
                try:
                    results.append(act(task))
                except Exception:
                    pipe.send(traceback.format_exc())
                    return
            pipe.send(results)
