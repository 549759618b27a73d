"""What is said of a rank that holds the others up, and why nothing can be said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seatrial.analyse import straggler_words as words
from seatrial.analyse.straggler_late import Late
from seatrial.analyse.straggler_work import RankWork
from seatrial.records.health import RankPlace

WORK = RankWork(ranks=np.array([0, 3]), steps=np.array([5, 6, 9]), phases={}, shared=("bwd",), iter_ms=None)
LATE = Late(at=1, extra_ms=10.0, share=0.957, errors=9.0, own_ms=50.0, rest_ms=10.0, outside_ms=0.0, longer={"fwd": 8.0, "step": 2.0})


def test_steps_are_told_with_their_number() -> None:
    assert words.span(WORK) == "steps 5–9, n = 3"
    assert words.too_few(WORK, 20).startswith("Only 3 steps have the phases of all 2 ranks, and 20 are needed: run more steps")


@pytest.mark.parametrize(
    ("seen", "world_size", "start"),
    [
        ((), 4, "None of 4 ranks tells its steps: give the script the probe"),
        ((0, 2), 4, "Only 2 of 4 ranks tell their steps (not 1, 3), and any other may be the slow one"),
        ((0,), 6, "Only 1 of 6 ranks tell their steps (not 1, 2, 3, 4, 5), and"),
        ((0,), 7, "Only 1 of 7 ranks tell their steps (not 1, 2, 3, 4, 5 …), and"),
        ((0,), 10**12, "Only 1 of 1000000000000 ranks tell their steps (not 1, 2, 3, 4, 5 …), and"),
    ],
)
def test_ranks_that_are_missing(seen: tuple[int, ...], world_size: int, start: str) -> None:
    assert words.missing_ranks(seen, world_size).startswith(start)


def test_where_the_ranks_meet_is_not_known() -> None:
    assert words.unknown_phase(replace(WORK, shared=("data_wait",))).startswith("The ranks tell no phase that all of them have")
    assert words.unknown_phase(WORK).startswith("The ranks differ in bwd and in step by as much")


def test_a_rank_is_named_with_its_place_its_work_and_what_it_costs() -> None:
    places = {3: RankPlace(rank=3, host="node-2", gpu="1")}
    assert words.named(WORK, "bwd", LATE, (), places, 9.5) == (
        "Rank 3 (host node-2, GPU 1) waits least in bwd, where the ranks meet: its own work is longer than the others' by at least 20.0 %, "
        "in fwd (+8.00 ms), in 96 % of the steps (steps 5–9, n = 3). Without it a step would be 9.50 ms shorter."
    )


def test_a_rank_of_no_known_place_that_is_late_outside_of_all_phases() -> None:
    found = words.named(WORK, "bwd", replace(LATE, longer={}), (), {}, None)
    assert found.startswith("Rank 3 waits least") and "outside the phases (logging, reading a loss back), in 96 %" in found
    assert "Without" not in found
    assert words.named(WORK, "bwd", LATE, (), {3: RankPlace(rank=3, gpu="1")}, None).startswith("Rank 3 (GPU 1) waits")


def test_others_that_are_slow_too_and_their_host() -> None:
    on_one = {rank: RankPlace(rank=rank, host="node-2" if rank > 1 else "node-1") for rank in range(4)}
    assert "n = 3). Rank 2 is slow too, all on host node-2: look at the host first. Without them" in words.named(
        WORK, "bwd", LATE, (2,), on_one, 1.0
    )
    assert "n = 3). Ranks 1, 2 are slow too." in words.named(WORK, "bwd", LATE, (1, 2), on_one, None)
    same = {rank: RankPlace(rank=rank, host="node-2") for rank in range(4)}
    assert "Rank 2 is slow too." in words.named(WORK, "bwd", LATE, (2,), same, None), "of one host only nothing is said of the host"
    assert "Rank 7 is slow too." in words.named(WORK, "bwd", LATE, (7,), on_one, None), "of a rank whose place is not known neither"


def test_nobody_stands_out() -> None:
    assert words.nobody(WORK, "bwd", LATE, 0.05).startswith(
        "No rank stands out: by what they wait in bwd, where the ranks meet, none works 5 % longer than the others in nearly all steps "
        "(the widest is rank 3 with 20.0 %; steps 5–9, n = 3)."
    )
    assert "rank 3 with 0.0 %" in words.nobody(WORK, "bwd", replace(LATE, extra_ms=-1.0), 0.05)


def test_a_rank_that_waits_less_for_no_reason_that_shows() -> None:
    assert words.unexplained(3, "bwd", LATE).startswith("Rank 3 is in bwd for 10.00 ms less than the others, but no longer anywhere else")
    assert words.two_outside(1, "bwd", LATE).startswith(
        "Rank 1 is in bwd for 10.00 ms less than the other, and outside the phases for longer"
    )
    assert words.hidden(2, "step").startswith("Rank 2 comes last in step, though its other phases are no longer")
