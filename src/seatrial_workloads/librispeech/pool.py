"""Many small tasks on a few processes, of which any may be killed. In: a function and tasks. Out: each task with its result, as they come.

A task goes to a worker in a chunk with others, so that passing it on costs little. When a worker dies (the kernel's OOM killer, a decoder
that crashes), each task of the chunk it had is done once more by itself; the one that then takes a second worker with it gets `Died` as
its result, and the others are none the worse. Workers end after the task in hand when they are asked to, and when the parent is gone.
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
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

LARGEST_CHUNK = 16
# So many chunks for each worker at least, so that all end at about the same time.
CHUNKS_PER_WORKER = 8
# The one in work and the next: a worker never waits for the parent.
CHUNKS_AHEAD = 2
# A machine short of memory may kill a worker while it starts; one that always does so cannot be worked on.
MOST_FAILED_STARTS = 4
CLEARING_AWAY_S = 10.0
READY = "ready"


class PoolError(Exception):
    """No task can be done: workers do not start, or the function fails where it should not."""


class Died(NamedTuple):
    """What came of a task that took two workers with it."""

    how: str


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
    """Workers for as long as the block runs. `act` must be picklable, and must return what is wrong with a task instead of raising it."""

    def __init__(self, act: Callable[[Task], Result], num_workers: int) -> None:
        self._act, self._num_workers = act, num_workers
        self._workers: list[Worker[Task]] = []
        self._waiting: deque[Chunk[Task]] = deque()
        self._failed_starts = 0
        # Forked processes would inherit the threads' locks in whatever state they are.
        self._context = multiprocessing.get_context("spawn")

    def __enter__(self) -> Pool[Task, Result]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(CLEARING_AWAY_S)
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()

    def results(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Result | Died]]:
        """Each task with what came of it, in the order in which they end."""
        self._waiting.extend(_chunks(tasks, self._num_workers))
        for _ in range(min(self._num_workers, len(self._waiting))):
            self._workers.append(self._started())
        while self._waiting or any(worker.chunks for worker in self._workers):
            for worker in self._workers:
                self._fill(worker)
            pipes = {worker.pipe: worker for worker in self._workers}
            for pipe in wait(list(pipes)):
                yield from self._hear(pipes[pipe])  # type: ignore[index]

    def _started(self) -> Worker[Task]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(self._act, theirs, os.getpid()), daemon=True)
        process.start()
        # The worker's end must be open there alone: that is how its death is heard.
        theirs.close()
        return Worker(process, ours)

    def _fill(self, worker: Worker[Task]) -> None:
        while self._waiting and len(worker.chunks) < CHUNKS_AHEAD:
            chunk = self._waiting.popleft()
            worker.chunks.append(chunk)
            # A worker that has died is heard of in a moment, and this chunk is then given to another.
            with contextlib.suppress(OSError):
                worker.pipe.send(chunk.tasks)

    def _hear(self, worker: Worker[Task]) -> Iterator[tuple[Task, Result | Died]]:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._bury(worker)
            return
        if message == READY:
            worker.is_ready = True
            self._failed_starts = 0
        elif isinstance(message, str):
            raise PoolError(f"an error of ours in a worker process:\n{message}")
        else:
            yield from zip(worker.chunks.popleft().tasks, message, strict=True)

    def _bury(self, worker: Worker[Task]) -> Iterator[tuple[Task, Result | Died]]:
        worker.process.join()
        worker.pipe.close()
        how = _how_it_ended(worker.process.exitcode)
        if not worker.is_ready:
            self._count_failed_start(worker, how)
        # It works on one chunk at a time, in order: the first it still had is the one it died with.
        killer = worker.chunks.popleft() if worker.is_ready and worker.chunks else None
        self._waiting.extendleft(reversed(worker.chunks))
        if killer and killer.is_second_try:
            yield killer.tasks[0], Died(how)
        elif killer:
            self._waiting.extendleft(Chunk([task], is_second_try=True) for task in reversed(killer.tasks))
        self._workers[self._workers.index(worker)] = self._started()

    def _count_failed_start(self, worker: Worker[Task], how: str) -> None:
        self._failed_starts += 1
        was_killed = (worker.process.exitcode or 0) < 0
        if not was_killed or self._failed_starts >= MOST_FAILED_STARTS:
            raise PoolError(f"a worker process {how} before it could start; what it printed stands above")


def _chunks(tasks: Sequence[Task], num_workers: int) -> Iterator[Chunk[Task]]:
    size = max(1, min(LARGEST_CHUNK, len(tasks) // (num_workers * CHUNKS_PER_WORKER)))
    for start in range(0, len(tasks), size):
        yield Chunk(list(tasks[start : start + size]))


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    return f"ended with exit code {exit_code}"


def _work(act: Callable[[Any], Any], pipe: Connection, parent: int) -> None:
    """What a worker does all its life."""
    asked_to_stop = False

    def on_term(number: int, frame: object) -> None:
        nonlocal asked_to_stop
        # Not an exception: raised inside a decoder's callback it would be swallowed there.
        asked_to_stop = True

    # Ctrl-C reaches every process of the terminal; it is the parent's to act on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, on_term)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(READY)
        while True:
            results = []
            for task in pipe.recv():
                if asked_to_stop or os.getppid() != parent:
                    return
                try:
                    results.append(act(task))
                except Exception:
                    pipe.send(traceback.format_exc())
                    return
            pipe.send(results)
