"""The step to halt at: beyond what any rank can have begun, and near."""

from __future__ import annotations

import pytest

from seatrial.observe.halt_step import halt_step
from seatrial.observe.progress import Progress, RankMark, RankStanding
from tests.unit.observe.simulated_run import WALL_0, Rank, progress_at


def at(
    step: int, *, step_t: float = 100.0, iter_ms: float | None = 50.0, beat_t: float = 100.0, phase: str = "bwd", rank: int = 0
) -> Progress:
    return Progress(
        step=step,
        ranks=(RankMark(rank=rank, step=step, step_t=step_t, iter_ms_p50=iter_ms),),
        standings=(RankStanding(rank=rank, step=step, phase=phase, beat_ts=beat_t),),
    )


def both(one: Progress, other: Progress) -> Progress:
    return Progress(ranks=one.ranks + other.ranks, standings=one.standings + other.standings)


@pytest.mark.parametrize(
    ("progress", "now_t", "expected"),
    [
        (at(10), 100.0, 10 + 40),
        (at(10), 103.0, 10 + 60 + 40),
        (at(10, iter_ms=5000.0), 103.0, 10 + 2),
        (at(10, iter_ms=5000.0), 105.1, 10 + 1 + 2),
        (at(10, iter_ms=None), 103.0, 12),
        (at(0), 100.0, 40),
        (Progress(), 100.0, 2),
    ],
    ids=["now", "untold", "slow", "slow-untold", "paceless", "first", "none"],
)
def test_two_seconds_of_steps_beyond_the_furthest(progress: Progress, now_t: float, expected: int) -> None:
    assert halt_step(progress, now_t) == expected


def test_the_rank_that_is_furthest_decides() -> None:
    assert halt_step(both(at(10), at(500, rank=1)), 100.0) == 540
    assert halt_step(both(at(10, iter_ms=1.0), at(500, rank=1)), 100.0) == 2010


def test_a_rank_that_is_done_does_not_unless_all_are() -> None:
    done = at(999, phase="done", rank=1)
    assert halt_step(both(at(10), done), 100.0) == 50
    assert halt_step(done, 100.0) == 1039


def test_a_rank_that_has_stood_still_for_long_is_not_far_ahead() -> None:
    """Its heartbeat of a second ago says that it is still in the step after 1850."""
    assert halt_step(at(1850, step_t=100.0, beat_t=400.0), 401.0) == 1850 + 21 + 40


@pytest.mark.parametrize("now_t", [-1e9, 0.0, 99.0, 100.0 + 1e9])
def test_a_clock_that_was_set_gives_no_absurd_number(now_t: float) -> None:
    assert 10 + 40 <= halt_step(at(10), now_t) <= 10 + 1200 + 40
    assert halt_step(at(10, iter_ms=1e-9), now_t) <= 10 + 620_000


def test_a_beat_from_the_future_is_not_believed() -> None:
    assert halt_step(at(10, step_t=100.0, beat_t=9e9), 101.0) == 10 + 20 + 40


def test_no_rank_has_begun_it_in_a_run_that_goes_on() -> None:
    ranks = [Rank(rank=rank, iter_s=0.05) for rank in range(4)]
    for t in (20.0, 63.3, 124.9):
        asked = halt_step(progress_at(t, ranks), WALL_0 + t)
        soon = max(rank.state(t + 1.0)[0] or 0 for rank in ranks)
        late = max(rank.state(t + 3.0)[0] or 0 for rank in ranks)
        assert soon + 1 < asked <= late
