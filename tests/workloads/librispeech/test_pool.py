"""The pool: every task gets its result, whatever becomes of the workers. Real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial_workloads.librispeech.pool import LARGEST_CHUNK, Died, Pool, PoolError, _chunks
from tests.workloads.librispeech.trees import CannotStart, DieOnce, divide_ten_by, square_or_die


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_kills_its_worker_is_the_only_one_lost(workers: int) -> None:
    with Pool(square_or_die, workers) as pool:
        results = dict(pool.results(range(300)))
    assert results.pop(7) == Died("was killed by SIGKILL (out of memory?)")
    assert results == {number: number * number for number in range(300) if number != 7}


def test_a_worker_that_is_killed_once_costs_nothing(tmp_path: Path) -> None:
    with Pool(DieOnce(tmp_path / "died"), 1) as pool:
        assert dict(pool.results(range(40))) == {number: -number for number in range(40)}
    assert (tmp_path / "died").exists()


def test_an_error_of_ours_is_told_with_its_trace() -> None:
    with pytest.raises(PoolError, match="ZeroDivisionError"), Pool(divide_ten_by, 1) as pool:
        list(pool.results([5, 2, 0]))


def test_workers_that_cannot_start_are_not_started_for_ever() -> None:
    with pytest.raises(PoolError, match="before it could start"), Pool(CannotStart(), 1) as pool:
        list(pool.results([1, 2]))


def test_nothing_to_do_starts_nothing() -> None:
    with Pool(CannotStart(), 2) as pool:
        assert list(pool.results([])) == []


@pytest.mark.parametrize(("tasks", "workers", "chunks"), [(1, 4, 1), (7, 2, 7), (64, 2, 16), (10_000, 2, 625)])
def test_chunks_are_large_where_there_is_much_to_do(tasks: int, workers: int, chunks: int) -> None:
    cut = list(_chunks(range(tasks), workers))
    assert len(cut) == chunks and [task for chunk in cut for task in chunk.tasks] == list(range(tasks))
    assert max(len(chunk.tasks) for chunk in cut) <= LARGEST_CHUNK
