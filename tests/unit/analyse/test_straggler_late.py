"""One rank against the others, and the rank that drives them all, in tables small enough to reckon by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seatrial.analyse.straggler_late import Late, driving_rank, latest, slow_ranks
from seatrial.analyse.straggler_work import RankWork

STEPS = 40


def work(phases: dict[str, list[float]], iter_ms: list[float] | None = None, steps: int = STEPS) -> RankWork:
    """Every step alike: phases by rank, and the time of the whole step."""
    tables = {name: np.repeat(np.array(values)[:, None], steps, axis=1) for name, values in phases.items()}
    ranks = len(next(iter(phases.values())))
    known = None if iter_ms is None else np.repeat(np.array(iter_ms)[:, None], steps, axis=1)
    return RankWork(ranks=np.arange(ranks), steps=np.arange(steps), phases=tables, shared=tuple(phases), iter_ms=known)


def late(**changes: object) -> Late:
    values = {
        "at": 0,
        "extra_ms": 10.0,
        "share": 1.0,
        "errors": 9.0,
        "own_ms": 50.0,
        "rest_ms": 10.0,
        "outside_ms": 0.0,
        "longer": {"fwd": 10.0},
    }
    return Late(**{**values, **changes})  # type: ignore[arg-type]


def test_the_rank_that_waits_least_and_where_it_works_longer() -> None:
    # Rank 1 works 8 ms longer in fwd and 2 ms in step, and waits 10 ms less in bwd than the others.
    found = latest(work({"fwd": [30, 38, 30], "bwd": [50, 40, 50], "step": [15, 17, 15]}, [100, 100, 100]), "bwd")
    assert (found.at, found.extra_ms, found.share, found.errors) == (1, 10.0, 1.0, math.inf)
    assert found.longer == {"fwd": 8.0, "step": 2.0} and found.rest_ms == 10.0 and found.phase == "fwd"
    assert found.outside_ms == 0.0
    # A step of 100 ms, less 50 of waiting, and of that the 40 that all must spend there.
    assert found.own_ms == 90.0 and found.score == pytest.approx(10 / 90)


def test_what_lies_outside_of_all_phases() -> None:
    found = latest(work({"fwd": [30, 30], "bwd": [50, 40]}, [80, 82]), "bwd")
    assert (found.at, found.outside_ms, found.rest_ms, found.phase) == (1, 12.0, 0.0, "")
    assert latest(work({"fwd": [30, 30], "bwd": [50, 40]}), "bwd").outside_ms is None


def test_of_three_ranks_one_odd_one_moves_nothing() -> None:
    """Against 50 and 90 the lower counts."""
    assert latest(work({"bwd": [40, 50, 90]}), "bwd").extra_ms == 10.0
    assert latest(work({"bwd": [40, 50, 60, 90]}), "bwd").extra_ms == 20.0


@pytest.mark.parametrize(("rest_ms", "is_in"), [(5.0, True), (4.9, False)])
def test_half_of_it_must_be_found_in_phases(rest_ms: float, is_in: bool) -> None:
    found = late(rest_ms=rest_ms, longer={"fwd": 3.0, "step": 4.0})
    assert found.is_in_phases is is_in and found.phase == ("step" if is_in else "")
    assert not late(longer={}).is_in_phases


def test_a_score_needs_work_of_the_others() -> None:
    assert late().score == 0.2 and late(own_ms=0.0).score == 0.0 == late(own_ms=-1.0).score


def test_slow_ranks_wait_less_by_so_much_and_in_nearly_all_steps() -> None:
    waits = np.full((3, 10), 50.0)
    waits[0] = 40.0
    assert slow_ranks(waits, 10.0).tolist() == [True, False, False]
    assert slow_ranks(waits, 10.1).tolist() == [False, False, False]
    waits[0, :2] = 50.0
    assert slow_ranks(waits, 10.0).tolist() == [True, False, False], "eight of ten are nearly all"
    waits[0, :3] = 50.0
    assert slow_ranks(waits, 10.0).tolist() == [False, False, False]


def test_the_extra_is_told_in_standard_errors_and_steps_that_go_together_count_as_fewer() -> None:
    chance = np.random.default_rng(5).normal(0.0, 1.0, 400)
    apart, together = work({"bwd": [50.0, 40.0]}, steps=400), work({"bwd": [50.0, 40.0]}, steps=400)
    apart.phases["bwd"][1] += chance
    together.phases["bwd"][1] += np.sort(chance)
    assert latest(apart, "bwd").errors == pytest.approx(10 / (1.2533 / 20), rel=0.15)
    assert latest(together, "bwd").errors < latest(apart, "bwd").errors / 5


def driven(ranks: int = 4, steps: int = 300, *, drives: bool = True) -> RankWork:
    """Chance delays of every rank before bwd; the step is as long as rank 2 makes it, or as a delay of nobody's."""
    chance = np.random.default_rng(7).normal(0.0, 2.0, (ranks, steps))
    common = chance[2] if drives else np.random.default_rng(8).normal(0.0, 2.0, steps)
    phases = {"fwd": 30.0 + chance, "bwd": 50.0 + common - chance}
    return RankWork(ranks=np.arange(ranks), steps=np.arange(steps), phases=phases, shared=("fwd", "bwd"), iter_ms=None)


def test_the_rank_whose_chance_delays_become_everybodys() -> None:
    assert driving_rank(driven(), "bwd", 60.0) == 2
    assert driving_rank(driven(drives=False), "bwd", 60.0) is None


def test_delays_too_small_to_matter_and_none_at_all_say_nothing() -> None:
    assert driving_rank(driven(), "bwd", 60_000.0) is None
    assert driving_rank(driven(), "bwd", 0.0) is None
    assert driving_rank(work({"fwd": [30, 30], "bwd": [50, 50]}), "bwd", 60.0) is None
